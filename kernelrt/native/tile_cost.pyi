"""Types of the tile cost evaluator, which estimates the cycles of loop nests."""

from collections.abc import Iterable, Mapping

from kernelrt.ir.uop import UOp
from kernelrt.loops.tiles import Tile

class MachineModel:
    """The parameters of a CPU core's cost model, passed by name."""

    def __init__(self, **numbers: float) -> None: ...

def vectors_of(count: int, lanes: int) -> int:
    """Return the number of vectors for `count` elements: full ones, then powers of two."""

class Tiles:
    """The loops of a kernel, by number, and their tiles during an estimate."""

    def __init__(
        self, places: dict[UOp, int], extents: Iterable[int], fixed: Iterable[bool]
    ) -> None: ...

class Load:
    """A LOAD of a nest: its loops, innermost first, and the strides along them.

    `closed` tells which loops belong to this nest only; `around` has the loops with which the array
    that it reads varies. A `plain` load has no predicate. `streamed` is the number of cycles per
    byte that comes from far memory.
    """

    def __init__(
        self,
        loops: Iterable[int],
        steps: Iterable[int | None],
        closed: Iterable[bool],
        around: Iterable[int],
        plain: bool,
        itemsize: int,
        streamed: float,
    ) -> None: ...

class Read:
    """The memory that a LOAD reads: bytes between elements, the smallest stride first.

    For each loop also in how many places of a way its elements end, and how many these are; 0 where
    they are those of a tile.
    """

    def __init__(
        self,
        itemsize: int,
        loops: Iterable[int],
        nbytes: Iterable[int],
        spread: Iterable[int],
        closed: Iterable[int],
    ) -> None: ...

class Tally:
    """A loop nest: the enclosing loops and its own, outermost first, its loads and its work."""

    def __init__(
        self,
        tiles: Tiles,
        model: MachineModel,
        around: Iterable[int],
        closed: Iterable[int],
        loads: list[Load],
        reads: list[Read],
        **numbers: float,
    ) -> None: ...

def cycles(tallies: list[Tally], given: Mapping[UOp, Tile]) -> float:
    """Return the estimated cycles of nests for the tiles `given`."""

def charge(tally: Tally, given: Mapping[UOp, Tile]) -> float:
    """Return the factor on a nest's cycles for the copies (unrolling) of its body."""
