"""Types of the call that compiles LLVM IR to an object."""

from collections.abc import Callable

class Emitter:
    """Functions of llvmlite's library, called without its lock.

    Parameters
    ----------
    address : callable
        Returns the address of a function of the library, given its name.
    """

    def __init__(self, address: Callable[[str], int]) -> None: ...
    def emit(
        self, machine: int, triple: bytes, layout: bytes, name: bytes, source: bytes
    ) -> bytes | None:
        """Compile a module to an object in a separate LLVM context, without the GIL.

        Parameters
        ----------
        machine : int
            Address of the code generator. No other code may use it meanwhile.
        triple, layout : bytes
            Target triple and data layout.
        name : bytes
            Name of a function that the module must define.
        source : bytes
            Text of the module.

        Returns
        -------
        bytes or None
            The object; None if LLVM rejects the source or `name` is not defined in it.
        """
