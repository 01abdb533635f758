"""Linear algebra: functions of factors that do not depend on the signs of their columns."""

from surface.rows import In, Row

FULL = "matrices that are not finite raise errors"


def row(name, call, shapes, **options):
    options = {"special": False, "half": False, "why": FULL, "tol": 50.0, "values": "apart",
               **options}
    return Row(name, call, shapes, **options)


def definite(k, x):
    """A symmetric positive definite matrix."""
    n = x.shape[-1]
    return x @ x.mT + 2 * k.eye(n, dtype=x.dtype)


def regular(k, x):
    """A matrix that is far from singular."""
    return x + 6 * k.eye(x.shape[-1], dtype=x.dtype)


def symmetric(k, x):
    """A symmetric matrix with eigenvalues apart from each other."""
    return x + x.mT + 8 * k.diag(k.arange(x.shape[-1], dtype=x.dtype))


S = ("n n",)
B = ("b n n",)

ROWS = [
    row("cholesky", lambda k, x: k.linalg.cholesky(definite(k, x)), B),
    row("cholesky_upper", lambda k, x: k.linalg.cholesky(definite(k, x), upper=True), S),
    row("cholesky_method", lambda k, x: definite(k, x).cholesky(), S),
    row("cholesky_large", lambda k, x: k.linalg.cholesky(definite(k, x)), ("20 20",), zero=False),
    row("cholesky_solve",
        lambda k, x, y: y.cholesky_solve(k.linalg.cholesky(definite(k, x))), ("n n", "n m")),
    row("cholesky_inverse",
        lambda k, x: k.linalg.cholesky(definite(k, x)).cholesky_inverse(), S),
    row("solve", lambda k, x, y: k.linalg.solve(regular(k, x), y), ("b n n", "b n m")),
    row("solve_broadcast", lambda k, x, y: k.linalg.solve(regular(k, x), y), ("n n", "b n m")),
    row("solve_vector", lambda k, x, y: k.linalg.solve(regular(k, x), y), ("n n", "n")),
    row("solve_vectors", lambda k, x, y: k.linalg.solve(regular(k, x), y), ("b n n", "b n"),
        sizes={"b": 2, "n": 3}, zero="m"),
    row("solve_right", lambda k, x, y: k.linalg.solve(regular(k, x), y, left=False),
        ("n n", "m n")),
    row("solve_large", lambda k, x, y: k.linalg.solve(regular(k, x), y), ("20 20", "20 3"),
        zero=False, tol=500.0),
    row("solve_triangular",
        lambda k, x, y: k.linalg.solve_triangular(regular(k, x), y, upper=False),
        ("b n n", "b n m")),
    row("solve_triangular_upper",
        lambda k, x, y: k.linalg.solve_triangular(regular(k, x), y, upper=True), ("n n", "n m")),
    row("solve_triangular_unit",
        "T.linalg.solve_triangular(x / 4, y, upper=True, unitriangular=True)",
        ("n n", "n m")),
    row("solve_triangular_unit_lower",
        lambda k, x, y: k.linalg.solve_triangular(x / 4, y, upper=False, unitriangular=True),
        ("n n", "n m")),
    row("solve_triangular_right",
        lambda k, x, y: k.linalg.solve_triangular(regular(k, x), y, upper=False, left=False),
        ("n n", "m n")),
    row("inv", lambda k, x: k.linalg.inv(regular(k, x)), B),
    row("inv_ex", lambda k, x: tuple(k.linalg.inv_ex(regular(k, x))), B),
    row("cholesky_ex", lambda k, x: tuple(k.linalg.cholesky_ex(definite(k, x))), B),
    row("cholesky_ex_upper",
        lambda k, x: tuple(k.linalg.cholesky_ex(definite(k, x), upper=True, check_errors=True)), S),
    row("solve_ex", lambda k, x, y: tuple(k.linalg.solve_ex(regular(k, x), y)),
        ("b n n", "b n m")),
    row("solve_ex_right", lambda k, x, y: tuple(k.linalg.solve_ex(
        regular(k, x), y, left=False, check_errors=True)), ("n n", "m n")),
    row("matmul", "T.linalg.matmul(x, y)", ("b n m", "m n")),
    row("inverse", lambda k, x: regular(k, x).inverse(), S),
    row("det_two", "x.det()", ("b 2 2",)),
    row("det_three", "T.linalg.det(x)", ("3 3",), zero=False),
    row("det_five", lambda k, x: k.linalg.det(regular(k, x)), ("b 5 5",), tol=500.0),
    row("slogdet", lambda k, x: tuple(k.linalg.slogdet(regular(k, x))), B),
    row("slogdet_method", lambda k, x: tuple((-regular(k, x)).slogdet()), ("3 3",), zero=False),
    row("logdet", lambda k, x: definite(k, x).logdet(), B),
    row("pinverse", "x.pinverse()", ("5 3",), zero=False, tol=500.0),
    row("pinv_wide", "T.linalg.pinv(x)", ("b 2 4",), tol=500.0),
    row("pinv_rcond", "(T.linalg.pinv(x, 0.5), T.linalg.pinv(x, rcond=0.4))", ("5 3",),
        grad=False, zero=False, tol=500.0),
    row("pinv_limits", "(T.linalg.pinv(x, rtol=y), T.linalg.pinv(x, atol=y, rtol=y / 4), "
        "T.linalg.pinv(x[0], atol=y))", ("3 4 2", In("3", 0.1, 0.9)), grad=False, zero=False,
        tol=500.0),
    row("pinv_lower", "T.linalg.pinv(x, hermitian=True)", ("3 3",), grad=False, zero=False,
        tol=5000.0),
    row("qr", "[p.abs() for p in T.linalg.qr(x)]", ("b 4 3",), tol=500.0),
    row("qr_square", "[p.abs() for p in x.qr()]", ("3 3",), zero=False, tol=500.0),
    row("qr_wide", "[p.abs() for p in T.linalg.qr(x)]", ("3 5",), zero=False,
        tol=500.0),
    row("qr_complete", "T.linalg.qr(x, mode='complete')[1].abs()", ("4 2",), grad=False,
        zero=False, tol=500.0),
    row("eigvalsh", lambda k, x: k.linalg.eigvalsh(symmetric(k, x)), B, tol=200.0),
    row("eigh", lambda k, x: [p.square() for p in k.linalg.eigh(symmetric(k, x))], ("b 4 4",),
        tol=500.0),
    row("eigh_upper", lambda k, x: k.linalg.eigh(symmetric(k, x), UPLO="U")[0], ("4 4",),
        zero=False, tol=200.0),
    row("svdvals", "T.linalg.svdvals(x)", ("b 4 3",), tol=500.0),
    row("svd", "[p.square() for p in T.linalg.svd(x, full_matrices=False)]",
        ("4 3",), zero=False, tol=2000.0),
    row("svd_wide", "[p.square() for p in T.linalg.svd(x, full_matrices=False)]",
        ("2 4",), zero=False, tol=2000.0),
    row("svd_method", "[p.square() for p in x.svd()]", ("3 3",), zero=False,
        tol=2000.0),
    row("svd_full", "T.linalg.svd(x)[1]", ("4 2",), zero=False, tol=500.0),
    row("matrix_power", "x.matrix_power(3)", B),
    row("matrix_power_zero", "T.linalg.matrix_power(x, 0) + x", S),
    row("matrix_power_negative", lambda k, x: k.linalg.matrix_power(regular(k, x), -2), S),
    row("matrix_exp", "x.matrix_exp()", B, tol=500.0),
    row("matrix_exp_large", "T.linalg.matrix_exp(4 * x)", ("4 4",), zero=False,
        tol=5000.0),
    row("lu", "tuple(T.linalg.lu(x))", ("b 4 4",), tol=500.0),
    row("lu_method", "x.lu()[2]", ("3 3",), zero=False, tol=500.0,
        torch="T.linalg.lu(x)[2]"),
    row("lu_tall", "tuple(T.linalg.lu(x))", ("4 2",), grad=False, zero=False),
    row("lu_factor", "tuple(T.linalg.lu_factor(x))", ("b 4 4",), tol=500.0),
    row("lu_solve", "T.linalg.lu_solve(*T.linalg.lu_factor(x), y)",
        ("b 4 4", "b 4 2"), tol=5000.0),
    row("lstsq", "T.linalg.lstsq(x, y)[0]", ("6 3", "6 2"), zero=False, tol=5000.0),
    row("matrix_rank", "T.linalg.matrix_rank(x @ x.mT)", ("5 2",), grad=False,
        zero=False),
    row("lstsq_parts", "[*T.linalg.lstsq(x, y, driver='gelsd')]", ("6 3", "6 2"), zero=False,
        tol=5000.0),
    row("lstsq_vector", "T.linalg.lstsq(x, y).solution", ("6 3", "6"), zero=False, tol=5000.0),
    row("lstsq_driver",
        "[T.linalg.lstsq(x, y, driver=d).solution for d in ('gels', "
        "'gelsd')]", ("6 3", "6 2"), grad=False,
        zero=False, tol=5000.0),
    row("matrix_rank_lower",
        "(T.linalg.matrix_rank(x.tril(), hermitian=True), T.linalg.matrix_rank(x.triu(1), "
        "hermitian=True))",
        ("4 4",), grad=False, zero=False),
    row("matrix_rank_tol",
        "(T.linalg.matrix_rank(x, 1.0), T.linalg.matrix_rank(x, tol=0.1))", ("5 4",), grad=False,
        zero=False),
    row("matrix_rank_limits",
        "(T.linalg.matrix_rank(x, rtol=y), T.linalg.matrix_rank(x, atol=y), "
        "T.linalg.matrix_rank(x[0], atol=y, rtol=y / 4), T.linalg.matrix_rank(x, atol=y - y))",
        ("2 4 3", In("2", 0.1, 0.9)), grad=False, zero=False),
    row("lu_pivot", "(*T.linalg.lu(x, pivot=True), *T.linalg.lu_factor(x, pivot=True))", ("4 4",),
        grad=False, zero=False, tol=500.0),
    row("cond", lambda k, x: k.linalg.cond(regular(k, x)), ("b 3 3",), tol=500.0),
    row("cond_one", lambda k, x: k.linalg.cond(regular(k, x), 1), ("3 3",), zero=False, tol=500.0,
        torch=lambda t, x: t.linalg.matrix_norm(regular(t, x), 1)
        * t.linalg.matrix_norm(t.linalg.inv(regular(t, x)), 1)),
    row("cross", "T.linalg.cross(x, y)", ("b 3", "b 3")),
    row("vecdot", "T.linalg.vecdot(x, y)", ("b n", "b n")),
    row("vander", "T.linalg.vander(x, N=4)", ("b n",), zero=False),
    row("vander_of_a_number", "T.linalg.vander(x.sum(), N=4)", ("n",), zero=False),
    row("diagonal", "T.linalg.diagonal(x, offset=1)", ("b n m",)),
    row("multi_dot", "T.linalg.multi_dot([x, y, z])", ("a b", "b c", "c d")),
]  # fmt: skip
