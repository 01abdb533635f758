"""Scaled dot-product attention."""

from surface.rows import Bool, Row, function


def row(name, shapes, **options):
    call = function("T.nn.functional.scaled_dot_product_attention", **options)
    return Row(name, call, shapes, tol=8, special=False,
               why="in torch what becomes of NaN depends on the shapes")


PLAIN = ("n h q d", "n h k d", "n h k v")

ROWS = [
    row("plain", PLAIN),
    row("two_axes", ("q d", "k d", "k v")),
    row("causal", PLAIN, is_causal=True),
    row("scale", PLAIN, scale=0.3),
    row("bool_mask", (*PLAIN, Bool("q k"))),
    row("bool_mask_heads", (*PLAIN, Bool("n 1 q k"))),
    row("float_mask", (*PLAIN, "q k")),
    row("grouped", ("n 4 q d", "n 2 k d", "n 2 k v"), enable_gqa=True),
    row("grouped_causal", ("n 4 q d", "n 2 k d", "n 2 k v"), enable_gqa=True, is_causal=True),
    row("grouped_mask", ("n 4 q d", "n 2 k d", "n 2 k v", Bool("n 4 q k")), enable_gqa=True),
]
