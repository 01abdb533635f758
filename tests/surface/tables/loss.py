"""Losses and normalization."""

from __future__ import annotations

from surface.rows import In, Index, Pos, Row, each, function

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
    return function(f"F.{name}", **options)


#: Classes, and options beside them.
LABELS = [1, 0, 3, 3, 2]
ARRAYS = {"plain": "", "ignored": ", ignore_index=3", "each": ", reduction='none'"}

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
    Row("bce_weight", "F.binary_cross_entropy(x, y, w)",
        (CHANCE, CHANCE, Pos("b", grad=False)), tol=2, special=False,
        why="torch wants numbers from 0 to 1"),
    Row("bce_logits_weight",
        "F.binary_cross_entropy_with_logits(x, y, w, reduction='sum')",
        ("a b", CHANCE, Pos("b", grad=False)), tol=2, special=False, why=LOGITS),
    Row("bce_logits_pos_weight",
        "F.binary_cross_entropy_with_logits(x, y, pos_weight=w)",
        ("a b", CHANCE, Pos("b", grad=False)), tol=2, special=False, why=LOGITS),
    Row("kl_div_batchmean", _pair("kl_div", {"reduction": "batchmean"}), ("a b", Pos("a b")),
        special=False, why=CHANCES),
    *(Row(f"cross_entropy_{way}_{reduction}",
          f"F.cross_entropy(x, i, reduction={reduction!r})",
          shapes, tol=2) for way, shapes in CLASSES.items() for reduction in REDUCTIONS),
    *(Row(f"nll_loss_{way}_{reduction}",
          f"F.nll_loss(x, i, reduction={reduction!r})", shapes)
      for way, shapes in CLASSES.items() for reduction in REDUCTIONS),
    *(Row(f"{name}_weight_{reduction}",
          f"F.{name}(x, i, w, reduction={reduction!r})",
          ("n c", Index("n", "c"), Pos("c", grad=False)), tol=2)
      for name in ("cross_entropy", "nll_loss") for reduction in REDUCTIONS),
    *(Row(f"{name}_ignored",
          f"F.{name}(x, i, ignore_index=0)",
          ("n 3", Index("n", "3")), tol=2, sizes={"n": 7})
      for name in ("cross_entropy", "nll_loss")),
    Row("cross_entropy_smooth", "F.cross_entropy(x, i, label_smoothing=0.2)",
        ("n c", Index("n", "c")), tol=2),
    Row("cross_entropy_smooth_weight",
        "F.cross_entropy(x, i, w, label_smoothing=0.2)",
        ("n c", Index("n", "c"), Pos("c", grad=False)), tol=2),
    Row("cross_entropy_chances", "F.cross_entropy(x, y.softmax(1))",
        ("n c", "n c"), tol=2, zero="n", why="of no classes torch's mean is NaN"),
    Row("cross_entropy_one", "F.cross_entropy(x, i)", ("c", Index("", "c")),
        tol=2),
    *(Row(f"{name}_last", f"F.{name}(x, x.shape[-1:], eps=1e-5)", ("a b c",), tol=4)
      for name in ("layer_norm", "rms_norm")),
    *(Row(f"{name}_two", f"F.{name}(x, x.shape[-2:], eps=1e-5)", ("a b c",), tol=4)
      for name in ("layer_norm", "rms_norm")),
    Row("layer_norm_affine", "F.layer_norm(x, x.shape[-1:], w, b)",
        ("a b c", "c", "c"), tol=4),
    Row("rms_norm_weight", "F.rms_norm(x, x.shape[-1:], w, 0.001)",
        ("a b c", "c"), tol=4),
    *(Row(f"group_norm_{g}", f"F.group_norm(x, {g})", ("n 4 m",), tol=4)
      for g in (1, 2)),
    Row("group_norm_each", "F.group_norm(x, 4)", ("n 4 m",), sizes={"m": 6}, tol=4),
    Row("group_norm_affine", "F.group_norm(x, 2, w, b, 0.001)",
        ("n 4 h w", "4", "4"), tol=4, zero="n", why="torch's gradients of no elements are NaN"),
    Row("batch_norm_training", "F.batch_norm(x, None, None, training=True)",
        ("n c m",), tol=8),
    Row("batch_norm_affine",
        "F.batch_norm(x, None, None, w, b, training=True)",
        ("n c h w", "c", "c"), tol=8),
    Row("batch_norm_eval",
        "F.batch_norm(x, m, v, w, b)",
        ("n c", In("c", grad=False), Pos("c", grad=False), "c", "c"), tol=4, special=(0,),
        why="torch adds up infinite means and shifts in an order of its own"),
    *each("F.layer_norm(x, x.shape[-1:]); F.rms_norm(x, x.shape[-1:], eps=1e-6)", "... n",
          grid=False),
    *each("F.layer_norm(x, x.shape[-1:], y, z)", "... n", "n", "n", grid=False),
    *each("F.rms_norm(x, x.shape[-1:], y, 1e-5)", "... n", "n", grid=False),
    *each("F.group_norm(x, 2)", "n 4 ...", zero=False, grid=False),
    *each("F.group_norm(x, 1, y, z)", "n 4 ...", "4", "4", zero=False, grid=False),
    *each("F.group_norm(x, 4, y)", "n 4 ...", "4", zero=False, grid=False),
    *each("F.batch_norm(x, None, None, training=True)", "n 4 ...", zero=False, grid=False),
    *each("F.batch_norm(x, None, None, y, z, True)", "n 4 ...", "4", "4", zero=False, grid=False),
    *each("F.batch_norm(x, y, z.abs() + 0.5); F.batch_norm(x, y, y * y, z, y)", "n 4 ...", "4",
          "4", zero=False, grid=False),
    *each("F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction={r}); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction={r}); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y.exp()); "
          "F.binary_cross_entropy_with_logits(x, y.sigmoid(), y * y); "
          "F.kl_div(x, y.sigmoid(), reduction={r}); F.mse_loss(x, y, reduction={r}); "
          "F.l1_loss(x, y, reduction={r}); F.huber_loss(x, y, reduction={r}); "
          "F.huber_loss(x, y, delta=0.5); F.smooth_l1_loss(x, y, reduction={r}); "
          "F.smooth_l1_loss(x, y, beta=0.3)", "a ...", "a ...", grid=False),
    *each("F.mse_loss(x, x); F.l1_loss(x, x)", "a ...", grid=False),
    *each("F.cross_entropy(x, i, reduction={r}); F.nll_loss(x, i, reduction={r}); "
          "F.cross_entropy(x, i, ignore_index=0); F.cross_entropy(x, i, label_smoothing=0.1); "
          "F.nll_loss(x.log_softmax(1), i)", "n c ...", Index("n ...", "c"), grid=False),
    *each("F.cross_entropy(x, i, y.abs(), reduction={r}); F.nll_loss(x, i, y.abs()); "
          "F.cross_entropy(x, i, y.abs(), label_smoothing=0.2)", "n c ...", Index("n ...", "c"),
          "c", grid=False),
    *each("F.cross_entropy(x, x.softmax(1))", "n c ...", grid=False, zero="n",
          why="torch's mean over no classes divides 0 by 0"),
    *each("F.mse_loss(x, y); F.l1_loss(x, y); F.huber_loss(x, y); F.smooth_l1_loss(x, y)", "a b",
          "a b", tol=2),
    *each("F.binary_cross_entropy(x, y)", CHANCE, CHANCE, tol=2, special=False,
          why="torch wants numbers from 0 to 1"),
    *each("F.binary_cross_entropy_with_logits(x, y)", "a b", CHANCE, tol=2, special=False,
          why=LOGITS),
    # What kernelrt takes beside: arrays of labels, one size as a shape, options by their place.
    *each("F.gelu(x, 'tanh')", "a b", torch="F.gelu(x, approximate='tanh')", tol=2),
    *each("F.layer_norm(x, 5)", "a 5", torch="F.layer_norm(x, (5,))", tol=4),
    *each("F.rms_norm(x, 5, eps=1e-3)", "a 5", torch="F.rms_norm(x, (5,), eps=1e-3)", tol=4),
    *each("F.l1_loss(x, y, 'sum')", "a b", "a b", torch="F.l1_loss(x, y, reduction='sum')", tol=2),
    *each("F.kl_div(x, y, 'sum')", "a b", Pos("a b"), torch="F.kl_div(x, y, reduction='sum')",
          special=False, why=CHANCES),
    *(Row(f"{name} of an array, {how}", f"F.{name}(x, np.array({LABELS}){options})", ("5 4",),
          torch=f"F.{name}(x, T.tensor({LABELS}){options})", tol=2)
      for name in ("cross_entropy", "nll_loss") for how, options in ARRAYS.items()),
    *each(f"F.cross_entropy(x, np.array({LABELS}), label_smoothing=0.2)", "5 4", tol=2,
          torch=f"F.cross_entropy(x, T.tensor({LABELS}), label_smoothing=0.2)"),
    Row("cross_entropy of an array, weight",
        f"F.cross_entropy(x, np.array({LABELS}), np.array([0.5, 1, 2, 0.25]))", ("5 4",),
        torch=f"F.cross_entropy(x, T.tensor({LABELS}), T.tensor([0.5, 1, 2, 0.25], dtype=x.dtype))",
        tol=2),
    *each("F.group_norm(x, 1)", "n c ...", zero=False, grid=False),
]  # fmt: skip
