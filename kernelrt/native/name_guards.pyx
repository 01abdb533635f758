# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Guards of the Python names that a traced function read: variables, attributes and items."""

from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from kernelrt import errors

cdef extern from *:
    """
    /* The version of the dict: each change changes it. Up to Python 3.13; 0 from 3.14 on. */
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
    static inline PyObject *items_of_class(PyObject *cls)
    {
        return ((PyTypeObject *)cls)->tp_dict;
    }
    #define ITEMS_OF(list) ((const void *)((PyListObject *)(list))->ob_item)
    /* From 3.13 on instances keep attributes outside the dict, so its version does not change. */
    #define INSTANCES_ARE_TAGGED (PY_VERSION_HEX < 0x030D0000)
    """
    const void *ITEMS_OF(object list) noexcept
    PyObject *items_of_class(object cls) noexcept
    bint INSTANCES_ARE_TAGGED
    uint64_t dict_version(const PyObject *dict) noexcept
    PyObject *PyCell_GET(PyObject *cell) noexcept
    PyObject *PyDict_GetItemWithError(object d, object key) except? NULL
    bint PyDict_Next(object d, Py_ssize_t *at, PyObject **key, PyObject **value) noexcept


# Stands for the value of a variable that has none.
cdef object NOTHING = object()
ALL_ITEMS = object()
cdef object ALL = ALL_ITEMS


