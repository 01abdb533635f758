"""Types of the call that compiles LLVM IR to an object."""

from collections.abc import Callable

class Emitter:
    """Functions of llvmlite's shared library, called without its lock.

    Parameters
    ----------
    address : callable
        Returns the address of a function of the library, given its name.
    """

    def __init__(self, address: Callable[[str], int]) -> None: ...
    def emit(
        self, machine: int, triple: bytes, layout: bytes, name: bytes, source: bytes
    ) -> bytes | None:
        """Compile a module in its own LLVM context, without the GIL.

        Parameters
        ----------
        machine : int
            Address of the target machine. Nothing else may use it meanwhile.
        triple, layout : bytes
            Target triple and data layout.
        name : bytes
            Name of a function that the module must define.
        source : bytes
            LLVM IR of the module.

        Returns
        -------
        bytes or None
            The object; None if LLVM rejects the source or the source does not define `name`.
        """
