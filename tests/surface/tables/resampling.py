"""Pooling, interpolation and sampling."""

from surface.rows import In, Row, function

EDGES = "windows do not fit in so few elements"
SMALL = {"h": 7, "w": 6, "b": 2, "c": 3}
IMAGE, LINE, VOLUME = ("b c h w",), ("b c w",), ("b c 4 5 3",)


def image(name, call, why=EDGES, **options):
    return Row(name, call, IMAGE, sizes=SMALL, zero=False, why=why, **options)


def line(name, call, why=EDGES, **options):
    return Row(name, call, LINE, sizes=SMALL, zero=False, why=why, **options)


def volume(name, call, why=EDGES, **options):
    return Row(name, call, VOLUME, zero=False, why=why, **options)


ROWS = [
    image("max_pool2d_ceil", "T.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True)"),
    image("max_pool2d_indices", "T.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)",
          values="apart", special=False, why="which of equal elements it is"),
    image("max_pool2d_dilated", "T.nn.functional.max_pool2d(x, 2, 1, 0, 2, ceil_mode=True)"),
    line("max_pool1d_ceil", "T.nn.functional.max_pool1d(x, 4, 3, ceil_mode=True)"),
    line("max_pool1d_indices", "T.nn.functional.max_pool1d(x, 3, 2, return_indices=True)",
         values="apart", special=False, why="which of equal elements it is"),
    volume("max_pool3d", "T.nn.functional.max_pool3d(x, 2, ceil_mode=True)"),
    volume("max_pool3d_indices",
           "T.nn.functional.max_pool3d(x, 2, 1, 1, return_indices=True)", values="apart",
          special=False, why="which of equal elements it is"),
    image("avg_pool2d_ceil", "T.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True)"),
    image("avg_pool2d_ceil_inside",
          "T.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)"),
    image("avg_pool2d_divisor", "T.nn.functional.avg_pool2d(x, (2, 3), divisor_override=5)"),
    line("avg_pool1d_ceil", "T.nn.functional.avg_pool1d(x, 4, 3, 1, True)"),
    volume("avg_pool3d", "T.nn.functional.avg_pool3d(x, 2, 1, 1, True, False)"),
    image("lp_pool2d", "T.nn.functional.lp_pool2d(x.abs() + 0.5, 3, 2)", special=False,
          why="of the absolute value", tol=4.0),
    line("lp_pool1d", "T.nn.functional.lp_pool1d(x.abs() + 0.5, 2, 3, ceil_mode=True)",
         special=False, why="of the absolute value", tol=4.0),
    volume("lp_pool3d", "T.nn.functional.lp_pool3d(x.abs() + 0.5, 2, 2)", special=False,
           why="of the absolute value", tol=4.0),
    image("adaptive_avg_pool2d", "T.nn.functional.adaptive_avg_pool2d(x, (3, 4))"),
    image("adaptive_avg_pool2d_one", "T.nn.functional.adaptive_avg_pool2d(x, 1)"),
    image("adaptive_avg_pool2d_none", "T.nn.functional.adaptive_avg_pool2d(x, (None, 3))"),
    line("adaptive_avg_pool1d", "T.nn.functional.adaptive_avg_pool1d(x, 4)"),
    line("adaptive_avg_pool1d_more", "T.nn.functional.adaptive_avg_pool1d(x, 9)"),
    volume("adaptive_avg_pool3d", "T.nn.functional.adaptive_avg_pool3d(x, (2, 3, 2))"),
    image("adaptive_max_pool2d", "T.nn.functional.adaptive_max_pool2d(x, (3, 4))"),
    image("adaptive_max_pool2d_indices",
          "T.nn.functional.adaptive_max_pool2d(x, (3, 2), return_indices=True)", values="apart",
          special=False, why="which of equal elements it is"),
    line("adaptive_max_pool1d_indices",
         "T.nn.functional.adaptive_max_pool1d(x, 4, return_indices=True)", values="apart",
          special=False, why="which of equal elements it is"),
    volume("adaptive_max_pool3d", "T.nn.functional.adaptive_max_pool3d(x, (2, 3, 2))"),
    *(
        Row(f"fractional_max_pool{n}d_{name}",
            function(f"T.nn.functional.fractional_max_pool{n}d", **options).replace(
                "*others", "_random_samples=s.detach()"),
            (shape, In(f"b c {n}", 0.01, 0.99)), sizes=SMALL, zero=False, special=False, half=False,
            why="which of equal elements, or of NaN, is the greatest")
        for n, shape in ((2, *IMAGE), (3, *VOLUME))
        for name, options in (
            ("size", {"kernel_size": 2, "output_size": (2, 3, 1)[3 - n:]}),
            ("ratio", {"kernel_size": (1, 2, 2)[3 - n:], "output_ratio": (0.6,) * n}),
            ("indices", {"kernel_size": (2, 1, 2)[3 - n:], "output_size": (2, 3, 1)[3 - n:],
                         "return_indices": True}),
        )
    ),
    image("interpolate_nearest", "T.nn.functional.interpolate(x, size=(5, 9))"),
    image("interpolate_nearest_exact",
          "T.nn.functional.interpolate(x, size=(5, 9), mode='nearest-exact')"),
    image("interpolate_bilinear",
          "T.nn.functional.interpolate(x, size=(5, 9), mode='bilinear')", tol=8.0),
    image("interpolate_bilinear_aligned",
          "T.nn.functional.interpolate(x, size=(5, 9), mode='bilinear', align_corners=True)",
          tol=8.0),
    image("interpolate_bilinear_factor",
          "T.nn.functional.interpolate(x, scale_factor=1.7, mode='bilinear')", tol=8.0),
    image("interpolate_bilinear_recomputed",
          "T.nn.functional.interpolate(x, scale_factor=1.7, mode='bilinear', "
          "recompute_scale_factor=True)", tol=8.0),
    image("interpolate_bicubic",
          "T.nn.functional.interpolate(x, size=(5, 9), mode='bicubic')", tol=20.0,
          special=False, why="torch adds the taps in another order, of infinities, too"),
    image("interpolate_bicubic_aligned",
          "T.nn.functional.interpolate(x, size=(11, 4), mode='bicubic', align_corners=True)",
          tol=20.0, special=False, why="as above"),
    image("interpolate_kept_axis",
          "T.nn.functional.interpolate(x, scale_factor=(1.1, 1.7), mode='bilinear')", tol=8.0,
          special=False, why="torch adds 0 times an element of the axis that stays"),
    image("interpolate_nearest_kept_axis",
          "T.nn.functional.interpolate(x, scale_factor=(1.1, 1.7))"),
    *(
        image(f"interpolate_{mode}_smooth_{name}",
              f"T.nn.functional.interpolate(x, {given}, mode='{mode}', antialias=True)", tol=20.0,
              special=False, why="torch adds the taps in another order, of infinities, too")
        for mode in ("bilinear", "bicubic")
        for name, given in (("less", "size=(3, 2)"), ("more", "size=(5, 9)"),
                            ("factor", "scale_factor=0.6"),
                            ("aligned", "size=(4, 3), align_corners=True"))
    ),
    image("interpolate_area", "T.nn.functional.interpolate(x, size=(3, 4), mode='area')"),
    line("interpolate_linear", "T.nn.functional.interpolate(x, size=9, mode='linear')", tol=8.0),
    volume("interpolate_trilinear",
           "T.nn.functional.interpolate(x, scale_factor=2, mode='trilinear')", tol=8.0),
    *(
        Row(f"grid_sample_{mode}_{padding}_{align}",
            function("T.nn.functional.grid_sample", mode=mode, padding_mode=padding,
                     align_corners=align),
            ("b c h w", In("b 4 3 2", -1.3, 1.3)), sizes=SMALL, zero="b", special=False,
            # The 16 taps of a cubic have both signs, and cancel where the image is even.
            half=False, second=False, tol=50.0 if mode == "bicubic" else 20.0,
            why="its gradient has steps; torch's float16 and NaN are its kernel's")
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ),
]  # fmt: skip
