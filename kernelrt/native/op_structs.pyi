"""Types of the conversion of ops to C structures, as far as Python code uses it."""

from collections.abc import Callable, Iterable

class Addressed:
    """A custom function that receives arrays over its op's buffers, where they are in the run."""

    def __init__(
        self,
        function: Callable[[list[memoryview]], object],
        nbytes: Iterable[int],
        n_results: int,
    ) -> None: ...
    def __call__(self) -> object: ...
