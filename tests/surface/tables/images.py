"""Padding by the tensor itself, pixels and channels, windows as columns, unpooling."""

from surface.rows import Index, Row

PADS = "an axis has to have elements to be padded with"
FIT = "windows do not fit in so few elements"
EXACT = "the places are those of given sizes"


def padded(name, shape, pad, mode, **options):
    return Row(f"pad_{name}", f"T.nn.functional.pad(x, {pad}, {mode!r})", (shape,),
               why=PADS, **{"zero": "a", **options})  # fmt: skip


def squeezed(name, call, shapes, **options):
    return Row(name, call, shapes, **{"zero": "a", "why": FIT, **options})


ROWS = [
    padded("reflect_1d", "a b 5", (3, 4), "reflect"),
    padded("reflect_2d", "a b 4 5", (2, 0, 1, 3), "reflect"),
    padded("reflect_single", "3 5", (1, 1), "reflect", zero=False),
    padded("reflect_cut", "a b 5", (-1, 3), "reflect"),
    padded("replicate_1d", "a b 3", (5, 4), "replicate"),
    padded("replicate_2d", "a b 4 1", (2, 7, 0, 1), "replicate"),
    padded("replicate_3d", "a b 2 3 4", (1, 0, 0, 2, 3, 1), "replicate"),
    padded("circular_1d", "a b 4", (4, 3), "circular", ints=True),
    padded("circular_2d", "a b 4 5", (5, 0, 1, 3), "circular"),
    padded("circular_cut", "a b 5", (-2, 3), "circular"),
    squeezed("pixel_shuffle", "T.nn.functional.pixel_shuffle(x, 2)", ("a 8 b c",), ints=True),
    squeezed("pixel_shuffle_lead", "T.nn.functional.pixel_shuffle(x, 3)", ("2 a 9 2 1",)),
    squeezed("pixel_unshuffle", "T.nn.functional.pixel_unshuffle(x, 2)", ("2 3 4 6",), ints=True,
             zero=False, why="torch leaves the shape of a tensor without elements"),
    squeezed("channel_shuffle", "T.nn.functional.channel_shuffle(x, 3)", ("a 6 b c",)),
    squeezed("channel_shuffle_line", "T.nn.functional.channel_shuffle(x, 2)", ("a 4 b",)),
    squeezed("local_response_norm", "T.nn.functional.local_response_norm(x, 3)", ("a 5 b",)),
    squeezed("local_response_norm_even",
             "T.nn.functional.local_response_norm(x, 2, 0.5, 0.3, 2.0)", ("a 4 3 2",)),
    squeezed("unfold", "T.nn.functional.unfold(x, 2)", ("a b 4 5",)),
    squeezed("unfold_all", "T.nn.functional.unfold(x, (2, 3), 2, (1, 2), (2, 1))", ("a b 4 5",)),
    squeezed("unfold_single", "T.nn.functional.unfold(x, 3, padding=1)", ("2 3 4",), zero=False),
    squeezed("fold", "T.nn.functional.fold(x, (4, 5), 2)", ("a 8 12",)),
    squeezed("fold_all", "T.nn.functional.fold(x, (4, 5), (2, 3), 2, (1, 2), (2, 1))",
             ("a 12 10",)),
    squeezed("fold_single", "T.nn.functional.fold(x, 4, 2, stride=2)", ("8 4",), zero=False),
    Row("max_unpool1d", "T.nn.functional.max_unpool1d(x, i, 2)",
        ("2 3 4", Index("2 3 4", "8", distinct=True)), zero=False, why=EXACT),
    Row("max_unpool2d",
        "T.nn.functional.max_unpool2d(x, i.reshape(2, 3, 2, 3), 2, output_size=(5, 7))",
        ("2 3 2 3", Index("2 3 6", "35", distinct=True)), zero=False, why=EXACT),
    Row("max_unpool3d", "T.nn.functional.max_unpool3d(x, i.reshape(1, 2, 1, 2, 2), 2, 3)",
        ("1 2 1 2 2", Index("1 2 4", "50", distinct=True)), zero=False, why=EXACT),
]  # fmt: skip