cdef class Names:
    def __init__(self, cells, named, same, lists=(), slots=()):
        cdef Py_ssize_t i
        cdef Space *space
        if self.spaces != NULL:
            raise errors.JitError("names can be initialised only once")
        self.cells = tuple(cells)
        self.globals = tuple(sorted(named, key=dict_of))
        self.same = same
        self.held = tuple(cell_value(cell) for _, cell in self.cells)
        self.found = tuple(item_of(names, key) for key, names, _, _ in self.globals)
        self.lists = tuple(lists)
        self.items = [list(held) for _, held, _, _ in self.lists]
        self.slots = tuple(slots)
        self.holds_objects = bool(self.lists or self.slots)
        self.filled = tuple(slot_value(owner, slot) for _, owner, slot in self.slots)
        self.spaces = <Space *> PyMem_Calloc(len(self.globals) + 1, sizeof(Space))
        self.variables = <Variable *> PyMem_Calloc(len(self.cells) + 1, sizeof(Variable))
        if self.spaces == NULL or self.variables == NULL:
            raise errors.OutOfMemoryError("could not allocate the name guards of a function")
        for i in range(len(self.cells)):
            self.variables[i].cell = <PyObject *> (<tuple> self.cells[i])[1]
            self.variables[i].held = <PyObject *> self.held[i]
        self.n_variables = len(self.cells)
        for i in range(len(self.globals)):
            if i == 0 or self.globals[i][1] is not self.globals[i - 1][1]:
                self.n_spaces += 1
            space = self.spaces + self.n_spaces - 1
            space.names = <PyObject *> (<tuple> self.globals[i])[1]
            space.tagged = INSTANCES_ARE_TAGGED or not self.globals[i][3]
            space.end = i + 1

    def __dealloc__(self):
        PyMem_Free(self.spaces)
        PyMem_Free(self.variables)

    def __len__(self):
        return len(self.held) + len(self.found) + len(self.lists) + len(self.filled)

    cdef bint hold(self) except -1:
        cdef Py_ssize_t i
        cdef uint64_t version
        for i in range(self.n_variables):
            if (PyCell_GET(self.variables[i].cell) != self.variables[i].held
                    and not self.alike(cell_value(self.cells[i][1]), self.held[i])):
                return False
        for i in range(self.n_spaces):
            version = dict_version(self.spaces[i].names) if self.spaces[i].tagged else 0
            if ((version == 0 or version != self.spaces[i].version)
                    and not self.settles(i, version)):
                return False
        return not self.holds_objects or (self.lists_hold() and self.slots_hold())

    cdef bint lists_hold(self) except -1:
        cdef Py_ssize_t i, size
        cdef list now, before
        for i in range(len(self.lists)):
            now, before = <list> (<tuple> self.lists[i])[1], <list> self.items[i]
            size = PyList_GET_SIZE(now)
            if size == PyList_GET_SIZE(before) and not memcmp(
                    ITEMS_OF(now), ITEMS_OF(before), <size_t> size * sizeof(void *)):
                continue
            if (<tuple> self.lists[i])[3] and size != PyList_GET_SIZE(before):
                return False
            for index in (<tuple> self.lists[i])[2]:
                if index >= PyList_GET_SIZE(now) or not self.alike(now[index], before[index]):
                    return False
            self.items[i] = list(now)
        return True

    cdef bint slots_hold(self) except -1:
        cdef Py_ssize_t i
        for i in range(len(self.slots)):
            _, owner, slot = self.slots[i]
            if not self.alike(slot_value(owner, slot), self.filled[i]):
                return False
        return True

    cdef bint settles(self, Py_ssize_t space, uint64_t version) except -1:
        """Return whether the names of a dict are unchanged; if so, store its `version`."""
        cdef Py_ssize_t i
        cdef PyObject *value
        cdef object names = <object> self.spaces[space].names
        for i in range(self.spaces[space - 1].end if space else 0, self.spaces[space].end):
            if self.globals[i][0] is ALL:
                if not self.all_alike(all_items(names), <list> self.found[i]):
                    return False
                continue
            value = PyDict_GetItemWithError(names, self.globals[i][0])
            if value != <PyObject *> self.found[i] and not self.alike(
                    NOTHING if value == NULL else <object> value, self.found[i]):
                return False
        self.spaces[space].version = version
        return True

    cdef bint alike(self, object now, object before) except -1:
        return now is before or bool(self.same(now, before))

    cdef bint all_alike(self, list now, list before) except -1:
        cdef Py_ssize_t i
        if PyList_GET_SIZE(now) != PyList_GET_SIZE(before):
            return False
        for i in range(PyList_GET_SIZE(now)):
            if not self.alike(now[i], before[i]):
                return False
        return True

    def changed(self):
        """Describe the first name that changed; return None if none did."""
        for (name, cell), before in zip(self.cells, self.held):
            if not self.alike(cell_value(cell), before):
                return REBOUND.format(name)
        grown = None
        for (key, names, name, _), before in zip(self.globals, self.found):
            if key is ALL:
                if grown is None and not self.all_alike(all_items(names), before):
                    grown = OTHERS.format(name)
            elif not self.alike(item_of(names, key), before):
                return REBOUND.format(name)
        if grown is not None:
            return grown
        for (name, now, indices, whole), before in zip(self.lists, self.items):
            if whole and len(now) != len(before):
                return OTHERS.format(name)
            for index in indices:
                if index >= len(now) or not self.alike(now[index], before[index]):
                    return REBOUND.format(f"{name}[{index}]")
        for (name, owner, slot), before in zip(self.slots, self.filled):
            if not self.alike(slot_value(owner, slot), before):
                return REBOUND.format(name)
        return None


REBOUND = "{} was rebound, or its value changed"
OTHERS = "{} gained or lost items, or their order changed"


def class_items(cls):
    return <object> items_of_class(cls)


def dict_of(entry):
    return id(entry[1])


cdef object cell_value(object cell):
    cdef PyObject *value = PyCell_GET(<PyObject *> cell)
    return NOTHING if value == NULL else <object> value


cdef object item_of(object names, object key):
    cdef PyObject *value
    if key is ALL:
        return all_items(names)
    value = PyDict_GetItemWithError(names, key)
    return NOTHING if value == NULL else <object> value


cdef list all_items(object names):
    """Return the keys and values of a dict in order, without running code of users."""
    cdef Py_ssize_t at = 0
    cdef PyObject *key
    cdef PyObject *value
    cdef list found = []
    while PyDict_Next(names, &at, &key, &value):
        found.append(<object> key)
        found.append(<object> value)
    return found


cdef object slot_value(object owner, object slot):
    try:
        return slot.__get__(owner)
    except AttributeError:
        return NOTHING
