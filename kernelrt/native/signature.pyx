# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Specs of the arguments of a replay, compared in C, and the nesting of arguments."""

cimport numpy as cnp
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

import numpy as np

from kernelrt._dispatch cimport PlanCore
from kernelrt.native.array_handle cimport (
    FLOAT32, FLOAT64, LINEAGE_NONE, LINEAGE_SEVERED, LINEAGE_WHOLE, check_code, count_bytes,
    numpy_type,
)

from kernelrt import errors

cnp.import_array()

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char *where) except -1
    void Py_LeaveRecursiveCall()

ARRAY = <int> KIND_ARRAY
FLOAT = <int> KIND_FLOAT
STATIC = <int> KIND_STATIC

NO_LINEAGE = <int> LINEAGE_NONE
SEVERED = <int> LINEAGE_SEVERED
WHOLE = <int> LINEAGE_WHOLE


cdef void *calloc_for(Py_ssize_t count, size_t size) except NULL:
    cdef void *table = PyMem_Calloc(<size_t> count + 1, size)
    if table == NULL:
        raise errors.OutOfMemoryError("could not allocate the tables of a replay")
    return table


# ---- Filling --------------------------------------------------------------------------------


cdef int fill_input(Input *entry, tuple spec, PlanCore plan, list held) except -1:
    entry.kind = spec[0]
    if entry.kind == KIND_STATIC:
        _, value, by_value = spec
        held.append(value)
        entry.by_value = by_value
        entry.value = <PyObject *> value
    elif entry.kind == KIND_FLOAT:
        _, code, address = spec
        entry.code = check_code(code)
        if entry.code != FLOAT32 and entry.code != FLOAT64:
            raise errors.DTypeError("a FLOAT input must be float32 or float64")
        entry.home = <char *> <size_t> address
    elif entry.kind == KIND_ARRAY:
        _, code, shape, address, sites, *most = spec
        entry.lineage = most[0] if most else LINEAGE_WHOLE
        if not LINEAGE_NONE <= entry.lineage <= LINEAGE_WHOLE:
            raise errors.DTypeError(
                f"lineage: expected NO_LINEAGE, SEVERED or WHOLE, not {most[0]!r}")
        fill_array(entry, check_code(code), shape, address, tuple(sites), plan, held)
    else:
        raise errors.DTypeError(f"an input must be ARRAY, FLOAT or STATIC, not {spec[0]!r}")
    if entry.kind != KIND_STATIC and entry.home == NULL:
        raise errors.ShapeError("the address of an input must not be 0")
    return 0


cdef int fill_array(Input *entry, int code, tuple shape, size_t address, tuple sites,
                    PlanCore plan, list held) except -1:
    entry.code = code
    entry.nbytes = count_bytes(shape, code)
    entry.typenum = numpy_type(code)
    entry.other = other_type(entry.typenum)
    entry.ndim = <int> len(shape)
    for i, dim in enumerate(shape):
        entry.dims[<Py_ssize_t> i] = dim
    entry.value = <PyObject *> shape
    held.append(shape)
    entry.home = <char *> address
    entry.sites = <Site *> calloc_for(len(sites), sizeof(Site))
    entry.n_sites = fill_sites(entry.sites, sites, entry.nbytes, plan)
    return 0


cdef int fill_output(Output *entry, tuple spec, PlanCore plan, list held) except -1:
    cdef size_t address
    cdef tuple shape
    address, code, shape, *given = spec
    cdef tuple sites = tuple(given[0]) if given else ()
    entry.source = <const char *> address
    entry.code = check_code(code)
    entry.nbytes = count_bytes(shape, entry.code)
    entry.shape = <PyObject *> shape
    held.append(shape)
    if address == 0:
        raise errors.ShapeError("the address of an output must not be 0")
    entry.sites = <Site *> calloc_for(len(sites), sizeof(Site))
    entry.n_sites = fill_sites(entry.sites, sites, entry.nbytes, plan)
    return 0


