"""Random small networks, losses and optimizers, trained in kernelrt and in torch in float64.

Layers, losses and optimizers have torch's names, so one text makes both networks. Between the
steps, parameters are frozen and unfrozen, gradients kept and dropped, and learning rates set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.soak import record
from tests.soak.texts import Invalid, strict

if TYPE_CHECKING:
    from collections.abc import Iterator

Case = dict[str, Any]
SHARE = 1.2
WIDTHS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)
ACTIVATIONS = (
    "nn.ReLU()", "nn.Tanh()", "nn.Sigmoid()", "nn.GELU()", "nn.GELU('tanh')", "nn.SiLU()",
    "nn.Softplus()", "nn.LeakyReLU(0.1)", "nn.Softmax(-1)", "nn.LogSoftmax(-1)", "nn.Identity()",
)  # fmt: skip
OPTIMIZERS = (
    "SGD(P, lr=0.05)", "SGD(P, lr=0.05, momentum=0.9)",
    "SGD(P, lr=0.05, momentum=0.9, nesterov=True)", "SGD(P, lr=0.05, weight_decay=0.1)",
    "SGD(P, lr=0.05, momentum=0.5, dampening=0.3, weight_decay=0.01)", "Adam(P, lr=0.01, eps=1e-3)",
    "Adam(P, lr=0.01, eps=1e-3, weight_decay=0.1)", "AdamW(P, lr=0.01, eps=1e-3)",
    "Adam(P, lr=0.01, betas=(0.5, 0.9), eps=1e-3)",
)  # fmt: skip
# Losses of the network's output z and the targets: t like z, c class numbers.
LOSSES = (
    "F.mse_loss(z, t)", "F.l1_loss(z, t)", "F.huber_loss(z, t)", "F.smooth_l1_loss(z, t)",
    "F.binary_cross_entropy_with_logits(z, t.sigmoid())", "F.cross_entropy(z, c)",
    "F.cross_entropy(z, c, label_smoothing=0.1)", "F.cross_entropy(z, c, reduction='sum') * 0.1",
    "z.square().sum() * 0.01", "(z - t).abs().mean(0).sum()", "z.logsumexp(-1).mean()",
    "F.kl_div(z.log_softmax(-1), t.softmax(-1))", "(z.square().mean(0) + t.mean(0)).sum()",
    "F.nll_loss(z.log_softmax(-1), c)", "(z.std(0) * 0.1 + z.mean(0).tanh()).sum()",
    "z.amax(-1).sum() * 0.1", "z[1:].sum() * 0.1 + z.square().mean()",
)  # fmt: skip
# Actions on parameters P before a step, outside of the jitted function.
ACTS = (
    "thaw(P[{i}:{j}], False)", "thaw(P[{i}:{j}], False)", "thaw(P[{i}:{j}], True)",
    "thaw(P[::2], False)", "thaw(P, True)", "P[{i}].grad = None", "rate(0.02)", "rate(0.0)",
    "keep()", "keep()",
)  # fmt: skip
# Within the step: before and after the network, and after its gradients.
FREEZING = {
    "": ("", "", ""),
    "forward": ("thaw(P[::2], False)", "thaw(P[::2], True)", ""),
    "backward": ("", "thaw(P[::2], False)", "thaw(P[::2], True)"),
    "first": ("thaw(P[:1], False)", "", "thaw(P[:1], True)"),
    "between": ("", "thaw(P, False); thaw(P, True)", ""),
}


def thaw(parameters: list[Any], on: bool) -> None:
    for p in parameters:
        p.requires_grad_(on)


def stepper(
    case: Case, net: Any, losses: Any, optimizer: Any, parameters: list[Any]
) -> tuple[Any, Any]:
    """Return a training step, and the optimizer's step, which the first contains unless "apart"."""
    before, after, behind = FREEZING[case["freezing"]]
    names = {"P": parameters, "thaw": thaw}

    def gradients(x: Any, t: Any, c: Any) -> Any:
        if case["zero"] == "inside":
            optimizer.zero_grad()
        exec(before, names)  # noqa: S102
        z = net(x)
        exec(after, names)  # noqa: S102
        loss = eval(case["loss"], {"F": losses, "z": z, "t": t, "c": c})  # noqa: S307
        loss.backward()
        exec(behind, names)  # noqa: S102
        if not case["apart"]:
            optimizer.step()
        return loss

    return gradients, optimizer.step


