"""Losses, with what they can be told."""

from surface.rows import In, Index, Pos, Row

UNIT = In("a b", 0.05, 0.95)
PROBABILITIES = In("a c d", 0.05, 0.95)


def row(name, shapes, label="", sign=False, **options):
    """A loss in the three reductions; `sign` makes -1 and 1 of the last operand."""
    told = {k: options.pop(k) for k in list(options) if k not in FIELDS}

    *first, last = "xyz"[: len(shapes) - ("weight" in told)]
    given = [*first, f"{last} * 2 - 1" if sign else last, *(f"{k}={v}" for k, v in told.items())]
    call = f"tuple(F.{name}({', '.join(given)}, reduction=r) for r in ('none', 'sum', 'mean'))"
    return Row(name + label, call, shapes, **options)


FIELDS = {"tol", "tol64", "values", "special", "why", "half", "second", "sizes", "ints", "zero",
          "grad"}  # fmt: skip
SIGNS = Index("a b", "2")
CLASSES = ("a c", Index("a", "c"))
#: What is given for infinities is checked in tests/nn/test_limits_of_losses.py.
UNLIMITED = {"special": False, "why": "torch's of infinities is NaN where there is a limit"}
NO_CLASSES = "of no classes torch's mean is NaN"
UNSET = "torch's mean over no samples is memory that nothing was written to"
REFUSED = {"special": False, "why": "torch refuses numbers that are no probabilities"}


def weighted(name, shapes, label, **options):
    """A loss of scores, class numbers and weights of classes."""

    return row(name, shapes, label, weight="z.detach()", **options, tol=4, zero=False, grad=False,
               special=False, why="weights of classes have no gradient")


