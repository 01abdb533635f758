# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Variables that a traced function read: those of enclosing functions, and globals."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from kernelrt import errors

cdef extern from *:
    """
    /* Another number after each change of the dict, up to Python 3.13. */
    static inline uint64_t dict_version(const PyObject *dict)
    {
    #if PY_VERSION_HEX < 0x030E0000
    #if defined(__GNUC__)
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    #endif
        return ((const PyDictObject *)dict)->ma_version_tag;
    #if defined(__GNUC__)
    #pragma GCC diagnostic pop
    #endif
    #else
        (void)dict;
        return 0;
    #endif
    }
    """
    uint64_t dict_version(const PyObject *dict) noexcept
    PyObject *PyCell_GET(PyObject *cell) noexcept
    PyObject *PyDict_GetItemWithError(object d, object key) except? NULL


# What a variable is that has no value.
cdef object NOTHING = object()


cdef class Names:
    def __init__(self, cells, named, same):
        cdef Py_ssize_t i
        cdef Space *space
        if self.spaces != NULL:
            raise errors.JitError("names are initialised once")
        self.cells = tuple(cells)
        self.globals = tuple(sorted(named, key=dict_of))
        self.same = same
        self.held = tuple(cell_value(cell) for _, cell in self.cells)
        self.found = tuple(global_value(names, name) for name, names in self.globals)
        self.spaces = <Space *> PyMem_Calloc(len(self.globals) + 1, sizeof(Space))
        self.variables = <Variable *> PyMem_Calloc(len(self.cells) + 1, sizeof(Variable))
        if self.spaces == NULL or self.variables == NULL:
            raise errors.OutOfMemoryError("no memory for the names that a function reads")
        for i in range(len(self.cells)):
            self.variables[i].cell = <PyObject *> (<tuple> self.cells[i])[1]
            self.variables[i].held = <PyObject *> self.held[i]
        self.n_variables = len(self.cells)
        for i in range(len(self.globals)):
            if i == 0 or self.globals[i][1] is not self.globals[i - 1][1]:
                self.n_spaces += 1
            space = self.spaces + self.n_spaces - 1
            space.names = <PyObject *> (<tuple> self.globals[i])[1]
            space.end = i + 1

    def __dealloc__(self):
        PyMem_Free(self.spaces)
        PyMem_Free(self.variables)

    def __len__(self):
        return len(self.held) + len(self.found)

    cdef bint hold(self) except -1:
        cdef Py_ssize_t i
        cdef uint64_t version
        for i in range(self.n_variables):
            if (PyCell_GET(self.variables[i].cell) != self.variables[i].held
                    and not self.alike(cell_value(self.cells[i][1]), self.held[i])):
                return False
        for i in range(self.n_spaces):
            version = dict_version(self.spaces[i].names)
            if ((version == 0 or version != self.spaces[i].version)
                    and not self.settles(i, version)):
                return False
        return True

    cdef bint settles(self, Py_ssize_t space, uint64_t version) except -1:
        """Whether the names of a dict are what they were, which then has that version."""
        cdef Py_ssize_t i
        cdef PyObject *value
        cdef object names = <object> self.spaces[space].names
        for i in range(self.spaces[space - 1].end if space else 0, self.spaces[space].end):
            value = PyDict_GetItemWithError(names, self.globals[i][0])
            if value != <PyObject *> self.found[i] and not self.alike(
                    NOTHING if value == NULL else <object> value, self.found[i]):
                return False
        self.spaces[space].version = version
        return True

    cdef bint alike(self, object now, object before) except -1:
        return now is before or bool(self.same(now, before))

    def changed(self):
        """The first of them that is something else, or None."""
        for (name, cell), before in zip(self.cells, self.held):
            if not self.alike(cell_value(cell), before):
                return name
        for (name, names), before in zip(self.globals, self.found):
            if not self.alike(global_value(names, name), before):
                return name
        return None


def dict_of(entry):
    return id(entry[1])


cdef object cell_value(object cell):
    cdef PyObject *value = PyCell_GET(<PyObject *> cell)
    return NOTHING if value == NULL else <object> value


cdef object global_value(object names, object name):
    cdef PyObject *value = PyDict_GetItemWithError(names, name)
    return NOTHING if value == NULL else <object> value