def between(case: Case, k: int, optimizer: Any, parameters: list[Any], rate: Any) -> None:
    """Run the actions before step `k`."""
    kept: list[bool] = []
    names = {"P": parameters, "rate": rate, "thaw": thaw, "keep": lambda: kept.append(True)}
    exec(case["acts"][k], names)  # noqa: S102
    if case["zero"] == "outside" and not kept:
        optimizer.zero_grad()


def generate(rng: np.random.Generator) -> Case:
    def pick(pool: Any) -> Any:
        return pool[rng.integers(len(pool))]

    layers = []
    width = int(pick(WIDTHS))
    kind = pick(("plain", "plain", "plain", "embedding", "image"))
    shape: list[int] = [width]
    if kind == "embedding":
        shape = [int(pick((1, 2, 3)))]
        layers += [f"nn.Embedding(5, {width})", "nn.Flatten()"]
        width *= shape[0]
    elif kind == "image":
        channels, high, wide = (int(pick((1, 2, 3))) for _ in range(3))
        shape = [channels, high + 3, wide + 2]
        out = int(pick((1, 2, 4)))
        stride, padding = int(pick((1, 1, 2))), int(pick((0, 1)))
        layers.append(f"nn.Conv2d({channels}, {out}, 3, stride={stride}, padding={padding})"
                      if padding or (stride == 1 and wide > 0 and high > 0)
                      else f"nn.Conv2d({channels}, {out}, 1)")  # fmt: skip
        layers.append(pick(ACTIVATIONS))
        layers += list(
            pick(((), (), ("nn.MaxPool2d(2, 1)",), ("nn.AvgPool2d(2, 1)",), ("nn.MaxPool2d(1)",)))
        )
        layers.append("nn.Flatten()")
        width = 0
    for _ in range(rng.integers(1, 4)):
        out = int(pick(WIDTHS))
        layers.append(f"nn.Linear({width}, {out}{pick(('', '', ', bias=False'))})")
        width = out
        if rng.integers(4):
            layers.append(pick(ACTIVATIONS))
        if rng.integers(5) == 0:
            layers.append(f"nn.LayerNorm({width})")
    sizes = [int(pick(WIDTHS)) for _ in range(rng.integers(1, 6))]
    case = {
        "layers": layers, "shape": shape, "indices": kind == "embedding", "loss": pick(LOSSES),
        "optimizer": pick(OPTIMIZERS), "sizes": sizes, "seed": int(rng.integers(100)),
        "way": pick(("jit", "dynamic", "dynamic", "eager")),
        "apart": pick(("", "", "eager", "jit")), "zero": pick(("inside", "outside")),
        "acts": [""] * len(sizes), "freezing": "",
    }  # fmt: skip
    if rng.integers(2):
        case["acts"] = [
            pick(ACTS).format(i=rng.integers(2), j=2) if rng.integers(2) else "" for _ in sizes
        ]
    if rng.integers(3) == 0:
        case["freezing"] = pick(tuple(FREEZING))
    if kind == "image":
        settle(case)
    return case


def settle(case: Case) -> None:
    """Set the first Linear after a Flatten to the input width that torch finds there."""
    from torch import nn, zeros

    at = case["layers"].index("nn.Flatten()")
    try:
        front = nn.Sequential(*(eval(layer, {"nn": nn}) for layer in case["layers"][: at + 1]))  # noqa: S307
        width = front(zeros(1, *case["shape"])).shape[1]
    except RuntimeError:
        return  # no window fits; torch will say so again
    case["layers"] = [
        layer.replace("nn.Linear(0,", f"nn.Linear({width},") for layer in case["layers"]
    ]


