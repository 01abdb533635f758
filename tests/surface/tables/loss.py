"""Losses and normalization."""

from __future__ import annotations

from surface.rows import In, Index, Pos, Row, functions

F = functions
REDUCTIONS = ("mean", "sum", "none")
PAIRS = {
    "mse_loss": [{}], "l1_loss": [{}], "huber_loss": [{}, {"delta": 0.5}],
    "smooth_l1_loss": [{}, {"beta": 0.3}, {"beta": 0.0}], "kl_div": [{}],
    "binary_cross_entropy_with_logits": [{}],
}  # fmt: skip

LOGITS = "torch's of infinite scores is NaN where there is a limit"
CHANCES = "torch's of infinities is NaN where there is a limit"
LIMITS = {"binary_cross_entropy_with_logits": LOGITS, "kl_div": CHANCES}
CHANCE = In("a b", 0.05, 0.95)
CLASSES = {
    "plane": ("n c", Index("n", "c")), "image": ("n c h w", Index("n h w", "c")),
    "line": ("n c m", Index("n m", "c")),
}  # fmt: skip


def _pair(name, options):
    return lambda k, x, y: getattr(F(k), name)(x, y, **options)


ROWS = [
    *(Row(f"{name}_{reduction}" + f"_{n}" * bool(n),
          _pair(name, {**options, "reduction": reduction}),
          ("a b", Pos("a b") if name == "kl_div" else "a b"), tol=2,
          special=name not in LIMITS, why=LIMITS.get(name, ""))
      for name, ways in PAIRS.items() for n, options in enumerate(ways)
      for reduction in REDUCTIONS),
    *(Row(f"bce_{reduction}", _pair("binary_cross_entropy", {"reduction": reduction}),
          (CHANCE, CHANCE), tol=2, special=False, why="torch wants numbers from 0 to 1")
      for reduction in REDUCTIONS),
    Row("bce_weight", lambda k, x, y, w: F(k).binary_cross_entropy(x, y, w),
        (CHANCE, CHANCE, Pos("b", grad=False)), tol=2, special=False,
        why="torch wants numbers from 0 to 1"),
    Row("bce_logits_weight",
        lambda k, x, y, w: F(k).binary_cross_entropy_with_logits(x, y, w, reduction="sum"),
        ("a b", CHANCE, Pos("b", grad=False)), tol=2, special=False, why=LOGITS),
    Row("bce_logits_pos_weight",
        lambda k, x, y, w: F(k).binary_cross_entropy_with_logits(x, y, pos_weight=w),
        ("a b", CHANCE, Pos("b", grad=False)), tol=2, special=False, why=LOGITS),
    Row("kl_div_batchmean", _pair("kl_div", {"reduction": "batchmean"}), ("a b", Pos("a b")),
        special=False, why=CHANCES),
    *(Row(f"cross_entropy_{way}_{reduction}",
          lambda k, x, i, reduction=reduction: F(k).cross_entropy(x, i, reduction=reduction),
          shapes, tol=2) for way, shapes in CLASSES.items() for reduction in REDUCTIONS),
    *(Row(f"nll_loss_{way}_{reduction}",
          lambda k, x, i, reduction=reduction: F(k).nll_loss(x, i, reduction=reduction), shapes)
      for way, shapes in CLASSES.items() for reduction in REDUCTIONS),
    *(Row(f"{name}_weight_{reduction}",
          lambda k, x, i, w, name=name, reduction=reduction:
              getattr(F(k), name)(x, i, w, reduction=reduction),
          ("n c", Index("n", "c"), Pos("c", grad=False)), tol=2)
      for name in ("cross_entropy", "nll_loss") for reduction in REDUCTIONS),
    *(Row(f"{name}_ignored",
          lambda k, x, i, name=name: getattr(F(k), name)(x, i, ignore_index=0),
          ("n 3", Index("n", "3")), tol=2, sizes={"n": 7})
      for name in ("cross_entropy", "nll_loss")),
    Row("cross_entropy_smooth", lambda k, x, i: F(k).cross_entropy(x, i, label_smoothing=0.2),
        ("n c", Index("n", "c")), tol=2),
    Row("cross_entropy_smooth_weight",
        lambda k, x, i, w: F(k).cross_entropy(x, i, w, label_smoothing=0.2),
        ("n c", Index("n", "c"), Pos("c", grad=False)), tol=2),
    Row("cross_entropy_chances", lambda k, x, y: F(k).cross_entropy(x, y.softmax(1)),
        ("n c", "n c"), tol=2, zero="n", why="of no classes torch's mean is NaN"),
    Row("cross_entropy_one", lambda k, x, i: F(k).cross_entropy(x, i), ("c", Index("", "c")),
        tol=2),
    *(Row(f"{name}_last", lambda k, x, name=name: _normed(k, name, x, 1), ("a b c",), tol=4)
      for name in ("layer_norm", "rms_norm")),
    *(Row(f"{name}_two", lambda k, x, name=name: _normed(k, name, x, 2), ("a b c",), tol=4)
      for name in ("layer_norm", "rms_norm")),
    Row("layer_norm_affine", lambda k, x, w, b: F(k).layer_norm(x, x.shape[-1:], w, b),
        ("a b c", "c", "c"), tol=4),
    Row("rms_norm_weight", lambda k, x, w: F(k).rms_norm(x, x.shape[-1:], w, 1e-3),
        ("a b c", "c"), tol=4),
    *(Row(f"group_norm_{g}", lambda k, x, g=g: F(k).group_norm(x, g), ("n 4 m",), tol=4)
      for g in (1, 2)),
    Row("group_norm_each", lambda k, x: F(k).group_norm(x, 4), ("n 4 m",), sizes={"m": 6}, tol=4),
    Row("group_norm_affine", lambda k, x, w, b: F(k).group_norm(x, 2, w, b, 1e-3),
        ("n 4 h w", "4", "4"), tol=4, zero="n", why="torch's gradients of no elements are NaN"),
    Row("batch_norm_training", lambda k, x: F(k).batch_norm(x, None, None, training=True),
        ("n c m",), tol=8),
    Row("batch_norm_affine",
        lambda k, x, w, b: F(k).batch_norm(x, None, None, w, b, training=True),
        ("n c h w", "c", "c"), tol=8),
    Row("batch_norm_eval",
        lambda k, x, m, v, w, b: F(k).batch_norm(x, m, v, w, b),
        ("n c", In("c", grad=False), Pos("c", grad=False), "c", "c"), tol=4, special=(0,),
        why="torch adds up infinite means and shifts in an order of its own"),
]  # fmt: skip


def _normed(k, name, x, axes):
    return getattr(F(k), name)(x, x.shape[-axes:], eps=1e-5)
