"""Routines: C functions that compute a value which loops over elements cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["Routine", "is_call"]


def is_call(ast: UOp) -> bool:
    """Whether a kernel AST is the call of a routine."""
    return ast.op is Op.SINK and len(ast.src) == 1 and ast.src[0].op is Op.CALL


@dataclass(frozen=True, slots=True)
class Routine:
    """What a CALL computes; its `arg`.

    A routine solves `rows` independent problems of one kind. Its result and its operands hold
    those of the problems one after the other. How it is called is said in ``csrc/routines.h``.

    Attributes
    ----------
    name : str
        The C function, without its prefix ``krt_``.
    shape : tuple of int
        Of the result.
    rows : int
        Problems, which may be solved side by side.
    numbers : tuple of int
        Sizes and options that the function is told.
    cycles : int
        What all problems take on one core, by estimate.
    failure : str
        What it means if the function reports that it failed, for people; empty if it never does.
    """

    name: str
    shape: tuple[int, ...]
    rows: int
    numbers: tuple[int, ...] = ()
    cycles: int = 0
    failure: str = ""