cdef int fill_guard(Guard *entry, ArrayHandle handle, size_t address, list held) except -1:
    if handle is None or address == 0:
        raise errors.ShapeError("a guard needs a handle and the nonzero address of its data")
    held.append(handle)
    entry.handle = <PyObject *> handle
    entry.data = <char *> address
    return 0


cdef Py_ssize_t fill_sites(Site *entry, tuple sites, Py_ssize_t nbytes, PlanCore plan) except -1:
    for op, slot, offset in sites:
        if nbytes == 0:
            offset = 0  # a kernel reads nothing of an empty array, so any offset is valid
        if not 0 <= offset <= nbytes:
            raise errors.ShapeError(f"site offset {offset} lies outside an array of {nbytes} bytes")
        entry.op, entry.slot, entry.offset = op, slot, offset
        entry.home = <void *> <size_t> plan.pointer(op, slot)
        entry += 1
    return len(sites)


# ---- Matching -------------------------------------------------------------------------------


cdef int other_type(int typenum) noexcept:
    """Return NumPy's other type number for the same integer type; C has two types of one width."""
    if sizeof(long) == sizeof(long long):
        if typenum == cnp.NPY_LONG:
            return cnp.NPY_LONGLONG
        if typenum == cnp.NPY_ULONG:
            return cnp.NPY_ULONGLONG
    elif sizeof(long) == sizeof(int):
        if typenum == cnp.NPY_INT:
            return cnp.NPY_LONG
        if typenum == cnp.NPY_UINT:
            return cnp.NPY_ULONG
    return typenum


cpdef object value_key(object value):
    """Return the key by which a value that is part of a program is compared: type and value.

    Floats are compared by their digits: 0.0 and -0.0 differ, and NaN equals NaN. Items of tuples
    and frozensets are compared by their own keys.
    """
    cdef object kind = type(value), base, key
    if isinstance(value, GENERIC):
        return kind, repr(value)
    if isinstance(value, float):
        base, key = float, float.__repr__(value)
    elif isinstance(value, complex):
        base, key = complex, complex.__repr__(value)
    elif isinstance(value, tuple):
        base, key = tuple, tuple(keys_of(tuple.__iter__(value)))
    elif isinstance(value, frozenset):
        base, key = frozenset, frozenset(keys_of(frozenset.__iter__(value)))
    else:
        return kind, value
    if kind is base or kind.__eq__ is base.__eq__:
        return kind, key
    return kind, key, value  # a class with its own __eq__


cdef list keys_of(object items):
    Py_EnterRecursiveCall(" while comparing static values")
    try:
        return [value_key(item) for item in items]
    finally:
        Py_LeaveRecursiveCall()


cdef int equal_static(object arg, object value) except -1:
    if arg is value:
        return True
    if type(arg) is not type(value):
        return False
    try:
        return PyObject_RichCompareBool(value_key(arg), value_key(value), Py_EQ)
    except Exception:  # an argument that cannot be compared does not match
        return False


cdef object GONE = object()
cdef object GENERIC = np.generic
cdef object FLOATING = np.floating
cdef object COUNTS = (np.integer, np.bool_)
cdef object ASARRAY = np.asarray


cpdef object plain_scalar(object value):
    if not isinstance(value, GENERIC):
        return value
    if isinstance(value, FLOATING):
        # A scalar narrower than float64 keeps its dtype, as it does without jit.
        return ASARRAY(value) if value.itemsize < 8 else float(value)
    return value.item() if isinstance(value, COUNTS) else value


# ---- Structures -----------------------------------------------------------------------------


