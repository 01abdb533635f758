"""Shapes: the same elements elsewhere, parts of them, and copies."""

from __future__ import annotations

from surface.rows import Row, each, functions, method

F = functions

ROWS = [
    Row("reshape", "x.reshape(x.shape[1], -1)", ("a b c",), ints=True, zero=False,
        why="-1 is any number where the others are 0"),
    Row("reshape_sizes", "x.reshape(x.shape[2], x.shape[0] * x.shape[1])", ("a b c",),
        ints=True),
    Row("reshape_flat", "x.reshape((-1,))", ("a b c",)),
    Row("reshape_scalar", "(x.reshape(1, 1), x.reshape(()))", ("",)),
    Row("view", "x.view(x.shape[0] * x.shape[1]) * 2", ("a b",), transposed=False,
        why="torch's views need memory in order"),
    Row("view_as", "x.view_as(y) * y", ("a b", "a b")),
    Row("flatten", method("flatten"), ("a b c",)),
    Row("flatten_from", method("flatten", 1), ("a b c",)),
    Row("flatten_to", method("flatten", 0, -2), ("a b c",), ints=True),
    Row("flatten_scalar", method("flatten"), ("",)),
    Row("unflatten", method("unflatten", 1, (2, 3)), ("a 6 b",)),
    Row("unflatten_rest", method("unflatten", -1, (2, -1)), ("a 6",)),
    Row("squeeze", method("squeeze"), ("a 1 b 1",)),
    Row("squeeze_dim", "(x.squeeze(1), x.squeeze(0), x.squeeze(-1))", ("a 1 b 1",)),
    Row("squeeze_dims", method("squeeze", (1, -1)), ("a 1 b 1",)),
    Row("unsqueeze", "(x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1))", ("a b",)),
    Row("unsqueeze_scalar", "(x.unsqueeze(0), x.unsqueeze(-1))", ("",)),
    Row("expand", "x.expand(3, -1, 4)", ("a 1",), ints=True),
    Row("expand_scalar", method("expand", 2, 3), ("",)),
    Row("expand_as", "x.expand_as(y) * y", ("1 b", "a b")),
    Row("broadcast_to", "x.broadcast_to((2, 3, x.shape[-1]))", ("1 b",)),
    Row("repeat", method("repeat", 2, 3), ("a b",), ints=True),
    Row("repeat_more", method("repeat", 2, 1, 3), ("a b",)),
    Row("repeat_none", "x.repeat(0, 2)", ("a b",)),
    Row("tile", method("tile", 2), ("a b",), ints=True),
    Row("tile_more", method("tile", (2, 1, 3)), ("a b",), ints=True),
    *(Row(f"repeat_interleave_{d}", method("repeat_interleave", 3, d), ("a b",), ints=True)
      for d in (0, 1, -1)),
    Row("permute", method("permute", 2, 0, 1), ("a b c",), ints=True),
    Row("permute_tuple", "x.permute((-1, 0, 1))", ("a b c",)),
    Row("permute_scalar", "x.permute(()) * 2", ("",)),
    Row("transpose", "(x.transpose(0, 2), x.transpose(-1, -2))", ("a b c",)),
    Row("swapaxes", method("swapaxes", 0, -1), ("a b c",), ints=True),
    Row("movedim", "(x.movedim(0, 2), x.movedim(-1, 0))", ("a b c",)),
    Row("t", "x.t()", ("a b",)),
    Row("t_line", "x.t() * 2", ("a",)),
    Row("T", "x.T", ("a b",), ints=True),
    Row("mT", "x.mT", ("a b c",)),
    Row("flip", "(x.flip(0), x.flip(-1), x.flip(0, 2), x.flip((1, 2)))", ("a b c",),
        ints=True),
    Row("axes_by_name",
        "(x.flip(dims=(0, -1)), T.flip(x, dims=[1]), x.permute(dims=(2, 0, 1)), T.permute(x, "
        "dims=(0, 2, 1)), x.tile(dims=(2, 1)), T.tile(x, dims=(2,)))", ("a b c",)),
    Row("sizes_by_name",
        "(x.expand(size=(3, -1, 4)), x.repeat(repeats=(2, 3)), x.reshape(shape=(1, -1)), "
        "T.reshape(x, shape=(-1,)), x.view(size=(1, -1)), T.broadcast_to(x, size=(2, 4, 4)))",
        ("4 1",)),
    Row("roll", "(x.roll(1, 0), x.roll(-2, 1), x.roll(7, -1), x.roll(0, 0))",
        ("a b",), ints=True),
    Row("narrow", "(x.narrow(0, 1, 2), x.narrow(1, 2, 0), x.narrow(-1, -2, 1))",
        ("4 5",), ints=True),
    Row("narrow_rows", "x.narrow(0, 1, 2)", ("4 a",), ints=True),
    Row("split", "x.split(2)", ("5 a",), ints=True),
    Row("split_sizes", "x.split((1, 0, 4), 1)", ("a 5",)),
    Row("split_last", "x.split(3, -1)", ("a b 5",)),
    Row("split_drawn", "x.split(2, 0)", ("a b",)),
    Row("chunk", "x.chunk(2, 1)", ("a b",)),
    Row("chunk_many", "x.chunk(7, 0)", ("a b",), ints=True),
    Row("unbind", "x.unbind()", ("a b",), ints=True),
    Row("unbind_last", "x.unbind(-1)", ("a b",), ints=True),
    Row("diagonal", "x.diagonal()", ("a b",), ints=True),
    Row("diagonal_off", "(x.diagonal(1), x.diagonal(-1), x.diagonal(9))", ("a b",)),
    Row("diagonal_of", "x.diagonal(1, 2, 0)", ("a b c",)),
    *(Row(f"{name}_{d}".replace("-", "minus_"), method(name, d), ("a b c",), ints=True)
      for name in ("tril", "triu") for d in (0, 1, -1, 7, -7)),
    Row("pad", "F.pad(x, (1, 2, 0, 3))", ("a b",), ints=True),
    Row("pad_value", "F.pad(x, (1, 0), value=-3.0)", ("a b",), ints=True),
    Row("pad_negative", "F.pad(x, (-1, 2))", ("a 4",)),
    Row("pad_all", "F.pad(x, (0, 1, 1, 0, 2, 2))", ("a b c",)),
    Row("contiguous", "x.T.contiguous() * 2", ("a b",), ints=True),
    Row("clone", method("clone"), ("a b",), ints=True),
    Row("detach", "x.detach() * x", ("a b",), second=False, why="it has no gradient"),
    Row("of_sizes", "(x.size(), x.size(-1), x.numel(), x.dim(), x.element_size())",
        ("a b c",), grad=False, jit=False, why="gives numbers, no tensors"),
    Row("cat", "T.cat([x, y, x])", ("a b", "c b"), ints=True),
    Row("cat_last", "T.cat((x, y), -1)", ("a b", "a c")),
    Row("cat_types", "T.cat([x, x.double(), x.float()])", ("a b",), second=False,
        why="it is rounded"),
    Row("stack", "T.stack([x, y])", ("a b", "a b"), ints=True),
    Row("stack_dims", "(T.stack([x, y], 1), T.stack([x, y], -1))", ("a b", "a b")),
    Row("stack_scalars", "T.stack([x, y, x])", ("", "")),
    Row("meshgrid", "T.meshgrid(x, y, indexing='ij')", ("a", "b"), ints=True),
    Row("meshgrid_xy", "T.meshgrid(x, y, indexing='xy')", ("a", "b")),
    Row("chain", "x.permute(2, 0, 1).reshape(-1, 6)[1:3].T * 2", ("2 3 a",)),
    *each("x.reshape(-1); x.flatten(); x.T if x.ndim == 2 else x; x.unsqueeze({u}); x.squeeze(); "
          "x.squeeze({d}); x.transpose({d}, {e}); x.swapaxes({d}, {e}); x.movedim({d}, {e}); "
          "x.flip({d}); x.roll({s}, {d}); x.expand(3, *x.shape); x.repeat(2, *[1] * x.ndim); "
          "x.repeat(*[2] * max(x.ndim, 1)); F.pad(x, [{s}, 1] * min(x.ndim, 1)); "
          "F.pad(x, [1, {s}] * min(x.ndim, 2), value=2.0); x.view(x.shape); x.view_as(x); "
          "x.expand_as(x); x.broadcast_to(2, *x.shape); x.tile(2, *[1] * x.ndim)", "...",
          kinds="fib", values="any", grid=False),
    *each("x.permute(*range(x.ndim)[::-1]); x.narrow({d}, 0, 1); x.split(2, {d})[-1]; "
          "x.chunk(2, {d})[-1]; x.unbind({d})[-1]; x.repeat_interleave(2, {d}); "
          "x.unflatten({d}, (1, -1)); x.flatten({d}); x[0]; x[-1:]; x[..., 0]; x[..., ::2]; "
          "x[None, ..., None]; x[1:]; T.cat([x, x], {d}); T.stack([x, x], {d}); "
          "T.cat([x * 2, x[:1], x])", "... a", kinds="fib", values="any", grid=False),
    *each("x.tril(); x.triu(1); x.tril({s}); x.mT; x.diagonal(); x.diagonal({s}); "
          "x.diagonal({s}, -1, 0); x.tril(-1) + x.triu()", "... a b", ints=True, values="any",
          grid=False),
    *each("T.meshgrid(x, x, indexing='ij')[0]", "a", ints=True, values="any", grid=False),
    *each("T.meshgrid(x, y, indexing='xy')[1]", "a", "b", ints=True, values="any", grid=False),
    *each("x[:, None]; x[:, 0]; x[0, :]; x.reshape(1, -1, 1); x.reshape(1, -1, x.shape[-1]); "
          "x.permute(*range(x.ndim)); x[None, :, -1]", "... a b", grid=False),
]  # fmt: skip