def batches(case: Case, width: int) -> Iterator[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(case["seed"])
    for n in case["sizes"]:
        x: Any = rng.standard_normal((n, *case["shape"])).astype(np.float32)
        if case["indices"]:
            x = rng.integers(0, 5, (n, *case["shape"]))
        t = rng.standard_normal((n, width)).astype(np.float32)
        yield x, t, rng.integers(0, width, n)


def by_torch(case: Case, kind: Any, moved: float = 0.0) -> tuple[dict[str, Any], list[Any]]:
    """Return the initial weights, and losses and weights after the steps."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(case["seed"])
    names = {"nn": nn}
    net = nn.Sequential(*(eval(layer, names) for layer in case["layers"]))  # noqa: S307
    start = {name: value.detach().clone().numpy() for name, value in net.state_dict().items()}
    net = net.to(kind)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1 + moved)
    if not start:
        raise Invalid("nothing to train")
    parameters = list(net.parameters())
    optimizer = eval(case["optimizer"], {"P": parameters, **vars(torch.optim)})  # noqa: S307
    gradients, step = stepper(case, net, functional, optimizer, parameters)

    def rate(value: float) -> None:
        optimizer.param_groups[0]["lr"] = value

    values: list[Any] = []
    probe = torch.zeros(1, *case["shape"], dtype=torch.int64 if case["indices"] else kind)
    width = net(probe).shape[-1]
    for k, (x, t, c) in enumerate(batches(case, width)):
        between(case, k, optimizer, parameters, rate)
        data = torch.from_numpy(x)
        if not case["indices"]:
            data = data.to(kind)
        loss = gradients(data, torch.from_numpy(t).to(kind), torch.from_numpy(c))
        if case["apart"]:
            step()
        values.append(loss.detach().numpy())
    values += [p.detach().numpy().copy() for p in net.parameters()]
    return start, values


def by_kernelrt(case: Case, start: dict[str, Any], width: int) -> list[Any]:
    import kernelrt as krt
    from kernelrt import nn
    from tests.soak.texts import Functions

    net = nn.Sequential(*(eval(layer, {"nn": nn}) for layer in case["layers"]))  # noqa: S307
    nn.load_state_dict(net, start)
    parameters = nn.parameters(net)
    optimizer = eval(case["optimizer"], {"P": parameters, **vars(nn.optim)})  # noqa: S307
    gradients, step = stepper(case, net, Functions(), optimizer, parameters)

    def rate(value: float) -> None:
        optimizer.lr = value

    run = gradients
    if case["way"] != "eager":
        n = krt.Variable("n", 1, 64)
        axes = {name: {0: n} for name in "xtc"} if case["way"] == "dynamic" else None
        run = krt.jit(gradients, dynamic=axes)
    if case["apart"] == "jit":
        step = krt.jit(step)
    losses = []
    for k, batch in enumerate(batches(case, width)):
        between(case, k, optimizer, parameters, rate)
        losses.append(run(*map(krt.tensor, batch) if case["way"] == "eager" else batch).numpy())
        if case["apart"]:
            step()
    return losses + [p.numpy() for p in parameters]


def run(case: Case) -> str | None:
    import torch

    try:
        with strict():
            start, want = by_torch(case, torch.float64)
            others = [
                by_torch(case, torch.float32)[1],
                by_torch(case, torch.float64, 2e-7)[1],
                by_torch(case, torch.float64, -1e-7)[1],
            ]
    except Exception:  # noqa: BLE001 - torch has many errors for networks that do not fit
        return None
    if not all(np.isfinite(w).all() and np.abs(w).max(initial=0) < 1e4 for w in want):
        return None
    width = int(want[-1].shape[0])
    net_width = output_width(case)
    got = by_kernelrt(case, start, net_width or width)
    steps = len(case["sizes"])
    names = [f"loss {i}" for i in range(steps)] + [f"weight {i}" for i in range(len(want) - steps)]
    for i, (name, have, w) in enumerate(zip(names, got, want, strict=True)):
        if have.shape != w.shape:
            return f"values: {name} has shape {have.shape}, torch {w.shape}"
        if not w.size:
            continue
        apart = [np.abs(o[i].astype(np.float64) - w).max() for o in others]
        bound = max(1e-5 * max(1.0, float(np.abs(w).max())), 50 * float(max(apart)))
        if bound > 0.05:
            return None  # ill-conditioned initial weights
        worst = float(np.abs(have.astype(np.float64) - w).max())
        if not worst <= bound:
            return f"values: {name} ({case['way']}) is off by {worst:.3g}, allowed {bound:.3g}"
    record.note("trainings")
    return None


def output_width(case: Case) -> int:
    import torch

    net = torch.nn.Sequential(*(eval(x, {"nn": torch.nn}) for x in case["layers"]))  # noqa: S307
    kind = torch.int64 if case["indices"] else torch.float32
    return int(net(torch.zeros(1, *case["shape"], dtype=kind)).shape[-1])


def plainer(case: Case) -> Iterator[Case]:
    """Yield the case without the actions around steps."""
    for k, act in enumerate(case["acts"]):
        if act:
            yield {**case, "acts": [*case["acts"][:k], "", *case["acts"][k + 1 :]]}
    for name, plain in (("freezing", ""), ("apart", ""), ("zero", "inside")):
        if case[name] != plain:
            yield {**case, name: plain}


def shrink(case: Case) -> Iterator[Case]:
    for k in range(len(case["sizes"])):
        if len(case["sizes"]) > 1:
            less = {name: case[name][:k] + case[name][k + 1 :] for name in ("sizes", "acts")}
            yield {**case, **less}
    for k in range(len(case["layers"])):
        yield {**case, "layers": case["layers"][:k] + case["layers"][k + 1 :]}
    for way in ("eager", "jit"):
        if case["way"] != way and case["way"] != "eager":
            yield {**case, "way": way}
    yield from plainer(case)
    for simple, what in (
        ("optimizer", "SGD(P, lr=1.0)"),
        ("loss", "z.square().sum()"),
        ("loss", "z.sum()"),
    ):
        if case[simple] != what and len(what) < len(case[simple]):
            yield {**case, simple: what}
    for k, n in enumerate(case["sizes"]):
        for less in (1, 2, n // 2, n - 1):
            if 0 < less < n:
                yield {**case, "sizes": [*case["sizes"][:k], less, *case["sizes"][k + 1 :]]}
    texts = " ".join(case["layers"]) + str(case["shape"])
    for number in sorted({int(x) for x in re.findall(r"\b\d+\b", texts)}, reverse=True):
        for less in (1, 2, number // 2, number - 1):
            if 0 < less < number:

                def change(text: str, a: int = number, b: int = less) -> str:
                    return re.sub(rf"\b{a}\b(?!d)", str(b), text)

                yield {
                    **case,
                    "layers": [change(x) for x in case["layers"]],
                    "shape": [less if s == number else s for s in case["shape"]],
                }


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", " ".join(case["layers"]) + case["loss"] + case["optimizer"]) + (
        case["freezing"] + case["apart"] + case["zero"] + str([a for a in case["acts"] if a])
    )


def source(case: Case) -> str:
    width = output_width(case)
    x = "R.integers(0, 5, (n, *shape))" if case["indices"] else (
        "R.normal(size=(n, *shape)).astype('f4')")  # fmt: skip
    wide = "torch.tensor(b)" if case["indices"] else "torch.tensor(b).double()"
    axes = ", dynamic={k: {0: krt.Variable('n', 1, 64)} for k in 'xtc'}"
    run = {"eager": "lambda *b: mine(*map(krt.tensor, b))", "jit": "krt.jit(mine)",
           "dynamic": f"krt.jit(mine{axes})"}[case["way"]]  # fmt: skip
    before, after, behind = FREEZING[case["freezing"]]
    lines = [
        "O.zero_grad()" if case["zero"] == "inside" else "", before, "z = net(x)", after,
        f"loss = {case['loss']}", "loss.backward()", behind, "" if case["apart"] else "O.step()",
    ]  # fmt: skip
    body = "\n        ".join(line for line in lines if line)
    outside = "\n    if 'keep' not in act: O.zero_grad()" if case["zero"] == "outside" else ""
    jit = "krt.jit" if case["apart"] == "jit" else ""
    steps = f"\n    ({jit}(ours[1].step))(); other[1].step()" if case["apart"] else ""
    return f"""import numpy as np, torch, kernelrt as krt
from tests.soak.texts import Functions
R, shape = np.random.default_rng({case["seed"]}), {tuple(case["shape"])}
def build(nn): return nn.Sequential({", ".join(case["layers"])})
def thaw(parameters, on): [p.requires_grad_(on) for p in parameters]
def stepper(net, F, P, O):
    def gradients(x, t, c):
        {body}
        return loss
    return gradients
def between(act, P, O, rate):
    exec(act, {{"P": P, "rate": rate, "thaw": thaw, "keep": int}}){outside}
torch.manual_seed({case["seed"]}); theirs = build(torch.nn); mine = build(krt.nn)
krt.nn.load_state_dict(mine, theirs.state_dict()); theirs.double()
optimizer = lambda optim, P: (P, optim.{case["optimizer"]})
ours = optimizer(krt.nn.optim, krt.nn.parameters(mine))
other = optimizer(torch.optim, list(theirs.parameters()))
mine = stepper(mine, Functions(), *ours)
want = stepper(theirs, torch.nn.functional, *other)
run = {run}
for n, act in zip({case["sizes"]}, {case["acts"]}):
    between(act, *ours, lambda lr: setattr(ours[1], "lr", lr))
    between(act, *other, lambda lr: other[1].param_groups[0].update(lr=lr))
    b = {x}; t = R.normal(size=(n, {width})).astype('f4'); c = R.integers(0, {width}, n)
    have = run(b, t, c)
    loss = want({wide}, torch.tensor(t).double(), torch.tensor(c)){steps}
    np.testing.assert_allclose(have.numpy(), loss.detach().numpy(), 1e-3, 1e-4)
for a, b in zip(ours[0], other[0]):
    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), 1e-3, 1e-4)"""
