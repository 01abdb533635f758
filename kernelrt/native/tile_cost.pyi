"""Types of what counts the cycles of loop nests."""

from collections.abc import Iterable, Mapping

from kernelrt.ir.uop import UOp
from kernelrt.loops.tiles import Tile

class MachineModel:
    """What a core has, and what it takes for which work; all numbers of it by their names."""

    def __init__(self, **numbers: float) -> None: ...

def vectors_of(count: int, lanes: int) -> int:
    """How many vectors so many elements take: whole ones, and narrow ones, of powers of two."""

class Tiles:
    """The loops of a kernel, by number, and their tiles for the time of a count."""

    def __init__(
        self, places: dict[UOp, int], extents: Iterable[int], fixed: Iterable[bool]
    ) -> None: ...

class Load:
    """A LOAD of a nest: its loops, innermost first, and the strides along them.

    `closed` says which of them belong to the nest alone, `around` has those that the array which
    it reads varies with. `plain` ones have no gate. A byte takes `streamed` cycles where it has to
    come from far.
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
    """The memory that a LOAD walks: bytes between elements, the smallest step first.

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
    """A nest: the loops around it and its own, outermost first, what it reads, and what it does."""

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
    """Estimated cycles of nests under the tiles `given`."""

def charge(tally: Tally, given: Mapping[UOp, Tile]) -> float:
    """What a nest's cycles are to be multiplied by for the copies that are made of its body."""
