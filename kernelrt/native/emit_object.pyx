# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Compile LLVM IR to an object in one call, without the GIL.

Through llvmlite this takes about twenty calls. Each releases the GIL, and while another thread runs
Python code, taking it again costs 5 ms.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uintptr_t

ctypedef void *Handle

cdef enum:
    OBJECT_FILE = 1


cdef class Emitter:
    """Functions of llvmlite's shared library."""

    cdef Handle (*create_context)() noexcept nogil
    cdef void (*dispose_context)(Handle context) noexcept nogil
    cdef Handle (*parse)(Handle context, const char *text, char **message) noexcept nogil
    cdef void (*dispose_module)(Handle module) noexcept nogil
    cdef void (*set_triple)(Handle module, const char *triple) noexcept nogil
    cdef void (*set_layout)(Handle module, const char *layout) noexcept nogil
    cdef int (*is_broken)(Handle module, char **message) noexcept nogil
    cdef Handle (*find)(Handle module, const char *name) noexcept nogil
    cdef int (*is_declaration)(Handle function) noexcept nogil
    cdef Handle (*generate)(
        Handle machine, Handle module, int kind, char **message
    ) noexcept nogil
    cdef const char *(*start)(Handle memory) noexcept nogil
    cdef size_t (*size)(Handle memory) noexcept nogil
    cdef void (*dispose_memory)(Handle memory) noexcept nogil
    cdef void (*dispose_message)(char *message) noexcept nogil

    def __init__(self, address):
        self.create_context = <Handle (*)() noexcept nogil> found(address, "ContextCreate")
        self.dispose_context = <void (*)(Handle) noexcept nogil> found(address, "ContextDispose")
        self.parse = (
            <Handle (*)(Handle, const char *, char **) noexcept nogil>
            found(address, "ParseAssembly")
        )
        self.dispose_module = <void (*)(Handle) noexcept nogil> found(address, "DisposeModule")
        self.set_triple = (
            <void (*)(Handle, const char *) noexcept nogil> found(address, "SetTarget")
        )
        self.set_layout = (
            <void (*)(Handle, const char *) noexcept nogil> found(address, "SetDataLayout")
        )
        self.is_broken = <int (*)(Handle, char **) noexcept nogil> found(address, "VerifyModule")
        self.find = (
            <Handle (*)(Handle, const char *) noexcept nogil> found(address, "GetNamedFunction")
        )
        self.is_declaration = <int (*)(Handle) noexcept nogil> found(address, "IsDeclaration")
        self.generate = (
            <Handle (*)(Handle, Handle, int, char **) noexcept nogil>
            found(address, "TargetMachineEmitToMemory")
        )
        self.start = <const char *(*)(Handle) noexcept nogil> found(address, "GetBufferStart")
        self.size = <size_t (*)(Handle) noexcept nogil> found(address, "GetBufferSize")
        self.dispose_memory = (
            <void (*)(Handle) noexcept nogil> found(address, "DisposeMemoryBuffer")
        )
        self.dispose_message = <void (*)(char *) noexcept nogil> found(address, "DisposeString")

    def emit(self, uintptr_t machine, bytes triple, bytes layout, bytes name, bytes source):
        cdef const char *for_triple = triple
        cdef const char *with_layout = layout
        cdef const char *entry = name
        cdef const char *text = source
        cdef Handle memory
        with nogil:
            memory = self.compiled(<Handle> machine, for_triple, with_layout, entry, text)
        if memory == NULL:
            return None
        try:
            return PyBytes_FromStringAndSize(self.start(memory), <Py_ssize_t> self.size(memory))
        finally:
            self.dispose_memory(memory)

    cdef Handle compiled(
        self, Handle machine, const char *triple, const char *layout, const char *name,
        const char *text,
    ) noexcept nogil:
        """Return the memory of the object; NULL if LLVM rejects the source."""
        cdef Handle memory = NULL
        cdef char *message = NULL
        cdef Handle context = self.create_context()
        cdef Handle module = self.parse(context, text, &message)
        self.drop(message)
        if module != NULL:
            self.set_triple(module, triple)
            self.set_layout(module, layout)
            if self.is_whole(module, name):
                message = NULL
                memory = self.generate(machine, module, OBJECT_FILE, &message)
                self.drop(message)
            self.dispose_module(module)
        self.dispose_context(context)
        return memory

    cdef bint is_whole(self, Handle module, const char *name) noexcept nogil:
        cdef char *message = NULL
        # The C++ side returns an int or a bool. Of a bool only the lowest byte is set.
        cdef bint broken = self.is_broken(module, &message) & 0xFF
        cdef Handle function
        self.drop(message)
        if broken:
            return False
        function = self.find(module, name)
        return function != NULL and not self.is_declaration(function)

    cdef void drop(self, char *message) noexcept nogil:
        if message != NULL:
            self.dispose_message(message)


cdef void *found(address, str name) except NULL:
    return <void *> <uintptr_t> address("LLVMPY_" + name)
