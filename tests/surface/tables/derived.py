"""Methods and functions that are made of others."""

from surface.rows import In, Index, Pos, Row, functions

INF = float("inf")
EDGES = (-1.5, -0.5, 0.0, 1.25)

PAIRS = {
    "second": False, "special": False, "half": False, "zero": False,
    "why": "torch has no second gradients and no half types, compares infinities otherwise, and "
           "ends the process where there is nothing to compare",
}  # fmt: skip

ROWS = [
    Row("pdist", lambda k, x: functions(k).pdist(x), ("a b",), tol=8, **PAIRS),
    Row("pdist_1", lambda k, x: functions(k).pdist(x, 1), ("a b",), tol=8, **PAIRS),
    Row("pdist_inf", lambda k, x: functions(k).pdist(x, INF), ("a b",), tol=8, **PAIRS),
    Row("histogram_range", lambda k, x: tuple(x.histogram(4, range=(-1.5, 1.0))), ("a b",),
        grad=False, special=False, half=False, why="torch has it without NaN and of wide floats"),
    Row("histogram_least", lambda k, x: tuple(x.histogram(3)), ("a b",), grad=False, special=False,
        half=False, why="torch has it without NaN and of wide floats"),
    Row("histogram_weight", lambda k, x, w: tuple(x.histogram(3, range=(-2, 2), weight=w)),
        ("a b", Pos("a b")), grad=False, special=False, half=False, tol=4,
        why="torch has it without NaN and of wide floats"),
    Row("histogram_ends", lambda k, x: tuple(
            x.histogram(k.tensor(EDGES, dtype=x.dtype), density=True)),
        ("a b",), grad=False, special=False, zero=False, half=False, tol=4, sizes={"a": 5},
        why="torch has it without NaN and of wide floats; of nothing it has no density"),
    Row("sum_to_size", lambda k, x: x.sum_to_size(1, x.shape[2]), ("a b c",), ints=True),
    Row("sum_to_size_same", lambda k, x: x.sum_to_size(x.shape), ("a b",), ints=True),
    Row("narrow_copy", lambda k, x: x.narrow_copy(1, 1, 2), ("a b",), ints=True, zero="a",
        why="it needs 3 elements", sizes={"b": 4}),
    Row("nonzero_static", lambda k, x: x.nonzero_static(size=4), ("a b",), grad=False, ints=True),
    Row("nonzero_static_fill", lambda k, x: (x > 0).nonzero_static(size=3, fill_value=7), ("a b",),
        grad=False),
    Row("angle", lambda k, x: x.angle(), ("a b",), ints=True),
    Row("adjoint", lambda k, x: (x.adjoint(), x.mH), ("a b c",), ints=True),
    Row("transposed_matrix", lambda k, x: x.H, ("a b",), ints=True),
    Row("gradient", lambda k, x: k.gradient(x), ("a b",), ints=True, zero=False,
        why="it needs 2 values"),
    Row("gradient_spacing", lambda k, x: k.gradient(x, spacing=(0.5, 2.0), dim=(0, -1),
                                                    edge_order=2),
        ("a b c",), zero=False, why="it needs 3 values", tol=4, sizes={"a": 3, "c": 5}),
    Row("gradient_of_2", lambda k, x: k.gradient(x, spacing=2, dim=1), ("a 2",), zero="a",
        why="it needs 2 values"),
    Row("gradient_places", lambda k, x, y: k.gradient(
            x, spacing=(y.detach().abs().add(0.25).cumsum(0),), dim=1),
        ("a b", In("b", grad=False)), zero="a", special=(0,), half=False, tol=8,
        why="it needs 2 values, at finite places; torch divides in half types", sizes={"b": 5}),
    Row("gradient_places_2", lambda k, x, y: k.gradient(
            x, spacing=[y.detach().abs().add(0.25).cumsum(0)], dim=0, edge_order=2),
        ("b a", In("b", grad=False)), zero="a", special=(0,), half=False, tol=16,
        why="it needs 3 values, at finite places; torch divides in half types", sizes={"b": 5}),
    Row("unravel_index", lambda k, i: k.unravel_index(i, (3, 2, 4)), (Index("a b", "24"),),
        grad=False),
    Row("unravel_index_number", lambda k, i: k.unravel_index(i, 5), (Index("a", "5"),), grad=False),
    # The gradients of torch's own fail: it writes in place.
    Row("vander", lambda k, x: k.vander(x), ("a",), ints=True, tol=4,
        torch=lambda t, x: x.unsqueeze(-1) ** t.arange(x.shape[0]).flip(0)),
    Row("vander_increasing", lambda k, x: k.vander(x, 4, increasing=True), ("a",), ints=True,
        tol=4, torch=lambda t, x: x.unsqueeze(-1) ** t.arange(4)),
    Row("vander_one", lambda k, x: k.vander(x, N=1), ("a",), grad=False, ints=True),
    Row("trapz", lambda k, y, x: k.trapz(y, x), ("a b", "b"), tol=4),
    Row("affine_grid", lambda k, t: k.nn.functional.affine_grid(t, (2, 3, 4, 5), False),
        ("2 2 3",), tol=4, half=False, why="torch has no half types on CPUs"),
    Row("affine_grid_corners", lambda k, t: k.nn.functional.affine_grid(t, [1, 1, 1, 4],
                                                                        align_corners=True),
        ("1 2 3",), tol=4, half=False, why="torch has no half types on CPUs"),
    Row("affine_grid_volume", lambda k, t: k.nn.functional.affine_grid(t, (2, 1, 2, 3, 2), False),
        ("2 3 4",), tol=4, half=False, why="torch has no half types on CPUs"),
    Row("instance_norm", lambda k, x, w, b: functions(k).instance_norm(x, weight=w, bias=b),
        ("a b 7", "b", "b"), tol=16, zero="a", special=(0,),
        why="torch refuses single and no channels, and makes NaN of infinite scales"),
    Row("instance_norm_running", lambda k, x, m, v: functions(k).instance_norm(
            x, m.detach() * 1, v.detach() * 1, use_input_stats=False),
        ("a b 3 4", In("b", grad=False), In("b", 0.25, 4.0, grad=False)), tol=8, zero="a",
        special=(0,), why="torch refuses single and no channels; statistics are numbers"),
    Row("lu_solve_method", lambda k, x, y: y.lu_solve(*k.linalg.lu_factor(
            x + 6 * k.eye(4, dtype=x.dtype))),
        ("a 4 4", "a 4 b"), tol=16, half=False, special=False,
        why="there are no factors of half types, or of what is not finite"),
    Row("lu_unpack", lambda k, x: tuple(k.lu_unpack(*k.linalg.lu_factor(x))), ("a 4 4",), tol=32,
        half=False, special=False, second=False,
        why="there are no factors of half types, or of what is not finite; roundings grow"),
    Row("lstm_cell", lambda k, x, h, c, u, w, b: k.lstm_cell(x, (h, c), u, w, b, b),
        ("a b", "a 3", "a 3", "12 b", "12 3", "12"), tol=8, zero="a", special=False,
        why="torch refuses no features, and gates of infinities are NaN in other places"),
    Row("gru_cell", lambda k, x, h, u, w, b: k.gru_cell(x, h, u, w, b, b),
        ("a b", "a 3", "9 b", "9 3", "9"), tol=8, zero="a", special=False,
        why="torch refuses no features, and gates of infinities are NaN in other places"),
    Row("rnn_cells", lambda k, x, h, u, w, b: (k.rnn_tanh_cell(x, h, u, w, b, b),
                                               k.rnn_relu_cell(x, h, u, w, b, b)),
        ("a b", "a 3", "3 b", "3 3", "3"), tol=8, zero="a",
        why="torch refuses no features"),
]
