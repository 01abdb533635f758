"""Types of the cycle estimator of loop nests."""

from collections.abc import Iterable, Mapping

from kernelrt.ir.uop import UOp
from kernelrt.loops.tiles import Tile

class MachineModel:
    """Resources of a processor core and costs of its work, as named numbers."""

    def __init__(self, **numbers: float) -> None: ...

def vectors_of(count: int, lanes: int) -> int:
    """Return the number of vectors for `count` elements.

    Elements that do not fill a vector are in narrower vectors, of power-of-two lengths.
    """

class Tiles:
    """The loops of a kernel, by number, and their current tiles."""

    def __init__(
        self, indices: dict[UOp, int], extents: Iterable[int], fixed: Iterable[bool]
    ) -> None: ...

class Load:
    """A LOAD of a nest: its loops, innermost first, and the strides along them.

    `closed` tells which of the loops belong to the nest itself. `around` holds the loops on which
    the content of the array depends. A `plain` LOAD has no predicate. `streamed` is the number of
    cycles per byte that comes from beyond the first-level cache.
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
    """The memory that a LOAD traverses: bytes between elements, the smallest stride first.

    For each loop also the number of cache sets that its elements map to (`spread`) and the number
    of elements (`closed`; 0: those of a tile).
    """

    def __init__(
        self,
        itemsize: int,
        loops: Iterable[int],
        nbytes: Iterable[int],
        spread: Iterable[int],
        closed: Iterable[int],
    ) -> None: ...

class NestCost:
    """A nest: its enclosing and own loops, outermost first, its loads and its work."""

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

def cycles(nests: list[NestCost], given: Mapping[UOp, Tile]) -> float:
    """Return the estimated cycles of nests under the tiles `given`."""

def charge(nest: NestCost, given: Mapping[UOp, Tile]) -> float:
    """Return the factor by which the code size of its body's copies raises the cycles of a nest."""