ROWS = [
    row("mse_loss", ("a b", "a b")),
    row("l1_loss", ("a b", "a b")),
    *(row(name, ("a b", "a b", Pos("a b")), "_weighted", weight="z")
      for name in ("mse_loss", "l1_loss", "huber_loss")),
    row("smooth_l1_loss", ("a b", "a b"), beta=0.5),
    row("huber_loss", ("a b", "a b"), delta=0.75),
    row("cross_entropy", CLASSES, tol=4),
    row("cross_entropy", ("a c d e", Index("a d e", "c")), "_images", tol=4),
    row("cross_entropy", CLASSES, "_ignored", ignore_index=1, tol=4),
    row("cross_entropy", CLASSES, "_smooth", label_smoothing=0.2, tol=4),
    row("cross_entropy", ("a c d", PROBABILITIES), "_probabilities", tol=4, zero="a d",
        why=NO_CLASSES),
    row("cross_entropy", ("a c", In("a c", 0, 1)), "_smooth_probabilities", label_smoothing=0.1,
        tol=4, zero="a", why=NO_CLASSES),
    row("cross_entropy", ("c", Index("", "c")), "_one", tol=4),
    weighted("cross_entropy", (*CLASSES, Pos("c")), "_weighted"),
    weighted("cross_entropy", (*CLASSES, Pos("c")), "_all", label_smoothing=0.3, ignore_index=0),
    weighted("cross_entropy", ("a c", In("a c", 0, 1), Pos("c")), "_weighted_probabilities",
             label_smoothing=0.3),
    row("nll_loss", CLASSES),
    row("nll_loss", ("a c d e", Index("a d e", "c")), "_images"),
    row("nll_loss", CLASSES, "_ignored", ignore_index=0),
    weighted("nll_loss", ("a c d", Index("a d", "c"), Pos("c")), "_weighted"),
    row("kl_div", ("a b", In("a b", 0, 1)), **UNLIMITED),
    row("kl_div", ("a b", "a b"), "_log_target", log_target=True, **UNLIMITED),
    row("binary_cross_entropy", (UNIT, UNIT), **REFUSED),
    row("binary_cross_entropy_with_logits", ("a b", UNIT), **UNLIMITED),
    Row("binary_cross_entropy_with_logits_weights",
        "x.binary_cross_entropy_with_logits(y, w, pos_weight=p)",
        ("a b", UNIT, Pos("a 1", grad=False), Pos("b", grad=False)), special=False,
        why="infinities times weights of 0 are NaN in torch",
        torch="T.nn.functional.binary_cross_entropy_with_logits(x, y, w, pos_weight=p)"),
    row("soft_margin_loss", ("a b", SIGNS), sign=True, special=False,
        why="torch's exponential overflows"),
    row("hinge_embedding_loss", ("a b", SIGNS), sign=True, margin=0.5),
    row("margin_ranking_loss", ("a b", "a b", SIGNS), sign=True, margin=0.25),
    row("margin_ranking_loss", ("a b", "1 b", Index("a 1", "2")), "_broadcast", sign=True),
    row("cosine_embedding_loss", ("a b", "a b", Index("a", "2")), sign=True, margin=0.1, tol=4,
        values="apart"),
    row("cosine_embedding_loss", ("b", "b", Index("", "2")), "_one", sign=True, tol=4,
        values="apart"),
    row("cosine_embedding_loss", (Index("a b", "9", -9), Index("a b", "9", -9), Index("a", "2")),
        "_integers", sign=True, margin=0.1, tol=4, grad=False),
    row("triplet_margin_loss", ("a b", "a b", "a b"), tol=4),
    row("triplet_margin_loss", ("a b", "a b", "a b"), "_swap", swap=True, p=1.0, margin=2.0,
        eps=0.01, tol=4),
    row("triplet_margin_with_distance_loss", ("a b", "a b", "a b"), values="apart", tol=4,
        distance_function="lambda x, y: (x - y).abs().amax(-1)"),
    row("multi_margin_loss", CLASSES, zero="c", why=UNSET),
    row("multi_margin_loss", CLASSES, "_squares", p=2, margin=0.5, zero="c", why=UNSET),
    row("multi_margin_loss", ("c", Index("", "c")), "_one"),
    weighted("multi_margin_loss", (*CLASSES, Pos("c")), "_weighted", p=2),
    # torch adds up to c * c terms of a row one after the other, also in float64.
    row("multilabel_margin_loss", ("a c", Index("a c", "c", -1)), tol=4, tol64=8, zero="c",
        why=UNSET),
    row("multilabel_margin_loss", ("c", Index("c", "c", -1)), "_one", tol=4, tol64=8),
    row("multilabel_soft_margin_loss", ("a b", In("a b", 0, 1)), **UNLIMITED),
    row("poisson_nll_loss", ("a b", Pos("a b"))),
    row("poisson_nll_loss", (Pos("a b"), Pos("a b")), "_counts", log_input=False, full=True, tol=4),
    row("gaussian_nll_loss", ("a b", "a b", Pos("a b")), special=False,
        why="torch refuses variances below 0"),
    row("gaussian_nll_loss", ("a b", "a b", Pos("a 1")), "_one_each", full=True, special=False,
        why="torch refuses variances below 0"),
    row("gaussian_nll_loss", ("a b", "a b", Pos("a")), "_without_axis", special=False,
        why="torch refuses variances below 0", sizes={"a": 3, "b": 4}),
    Row("ctc_loss",
        "tuple((x.log_softmax(2).ctc_loss(y + 1, (6, 5), (3, 1), reduction=r) for r in ('none', "
        "'sum', 'mean')))",
        ("6 2 5", Index("2 3", "4")), tol=8, special=False, half=False,
        torch="tuple((T.nn.functional.ctc_loss(x.log_softmax(2), y + 1, (6, 5), (3, 1), "
              "reduction=r) for r in ('none', 'sum', 'mean')))",
        why="torch takes no half types, and what is never seen is minus infinity there"),
    Row("ctc_loss_joined",
        "x.log_softmax(2).ctc_loss(y, T.tensor([6, 6]), T.tensor([3, 0]), blank=4)",
        ("6 2 5", Index("3", "4")), tol=8, special=False, half=False,
        torch="T.nn.functional.ctc_loss(x.log_softmax(2), y, T.tensor([6, 6]), T.tensor([3, "
              "0]), blank=4)",
        why="torch takes no half types, and what is never seen is minus infinity there"),
]