cdef int collect(tuple node, object value, list leaves) except -1:
    """Return whether `value` has the structure of `node`; append its leaves in order.

    A comparison of keys may run any code, which may change `value`. So items are referenced during
    the comparison, and indices are checked against `node` before each access.
    """
    cdef Py_ssize_t i = 0
    kind, keys, children = node
    cdef Py_ssize_t count = PyTuple_GET_SIZE(<tuple> children)
    if <object> type(value) is not kind:
        return False
    if keys is not None:
        if not isinstance(value, dict):
            return collect_fields(value, <tuple> keys, <tuple> children, leaves)
        return collect_dict(<dict> value, <tuple> keys, <tuple> children, leaves)
    if isinstance(value, tuple):
        if PyTuple_GET_SIZE(<tuple> value) != count:
            return False
        for i in range(count):
            if not take(<tuple> children, i, <object> PyTuple_GET_ITEM(<tuple> value, i), leaves):
                return False
        return True
    if PyList_GET_SIZE(<list> value) != count:
        return False
    for i in range(count):
        if i >= PyList_GET_SIZE(<list> value):
            return False
        if not take(<tuple> children, i, <object> PyList_GET_ITEM(<list> value, i), leaves):
            return False
    return True


cdef int collect_dict(dict value, tuple keys, tuple children, list leaves) except -1:
    cdef PyObject *next_key
    cdef PyObject *next_child
    cdef Py_ssize_t position = 0, i = 0, count = PyTuple_GET_SIZE(keys)
    if PyDict_Size(value) != count:
        return False
    while PyDict_Next(value, &position, &next_key, &next_child):
        key, child = <object> next_key, <object> next_child
        if i == count or not equal_static(key, <object> PyTuple_GET_ITEM(keys, i)):
            return False
        if not take(children, i, child, leaves):
            return False
        i += 1
    return i == count


cdef int collect_fields(object value, tuple keys, tuple children, list leaves) except -1:
    """Do the same for a dataclass instance. A missing field is no match."""
    cdef Py_ssize_t i = 0
    names, fixed = keys
    for name in <tuple> names:
        child = getattr(value, name, GONE)
        if child is GONE or not take(children, i, child, leaves):
            return False
        i += 1
    for name, wanted in <tuple> fixed:
        if not equal_static(getattr(value, name, GONE), wanted):
            return False
    return True


cdef int take(tuple children, Py_ssize_t i, object value, list leaves) except -1:
    node = <object> PyTuple_GET_ITEM(children, i)
    if node is None:
        leaves.append(value)
        return True
    return collect(<tuple> node, value, leaves)


cdef tuple check_structure(node):
    """Check a structure and return it in the form that `collect` takes."""
    if not isinstance(node, tuple) or len(node) != 3:
        raise errors.JitError(f"structure: expected (type, keys, children), not {node!r}")
    kind, keys, children = node
    if not isinstance(kind, type):
        raise errors.JitError(
            f"structure: expected the type of a dict, list, tuple or dataclass, not {kind!r}")
    if not issubclass(kind, (dict, list, tuple)):
        return check_record(kind, keys, children)
    if (kind is dict) is not isinstance(keys, tuple) or (kind is not dict and keys is not None):
        raise errors.JitError(
            f"structure: a dict needs a tuple of keys, a list or tuple needs None, not {keys!r}")
    if not isinstance(children, tuple) or (keys is not None and len(keys) != len(children)):
        raise errors.JitError(
            f"structure: expected a tuple of children, one for each key, not {children!r}")
    if issubclass(kind, dict) and kind is not dict:
        raise errors.JitError(f"structure: a subclass of dict is not supported: {kind!r}")
    return kind, keys, tuple(None if c is None else check_structure(c) for c in children)


cdef tuple check_record(kind, keys, children):
    """Check the structure of a dataclass. Its keys are child names and (name, value) pairs."""
    if not hasattr(kind, "__dataclass_fields__"):
        raise errors.JitError(
            f"structure: expected the type of a dict, list, tuple or dataclass, not {kind!r}")
    names, fixed = keys
    if not isinstance(children, tuple) or len(names) != len(children):
        raise errors.JitError(
            f"structure: expected a child for each field name {names!r}, not {children!r}")
    known = tuple(names), tuple((name, value) for name, value in fixed)
    return kind, known, tuple(None if c is None else check_structure(c) for c in children)
