"""The faults."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FAULTS", "PARTS", "Fault"]

#: Parts of the package, each with as many faults.
PARTS: Final = ("schedule", "codegen", "tensor", "jit", "csrc")


class Fault(NamedTuple):
    """A mistake in one line.

    Attributes
    ----------
    name : str
        What it is called on the command line.
    part : str
        One of :data:`PARTS`.
    file : str
        Where it is.
    line, becomes : str
        The line, without the white space at its ends, and what it becomes.
    harm : str
        What a user sees of it.
    near : str
        The line directly above, where others are like it.
    """

    name: str
    part: str
    file: str
    line: str
    becomes: str
    harm: str
    near: str = ""


FAULTS: Final = (
    Fault(
        "flip-twice", "schedule", "kernelrt/schedule/rewrite/simplify.py",
        "axes ^= set(x.arg)",
        "axes |= set(x.arg)",
        "A tensor that is flipped twice along an axis comes out flipped once.",
    ),
    Fault(
        "write-after-read", "schedule", "kernelrt/schedule/memory/hazards.py",
        "out.update(self.readers(region))",
        "out.update(self.writers(region))",
        "A plan overwrites state, or memory that it uses again, before all have read it.",
    ),
    Fault(
        "steady-slice", "schedule", "kernelrt/schedule/rewrite/hoist_invariants.py",
        "fits = node.op in _KNOWN and is_static(node.shape) and _is_fixed(node.arg)",
        "fits = node.op in _KNOWN and is_static(node.shape)",
        "A part of a table that begins where a dynamic size says is computed for one size only.",
    ),
    Fault(
        "saturating-cast", "schedule", "kernelrt/schedule/rewrite/simplify.py",
        "return None if not source.is_float else UOp(Op.CAST, u.dtype, x.src)",
        "return UOp(Op.CAST, u.dtype, x.src)",
        "An integer cast to a float and on to a narrower integer wraps where it saturates.",
    ),
    Fault(
        "check-beside-commit", "schedule", "kernelrt/schedule/fuse/fusion.py",
        "and not (b.checks and a.targets)",
        "and not (b.checks and b.targets)",
        "A call that ends in IndexBoundsError has changed state by then.",
    ),
    Fault(
        "stored-diagonal", "schedule", "kernelrt/schedule/fuse/fusion_groups.py",
        "if len({index[a] for a in real}) < len(real):",
        "if len({index[a] for a in real}) > len(real):",
        "Of a matrix that a kernel reads the diagonal of, only the diagonal is stored.",
    ),
    Fault(
        "narrow-predicate", "schedule", "kernelrt/schedule/fuse/predicates.py",
        "high = _wider(a.high(at), b.high(at), least=False)",
        "high = _wider(a.high(at), b.high(at), least=True)",
        "The sum of two padded parts of one value misses elements of the part further back.",
    ),
    Fault(
        "joined-gaps", "schedule", "kernelrt/schedule/memory/arena.py",
        "if out and out[-1][1] == start and out[-1][2] == rest:",
        "if out and out[-1][1] == start:",
        "In plans of more than 64 intermediates two that are alive at once share bytes.",
    ),
    Fault(
        "spaced-loads", "codegen", "kernelrt/backend/llvm/loads.py",
        "picks = [w if w < width else w - (span - width) + width for w in wanted]",
        "picks = [w if w <= width else w - (span - width) + width for w in wanted]",
        "Every second element of a row comes with one of them exchanged for another.",
    ),
    Fault(
        "maximum-of-nan", "codegen", "kernelrt/backend/llvm/instructions.py",
        'return _select(b, b.emit(f"fcmp {unordered} {ty} {y.text}, {x.text}"), y, x)',
        'return _select(b, b.emit(f"fcmp {ordered} {ty} {y.text}, {x.text}"), y, x)',
        "The maximum of the constant 0 and NaN is 0.",
    ),
    Fault(
        "double-rounding", "codegen", "kernelrt/backend/llvm/instructions.py",
        'step = b.emit(f"sext {mask} {away} to {bits}")',
        'step = b.emit(f"zext {mask} {away} to {bits}")',
        "Some float64 numbers next to the middle of two of float16 are rounded to the wrong one.",
    ),
    Fault(
        "nan-to-unsigned", "codegen", "kernelrt/backend/llvm/instructions.py",
        'enters, leaves = "oge", "uge" if dst.of_nan == high else "oge"',
        'enters, leaves = "oge", "oge"',
        "NaN becomes 0 in an unsigned type, where it is to be the greatest number.",
    ),
    Fault(
        "trapping-division", "codegen", "kernelrt/backend/llvm/instructions.py",
        'trapping = b.emit(f"or {mask} {bad}, {overflow}")',
        'trapping = b.emit(f"or {mask} {bad}, {bad}")',
        "The least int32 divided by -1 ends the process.",
    ),
    Fault(
        "masked-products", "codegen", "kernelrt/backend/llvm/emit_reductions.py",
        "if mask is None and self._fuses(u):",
        "if self._fuses(u):",
        "A sum of products of exponentials over a dynamic size counts elements past its end.",
    ),
    Fault(
        "causal-blocks", "codegen", "kernelrt/loops/passes/masked_tiles.py",
        "strict = (mask.op is Op.LT) is holds",
        "strict = mask.op is Op.LT",
        "Attention over long rows that look one position ahead leaves out the last weight of some.",
    ),
    Fault(
        "added-twice", "codegen", "kernelrt/loops/passes/pack_operands.py",
        "if columns < lanes or reads_what_it_writes(info):",
        "if columns < lanes:",
        "State to which a matrix product is added in place gets it twice in some odd columns.",
    ),
    Fault(
        "slope-at-ties", "tensor", "kernelrt/tensor/autograd/rules.py",
        "behind = x.alu(Op.LT, other) if u.op is Op.MAX else other.alu(Op.LT, x)",
        "behind = x.alu(Op.LT, other) if u.op is Op.MAX else other.alu(Op.LE, x)",
        "The gradient of a minimum of two equal elements is 0 for both.",
    ),
    Fault(
        "promoted-by-scalar", "tensor", "kernelrt/tensor/nodes/promotion.py",
        "elif _category(point) > _category(result):",
        "elif _category(point) >= _category(result):",
        "A float32 tensor times a float64 tensor without axes is float64.",
    ),
    Fault(
        "last-window", "tensor", "kernelrt/tensor/methods/window_pooling.py",
        "if (count - 1) * s >= size + p:",
        "if (count - 1) * s > size + p:",
        "With ceil_mode, pooling has a last window that begins behind the input.",
    ),
    Fault(
        "padding-by-stride", "tensor", "kernelrt/tensor/nodes/convolve.py",
        "ahead = (first * dilation - remainder) // stride - shift",
        "ahead = (first * dilation - remainder) // stride + shift",
        "Transposed convolutions whose padding is at least the stride are shifted.",
    ),
    Fault(
        "reversed-scan-slope", "tensor", "kernelrt/tensor/autograd/loop_adjoints.py",
        "reverse=not loop.reverse,",
        "reverse=True,",
        "The gradient of a scan in reverse goes over the iterations in the wrong order.",
    ),
    Fault(
        "greatest-square", "tensor", "kernelrt/nn/optim/adam.py",
        "new.append((most, square))",
        "new.append((most, most))",
        "Adam with amsgrad forgets the greatest square of gradients so far.",
    ),
    Fault(
        "ignored-samples", "tensor", "kernelrt/tensor/methods/loss.py",
        "return losses.sum() / (~ignored).sum()",
        "return losses.mean()",
        "The mean cross entropy counts samples that are to be ignored.",
    ),
    Fault(
        "unit-diagonal", "tensor", "kernelrt/tensor/nodes/matrix_ops.py",
        "return upper(whole, int(unit)) if is_upper else lower(whole, -int(unit))",
        "return upper(whole, int(unit)) if is_upper else lower(whole)",
        "The gradient by a lower triangle that counts as having ones has a diagonal.",
    ),
    Fault(
        "one-size", "jit", "kernelrt/jit/dynamic.py",
        "if known != size:",
        "if known < size:",
        "Arguments of different sizes pass for one Variable, and the result is wrong.",
    ),
    Fault(
        "unrolled-reverse", "jit", "kernelrt/func/loops.py",
        "if reverse:",
        "if not reverse:",
        "What a scan over arrays of a dynamic size stacks comes in the wrong order.",
        "found.append(y)",
    ),
    Fault(
        "while-late", "jit", "kernelrt/func/loops.py",
        "before, after = rewritten(test.nodes, now)[0], rewritten(test.nodes, then)[0]",
        "before, after = rewritten([*test.nodes, *test.nodes], now)",
        "A while_loop never ends, or goes on after its condition is false.",
    ),
    Fault(
        "new-hooks", "jit", "kernelrt/jit/plan_guards.py",
        "(t._memory, leaf.hooks) for ref in state.leaves.valuerefs()",
        "(t._memory, None) for ref in state.leaves.valuerefs()",
        "A hook of a parameter that is added after the first call of a step is not called.",
    ),
    Fault(
        "greatest-value", "jit", "kernelrt/runtime/variables.py",
        "if not variable.min_val <= number <= variable.max_val:",
        "if not variable.min_val <= number < variable.max_val:",
        "A NumPy integer that is the upper bound of a Variable is refused.",
    ),
    Fault(
        "argument-of-state", "jit", "kernelrt/jit/binding.py",
        "writes=writes,",
        "writes=(),",
        "A step that is given memory of the state that it changes reads what it has written.",
    ),
    Fault(
        "left-out-rows", "jit", "kernelrt/jit/multi_step.py",
        "return np.concatenate([order_of(rows, seed, epoch)[:used] for epoch in epochs])",
        "return np.concatenate([order_of(rows, seed, epoch) for epoch in epochs])",
        "Later epochs of over() with shuffle and drop_last take other rows than the loop does.",
    ),
    Fault(
        "copied-instance", "jit", "kernelrt/jit/function.py",
        "if bound is None or bound.instance is not instance or bound._method is not self:",
        "if bound is None or bound._method is not self:",
        "A jitted method of a copied object computes with the original's attributes.",
    ),
    Fault(
        "uneven-shares", "csrc", "csrc/routines.h",
        "const int64_t first = chunk * size + (chunk < rest ? chunk : rest);",
        "const int64_t first = chunk * size;",
        "Of many matrices some are left unsolved, where threads share them unevenly.",
    ),
    Fault(
        "lasting-failure", "csrc", "csrc/plan.c",
        "if (plan->marked)",
        "if (plan->stale)",
        "After a call that ended in IndexBoundsError all later ones do, too.",
    ),
    Fault(
        "first-of-stage", "csrc", "csrc/graph.c",
        "task->n_pending += dep >= at->begin; /* earlier ones are done before the stage begins */",
        "task->n_pending += dep > at->begin; /* earlier ones are done before the stage begins */",
        "On several threads a kernel runs before the first of its stage, whose result it reads.",
    ),
    Fault(
        "turns-back", "csrc", "csrc/region.c",
        "loop->iteration += loop->reverse ? -1 : 1;",
        "loop->iteration += 1;",
        "The gradient of a loop that reads its iteration number is wrong.",
    ),
    Fault(
        "padded-rows", "csrc", "kernelrt/native/replay.pxd",
        "and (source.stride == source.nbytes or batch.rows == 1))",
        "and (source.stride >= source.nbytes or batch.rows == 1))",
        "over() takes the wrong rows of an array whose rows do not follow each other.",
    ),
    Fault(
        "stale-preparation", "csrc", "kernelrt/_dispatch.pyx",
        "if self.lasting:",
        "if self.lasting and self.preparation is not None:",
        "A function that keeps what it made of state does not see that another one changed it.",
    ),
    Fault(
        "released-views", "csrc", "kernelrt/native/memory.pyx",
        "if memory is not None and memory.n_exports:",
        "if memory is not None and memory.n_exports > 1:",
        "Memory is freed while an array still shows it.",
    ),
    Fault(
        "any-processor", "csrc", "kernelrt/backend/cpu/compiler.py",
        "target = (spec.triple, spec.cpu, spec.features)",
        "target = (spec.triple, spec.cpu)",
        "Code for other features of a processor is taken from the cache on disk, and may crash.",
    ),
)
