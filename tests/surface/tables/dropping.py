"""What is drawn where chance decides nothing: probabilities of 0 and 1, and all there is."""

from __future__ import annotations

from surface.rows import In, Pos, Row, function

SHAPES = {
    "dropout": "a b", "dropout1d": "a b c", "dropout2d": "a b c d", "dropout3d": "a b c d 2",
    "alpha_dropout": "a b", "feature_alpha_dropout": "a b c",
}  # fmt: skip


def _of(name, *args):
    return function(f"T.nn.functional.{name}", *args)


ROWS = [
    *(Row(f"{name}_resting", _of(name, 0.5, False), (shape,)) for name, shape in SHAPES.items()),
    *(Row(f"{name}_none", _of(name, 0.0, True), (shape,)) for name, shape in SHAPES.items()),
    *(Row(f"{name}_all", _of(name, 1.0, True), (shape,), special=False,
          why="torch multiplies by 0") for name, shape in SHAPES.items()),
    Row("bernoulli", "(x > 0).to(x.dtype).bernoulli()", ("a b",), grad=False),
    Row("bernoulli_number", "(x.bernoulli(0.0), x.bernoulli(1.0))", ("a b",),
        grad=False),
    Row("multinomial", "w.multinomial(w.shape[-1]).sort(-1)[0]", (Pos("a b"),),
        grad=False, zero="a", special=False, why="there must be positive numbers to draw from"),
    Row("multinomial_replaced", "(w > 3).to(w.dtype).multinomial(9, True)",
        (In("a 1", 4, 5),), grad=False, zero="a", special=False,
        why="there must be positive numbers to draw from"),
    Row("gumbel_softmax", "T.nn.functional.gumbel_softmax(x, 0.5)", ("a 1",),
        special=False, why="the only category is certain where its logit is finite"),
    Row("gumbel_softmax_hard", "T.nn.functional.gumbel_softmax(x, hard=True, dim=0)",
        ("1 a",), special=False, why="the only category is certain where its logit is finite"),
]  # fmt: skip
