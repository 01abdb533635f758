"""Types of the conversion of ops to C structures, as far as Python code uses it."""

from collections.abc import Callable, Iterable

class Addressed:
    """A custom function that receives views of its op's buffers, at their addresses in the run."""

    def __init__(
        self,
        function: Callable[[list[memoryview]], object],
        nbytes: Iterable[int],
        n_results: int,
    ) -> None: ...
    def __call__(self) -> object: ...
