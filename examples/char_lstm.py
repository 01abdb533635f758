"""A character LSTM learns to write sentences, and writes some.

`nn.LSTM` is a `krt.scan` over the characters; here another scan around it takes training steps, so
a call is 20 steps of Adam on 20 batches. Writing is a scan, too: it carries the hidden state and
the last character, and draws the next one.

The text is made by a small grammar, so what is written can be judged: by how many of its words are
words of the text, and how many of its sentences the grammar allows.

python examples/char_lstm.py [--plot]
"""

import sys
from time import perf_counter

import numpy as np

import kernelrt as krt
from kernelrt import nn

CALLS, STEPS, BATCH, LENGTH, HIDDEN, WRITTEN = 10, 20, 32, 64, 96, 2000
WHO = "the baker|a child|the old captain|my sister|a fox|the clockmaker|every gardener"
DOES = "finds|carries|paints|hides|mends|watches|borrows"
WHAT = "a lantern|seven apples|the broken boat|his ladder|a blue kite|some bread|the map"
WHERE = "by the river|at noon|in the attic|before the rain|behind the mill|on sundays"


def sentences(rng: np.random.Generator, count: int) -> str:
    """So many sentences, of 7 x 7 x 7 x 6 that there are."""
    parts = [p.split("|") for p in (WHO, DOES, WHAT, WHERE)]
    return "".join(" ".join(p[rng.integers(len(p))] for p in parts) + ". " for _ in range(count))


def is_sentence(text: str) -> bool:
    """Whether the grammar allows it."""
    for part in (WHO, DOES, WHAT, WHERE):
        found = [p for p in part.split("|") if text.startswith(p)]
        if not found:
            return False
        text = text[len(found[0]) :].removeprefix(" ")
    return not text


class Writer:
    """Characters in, logits of the next ones out."""

    def __init__(self, letters: int) -> None:
        self.letters = letters
        self.embed = nn.Embedding(letters, 24)
        self.lstm = nn.LSTM(24, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, letters)
        self.opt = nn.optim.Adam(nn.parameters(self), lr=8e-3)

    @krt.jit
    def train(self, batches):
        """A step for each of `batches`, of shape (STEPS, BATCH, LENGTH + 1); their losses."""

        def turn(carry, chars):
            self.opt.zero_grad()
            out, _ = self.lstm(self.embed(chars[:, :-1]))
            logits = self.head(out).reshape(-1, self.letters)
            loss = logits.cross_entropy(chars[:, 1:].reshape(-1))
            loss.backward()
            self.opt.step()
            return carry, loss.detach()

        return krt.scan(turn, None, batches)[1]

    @krt.jit
    def write(self, first):
        """WRITTEN characters after `first`, each drawn from what is likely after those before."""

        def turn(carry, _):
            char, hidden = carry
            out, hidden = self.lstm(self.embed(char.reshape(1, 1)), hidden)
            logits = self.head(out).reshape(-1) / 0.7
            # The largest of logits with Gumbel noise is a draw from their softmax.
            noise = -(-(krt.rand(self.letters) + 1e-9).log() + 1e-9).log()
            char = (logits + noise).argmax()
            return (char, hidden), char

        start = krt.zeros(1, 1, HIDDEN), krt.zeros(1, 1, HIDDEN)
        with krt.no_grad():
            return krt.scan(turn, (first, start), length=WRITTEN)[1]


def main(plot: bool = False) -> float:
    krt.manual_seed(0)
    rng = np.random.default_rng(0)
    text = sentences(rng, 3000)
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(c) for c in text])
    model = Writer(len(alphabet))
    losses: list[float] = []
    started = perf_counter()
    for call in range(CALLS):
        starts = rng.integers(0, len(codes) - LENGTH - 1, (STEPS, BATCH))
        batches = codes[starts[..., None] + np.arange(LENGTH + 1)]
        losses += model.train(batches).tolist()
        print(f"\rstep {(call + 1) * STEPS:4}: {np.mean(losses[-STEPS:]):.3f} nats a character "
              f"({perf_counter() - started:.1f} s)", end="", flush=True)  # fmt: skip
    least = np.log(7 * 7 * 7 * 6) * 3000 / len(text)
    print(f"\nguessing has {np.log(len(alphabet)):.3f}, who knows the grammar about {least:.3f}")
    model.write(alphabet.index(" ")).numpy()  # compiles
    started = perf_counter()
    written = "".join(alphabet[i] for i in model.write(alphabet.index(" ")).numpy())
    seconds = perf_counter() - started
    print(f"\n{written[:300]}\n")
    words = written.replace(".", " ").split()[1:-1]
    known = float(np.mean([word in set(text.replace(".", " ").split()) for word in words]))
    whole = written.strip().split(". ")[1:-1]
    allowed = float(np.mean([is_sentence(s) for s in whole])) if whole else 0.0
    print(f"{known:.0%} of {len(words)} words are words of the text, {allowed:.0%} of {len(whole)} "
          f"sentences are right; {seconds / WRITTEN * 1e6:.1f} us a character")  # fmt: skip
    if plot:
        show(losses)
    return known


def show(losses: list[float]) -> None:
    import matplotlib.pyplot as plt

    plt.plot(losses)
    plt.xlabel("steps")
    plt.ylabel("nats a character")
    plt.show()


if __name__ == "__main__":
    main("--plot" in sys.argv[1:])
