"""Types of what turns ops into C structures, as far as Python code uses it."""

from collections.abc import Callable, Iterable

class Addressed:
    """A function that is called with views of its op's buffers, where they lie in this run."""

    def __init__(
        self,
        function: Callable[[list[memoryview]], object],
        nbytes: Iterable[int],
        n_results: int,
    ) -> None: ...
    def __call__(self) -> object: ...
