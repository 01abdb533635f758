"""Convolutions, and pooling."""

from __future__ import annotations

from surface.rows import Row, each, function

AXES = {1: "7", 2: "6 5", 3: "4 5 4"}
TAPS = {1: "3", 2: "3 2", 3: "2 3 2"}
WAYS = {
    "plain": {}, "stride": {"stride": 2}, "padding": {"padding": 1}, "dilation": {"dilation": 2,
    "padding": 2}, "same": {"padding": "same"}, "valid": {"padding": "valid"},
    "all": {"stride": 2, "padding": 1, "dilation": 1},
}  # fmt: skip
BACK = {
    "plain": {}, "stride": {"stride": 2}, "padding": {"padding": 1},
    "output_padding": {"stride": 2, "output_padding": 1}, "dilation": {"dilation": 2},
}  # fmt: skip

#: What random calls draw: the sizes of an element and of taps, and the greatest.
DRAWN = ((1, "l", "k", 16), (2, "h w", "k l", 7), (3, "d h w", "k l e", 5))

#: Where a tap lies on padding, or between elements, an infinite weight gives NaN or nothing.
PADDED = "what an infinite weight makes of padding depends on the way that torch takes"
#: With no channels coming in, torch has none going out, either.
EMPTY = "of no channels torch makes no channels"
ALIKE = {"special": (0,), "zero": "b m", "why": f"{PADDED}; {EMPTY}"}
PLAIN = {"zero": "b m", "why": EMPTY}
BACK_ALIKE = {"special": (0,), "why": PADDED}


def _conv(name, n, options):
    return function(f"F.{name}{n}d", **options)


def _pool(name, n, *args, **options):
    return function(f"F.{name}{n}d", *args, **options)


def _rows(name, ways, weight):
    for n, size in AXES.items():
        for way, options in ways.items():
            if n == 3 and way in ("valid", "all", "dilation"):
                continue
            limits = BACK_ALIKE if name != "conv" else PLAIN if way == "plain" else ALIKE
            yield Row(f"{name}{n}d_{way}", _conv(name, n, options),
                      (f"b c {size}", f"{weight} {TAPS[n]}"), tol=8, **limits)  # fmt: skip


