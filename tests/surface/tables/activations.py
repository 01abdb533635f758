"""Activation functions."""

from surface.rows import In, Pos, Row, function


def row(name, *arguments, spec="a b", label="", **options):
    return Row(f"{name}{label}", function(f"F.{name}", *arguments), (spec,), **options)


#: torch computes some from constants of float32.
FEW_DIGITS = 1e5


ROWS = [
    row("relu", ints=True),
    row("relu6"),
    row("leaky_relu", 0.2),
    row("elu", 1.5),
    row("celu"),
    row("celu", 0.4, label="_alpha", tol64=FEW_DIGITS),
    row("celu", -0.4, label="_negative", tol64=FEW_DIGITS),
    row("selu"),
    row("silu"),
    row("mish"),
    row("gelu", special=False, why="torch's gelu of infinity depends on where it stands"),
    row("softplus", 2.0, 3.0),
    row("softsign"),
    row("logsigmoid"),
    row("hardtanh", -0.5, 0.75),
    row("hardsigmoid", spec=In("a b", -5, 5), tol64=FEW_DIGITS),
    row("hardswish", spec=In("a b", -5, 5)),
    row("glu", spec="a 4"),
    row("glu", 0, spec="2 b", label="_first"),
    row("hardshrink"),
    row("hardshrink", 1.25, label="_wide"),
    row("softshrink"),
    row("softshrink", 0.0, label="_none"),
    row("tanhshrink", tol=4),
    row("threshold", 0.5, -7.0),
    row("threshold", 0, 3, label="_whole", ints=True),
    row("softmin", 1),
    row("rrelu"),
    row("rrelu", 0.1, 0.2, label="_slopes"),
    Row("prelu", "x.prelu(w)", ("a b c", "b"), tol=2),
    Row("prelu_one", "x.prelu(w)", ("a b", Pos("1"))),
    Row("prelu_vector", "x.prelu(w)", ("a", Pos("1"))),
]
