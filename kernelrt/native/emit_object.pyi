"""Types of the one call that makes an object of LLVM IR."""

from collections.abc import Callable

class Emitter:
    """Functions of llvmlite's library, called past its lock.

    Parameters
    ----------
    address : callable
        Gives the address of a function of the library by its name.
    """

    def __init__(self, address: Callable[[str], int]) -> None: ...
    def emit(
        self, machine: int, triple: bytes, layout: bytes, name: bytes, source: bytes
    ) -> bytes | None:
        """Generate the object of a module in a context of its own, without the GIL.

        Parameters
        ----------
        machine : int
            Address of the code generator, which nothing else uses meanwhile.
        triple, layout : bytes
            Target and data layout.
        name : bytes
            A function that the module has to define.
        source : bytes
            The module.

        Returns
        -------
        bytes or None
            The object; None where LLVM rejects the source or `name` is not defined in it.
        """