ROWS = [
    *_rows("conv", WAYS, "m c"),
    *_rows("conv_transpose", BACK, "c m"),
    *(Row(f"conv{n}d_bias", _conv("conv", n, {}), (f"b c {AXES[n]}", f"m c {TAPS[n]}", "m"),
          tol=8, **PLAIN)
      for n in AXES),
    *(Row(f"conv_transpose{n}d_bias", _conv("conv_transpose", n, {}),
          (f"b c {AXES[n]}", f"c m {TAPS[n]}", "m"), tol=8, **BACK_ALIKE) for n in AXES),
    *(Row(f"conv{n}d_groups", _conv("conv", n, {"groups": 2}),
          (f"b 4 {AXES[n]}", f"6 2 {TAPS[n]}"), tol=8) for n in AXES),
    *(Row(f"conv{n}d_by_channel", _conv("conv", n, {"groups": 3}),
          (f"b 3 {AXES[n]}", f"3 1 {TAPS[n]}", "3"), tol=8) for n in AXES),
    *(Row(f"conv_transpose{n}d_groups", _conv("conv_transpose", n, {"groups": 2}),
          (f"b 4 {AXES[n]}", f"4 3 {TAPS[n]}"), tol=8, **BACK_ALIKE) for n in AXES),
    *(Row(f"conv{n}d_unbatched", _conv("conv", n, {}), (f"c {AXES[n]}", f"m c {TAPS[n]}"), tol=8,
          zero="m", why=EMPTY)
      for n in AXES),
    Row("conv2d_pairs", _conv("conv", 2, {"stride": (2, 1), "padding": (0, 1),
        "dilation": (1, 2)}), ("b c 6 5", "m c 3 2"), tol=8, **ALIKE),
    *(Row(f"max_pool{n}d", _pool("max_pool", n, 2), (f"b c {AXES[n]}",))
      for n in (1, 2)),
    *(Row(f"max_pool{n}d_overlapping", _pool("max_pool", n, 3, 1, 1), (f"b c {AXES[n]}",))
      for n in (1, 2)),
    *(Row(f"max_pool{n}d_dilation", _pool("max_pool", n, 2, 1, dilation=2), (f"b c {AXES[n]}",))
      for n in (1, 2)),
    *(Row(f"max_pool{n}d_unbatched", _pool("max_pool", n, 2), (f"c {AXES[n]}",)) for n in (1, 2)),
    Row("max_pool2d_pairs", _pool("max_pool", 2, (3, 2), (2, 1), (1, 0)), ("b c 6 5",)),
    *(Row(f"avg_pool{n}d", _pool("avg_pool", n, 2), (f"b c {AXES[n]}",)) for n in (1, 2)),
    *(Row(f"avg_pool{n}d_padding", _pool("avg_pool", n, 3, 2, 1), (f"b c {AXES[n]}",), tol=2)
      for n in (1, 2)),
    *(Row(f"avg_pool{n}d_inside", _pool("avg_pool", n, 3, 1, 1, count_include_pad=False),
          (f"b c {AXES[n]}",), tol=2) for n in (1, 2)),
    Row("avg_pool2d_pairs", _pool("avg_pool", 2, (3, 2), (2, 1), (1, 0)), ("b c 6 5",), tol=2),
    Row("interpolate_scale", "F.interpolate(x, scale_factor=2)",
        ("b c h w",)),
    Row("interpolate_scales", "F.interpolate(x, scale_factor=(2, 3))",
        ("b c h w",)),
    Row("interpolate_size", "F.interpolate(x, size=(6, 10))", ("b c 3 5",)),
    *(Row(f"F.conv{n}d of words", f"F.conv{n}d(x, y, None, {{t}}, {{p}}, {{q}})",
          (f"b c {size}", f"m c {taps}"), zero=False, most=most, grid=False)
      for n, size, taps, most in DRAWN),
    *(Row(f"F.conv{n}d with a bias", f"F.conv{n}d(x, y, z)", (f"b c {size}", f"m c {taps}", "m"),
          zero=False, most=most, grid=False) for n, size, taps, most in DRAWN),
    *each("F.conv1d(x, y, z, padding='same')", "b c l", "m c k", "m", zero=False, most=16,
          grid=False),
    *each("F.conv2d(x, y, None, 1, {p})", "b c h w", "m c k l", zero=False, most=7, grid=False),
    *(Row(f"F.conv_transpose{n}d of words",
          f"F.conv_transpose{n}d(x, y, None, {{t}}, {{p}}, 0, 1, {{q}})",
          (f"b c {size}", f"c m {taps}"), zero=False, most=min(most, 8), grid=False)
      for n, size, taps, most in DRAWN),
    *(Row(f"F.conv_transpose{n}d with a bias", f"F.conv_transpose{n}d(x, y, z, {how})",
          (f"b c {size}", f"c m {taps}", "m"), zero=False, most=min(most, 8), grid=False)
      for n, size, taps, most in DRAWN for how in ("2, 0, 1" if n > 1 else "",)),
    *each("F.conv_transpose3d(x, y, None, {t}, {p})", "b c d h w", "c m k l e", zero=False, most=4,
          grid=False),
    *each("F.max_pool1d(x, {n}, {t}); F.max_pool1d(x, {n}, padding={n} // 2); F.max_pool1d(x, 1); "
          "F.max_pool1d(x, {n}, {t}, 0, {q}); F.avg_pool1d(x, {n}, {t}); "
          "F.avg_pool1d(x, {n}, {t}, {n} // 2, count_include_pad={k})", "b c l", values="ties",
          most=33, grid=False),
    *each("F.max_pool2d(x, {n}, {t}); F.max_pool2d(x, ({n}, 1)); F.max_pool2d(x, 1); "
          "F.max_pool2d(x, {n}, {t}, {n} // 2); F.avg_pool2d(x, {n}); "
          "F.avg_pool2d(x, {n}, {t}, {n} // 2, count_include_pad={k})", "b c h w", values="ties",
          most=9, grid=False),
    *each("F.interpolate(x, scale_factor=2); F.interpolate(x, scale_factor={n})", "b c h w",
          values="any", most=9, grid=False),
    *each("F.conv1d(x, y, stride=2, padding=1); F.conv1d(x, y, padding=1)", "b c 8", "m c 3",
          tol=8, **ALIKE),
    *each("F.conv2d(x, y, None, (2, 1), (2, 1), (1, 2), 2)", "b 4 9 8", "4 2 3 2", tol=8,
          special=(0,), why=PADDED),
    *each("F.conv2d(x, y, stride=2, padding=1)", "b c 6 5", "m c 3 2", tol=8, **ALIKE),
    *each("F.max_pool2d(x, (3, 2), stride=(2, 1)); F.interpolate(x, (6, 3))", "b c 6 5"),
    *each("F.conv1d(x, y); F.conv1d(x, y, padding=1)", "b c l", "m c k", zero=False, most=16,
          label=" of any size", grid=False),
    *each("F.conv2d(x, y); F.conv2d(x, y, stride=2, padding=1)", "b c h w", "m c k l", zero=False,
          label=" of any size", most=7, grid=False),
    *each("F.max_pool1d(x, 2); F.max_pool1d(x, 3, 2, 1); F.avg_pool1d(x, 2)", "b c l",
          values="ties", most=33, grid=False),
    *each("F.max_pool2d(x, 2); F.max_pool2d(x, 3, 2, 1); F.avg_pool2d(x, 2)", "b c h w",
          values="ties", most=9, grid=False),
]  # fmt: skip
