# cython: language_level=3, boundscheck=False, wraparound=False, binding=False, auto_pickle=False
"""The hot path of jit: check a signature with C comparisons, copy in, run the plan, hand out."""

cimport numpy as cnp
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsSsize_t
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memmove

from kernelrt._dispatch cimport PlanCore, list_of_samples, new_samples
from kernelrt._handle cimport (
    DIMS, FLOAT32, FLOAT64, ArrayHandle, Roster, check_code, count_bytes, hand_over, has_lineage,
    numpy_type, world,
)
from kernelrt._krt cimport KRT_OK, krt_sample, krt_status
from kernelrt._memory cimport BlockCache, Memory, new_memory, share_bytes
from kernelrt._modes cimport records_gradients
from kernelrt._names cimport Names

from kernelrt import errors
from kernelrt._memory import no_copies

cnp.import_array()

cdef extern from *:
    """
    /* An instance as __new__ makes it, without __init__. */
    static PyObject *bare_instance(PyTypeObject *type, PyObject *no_args)
    {
        return type->tp_new(type, no_args, NULL);
    }
    typedef PyObject *(*Call)(PyObject *, PyObject *, PyObject *);
    #define KRT_SET_CALL(type, call) ((PyTypeObject *)(type))->tp_call = (call)
    """
    object bare_instance(type type, tuple no_args)
    ctypedef object (*Call)(object self, object args, PyObject *kwargs)
    void set_call "KRT_SET_CALL"(type type, Call call)


cdef enum Kind:
    KIND_ARRAY = 0
    KIND_FLOAT = 1
    KIND_STATIC = 2

ARRAY = <int> KIND_ARRAY
FLOAT = <int> KIND_FLOAT
STATIC = <int> KIND_STATIC

cdef tuple NO_ARGS = ()

# How often a call makes way for lazy tensors that came meanwhile; other threads may go on for ever.
cdef enum:
    MOST_PASSES = 4


class Mismatch:
    __slots__ = ()

    def __repr__(self):
        return "MISMATCH"


MISMATCH = Mismatch()
cdef object mismatch = MISMATCH


cdef int other_type(int typenum) noexcept:
    """C has two names for one of its integer widths, and NumPy a type number for each."""
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


cdef bint same_shape(PyObject *a, PyObject *b) noexcept:
    """Whether two tuples of dimensions are equal."""
    cdef Py_ssize_t i, n
    if a == b:
        return True
    n = PyTuple_GET_SIZE(<tuple> a)
    if n != PyTuple_GET_SIZE(<tuple> b):
        return False
    for i in range(n):
        if (PyLong_AsSsize_t(<object> PyTuple_GET_ITEM(<tuple> a, i))
                != PyLong_AsSsize_t(<object> PyTuple_GET_ITEM(<tuple> b, i))):
            return False
    return True


# ---- Specs ----------------------------------------------------------------------------------


cdef struct Site:
    size_t op
    size_t slot
    Py_ssize_t offset
    void *home  # the plan's own buffer, bound again behind each call


cdef struct Input:
    Kind kind
    int code
    int typenum  # of NumPy, and the other number of the same type
    int other
    int ndim
    Py_ssize_t nbytes
    char *home
    Site *sites
    Py_ssize_t n_sites
    PyObject *value  # borrowed from Replay.held: the static's value, or the array's shape
    bint by_value  # of a static: whether an equal object matches, too
    bint plain  # of an array: whether gradients must not flow into it
    uint64_t flag  # of an array that gradients of a result would flow into; several may share one
    uint64_t copied  # of an array: the last turn in which it was copied by NumPy
    cnp.npy_intp dims[DIMS]


cdef struct Output:
    const char *source
    int code
    Py_ssize_t nbytes
    Site *sites
    Py_ssize_t n_sites
    PyObject *shape  # borrowed from Replay.held
    PyObject *severed  # what the result is marked with; borrowed from there, or NULL
    uint64_t given  # the flags of arguments whose lineage it continues


cdef struct Guard:
    PyObject *handle  # borrowed from Replay.held
    char *data


cdef struct Range:
    char *begin
    char *end


cdef void *calloc_for(Py_ssize_t count, size_t size) except NULL:
    cdef void *table = PyMem_Calloc(<size_t> count + 1, size)
    if table == NULL:
        raise errors.OutOfMemoryError("no memory for a replay")
    return table


cdef int is_array(const Input *spec, PyObject *arg) except -1:
    """Whether `arg` is, at this moment, an array as `spec` has it."""
    cdef ArrayHandle handle
    cdef const cnp.npy_intp *dims
    cdef int typenum, i
    if cnp.PyArray_CheckExact(<object> arg):
        typenum = cnp.PyArray_TYPE(<cnp.ndarray> arg)
        if ((typenum != spec.typenum and typenum != spec.other)
                or cnp.PyArray_NDIM(<cnp.ndarray> arg) != spec.ndim
                or not cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray> arg)):
            return False
        dims = cnp.PyArray_DIMS(<cnp.ndarray> arg)
        for i in range(spec.ndim):
            if dims[i] != spec.dims[i]:
                return False
        return True
    if not isinstance(<object> arg, ArrayHandle):
        return False
    handle = <ArrayHandle> arg
    return (handle.data != NULL and handle.code == spec.code
            and not (spec.plain and has_lineage(handle))
            and same_shape(<PyObject *> handle.shape, spec.value))


cdef bint is_strided(PyObject *arg) noexcept:
    return (cnp.PyArray_CheckExact(<object> arg)
            and not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> arg))


cdef int matches(const Input *spec, PyObject *arg) except -1:
    if spec.kind == KIND_ARRAY:
        return is_array(spec, arg)
    if spec.kind == KIND_FLOAT:
        return PyFloat_Check(<object> arg)
    return arg == spec.value or (
        spec.by_value and equal_static(<object> arg, <object> spec.value)
    )


cdef int equal_static(object arg, object value) except -1:
    if type(arg) is not type(value):
        return False
    try:
        return PyObject_RichCompareBool(arg, value, Py_EQ)
    except Exception:  # an argument that cannot be compared is not the one that was traced
        return False


cdef int collect(tuple node, object value, list leaves) except -1:
    """Whether `value` has the structure of `node`; its leaves are appended in order.

    A comparison of keys may run any code: what it may take out of `value` is held meanwhile, and
    what it may add is never looked up in `node`.
    """
    cdef Py_ssize_t i = 0
    kind, keys, children = node
    cdef Py_ssize_t count = PyTuple_GET_SIZE(<tuple> children)
    if <object> type(value) is not kind:
        return False
    if keys is not None:
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
    cdef Py_ssize_t place = 0, i = 0, count = PyTuple_GET_SIZE(keys)
    if PyDict_Size(value) != count:
        return False
    while PyDict_Next(value, &place, &next_key, &next_child):
        key, child = <object> next_key, <object> next_child
        if i == count or not same_key(key, <object> PyTuple_GET_ITEM(keys, i)):
            return False
        if not take(children, i, child, leaves):
            return False
        i += 1
    return i == count


cdef int take(tuple children, Py_ssize_t i, object value, list leaves) except -1:
    node = <object> PyTuple_GET_ITEM(children, i)
    if node is None:
        leaves.append(value)
        return True
    return collect(<tuple> node, value, leaves)


cdef tuple check_structure(node):
    """A structure as `collect` relies on it."""
    if not isinstance(node, tuple) or len(node) != 3:
        raise errors.JitError(f"a structure is (type, keys, children), not {node!r}")
    kind, keys, children = node
    if not isinstance(kind, type) or not issubclass(kind, (dict, list, tuple)):
        raise errors.JitError(f"a structure is of dicts, lists and tuples, not {kind!r}")
    if (kind is dict) is not isinstance(keys, tuple) or (kind is not dict and keys is not None):
        raise errors.JitError(f"a dict has a tuple of keys, and nothing else has: {keys!r}")
    if not isinstance(children, tuple) or (keys is not None and len(keys) != len(children)):
        raise errors.JitError(f"a structure has a tuple of children: {children!r}")
    if issubclass(kind, dict) and kind is not dict:
        raise errors.JitError(f"a structure has plain dicts, not {kind!r}")
    return kind, keys, tuple(None if c is None else check_structure(c) for c in children)


cdef bint all_empty(tuple registers):
    for register in registers:
        if type(register) is Roster:
            if (<Roster> register).count != 0:
                return False
        elif PyDict_Size(<dict> register) != 0:
            return False
    return True


cdef tuple check_registers(registers):
    registers = tuple(registers)
    for register in registers:
        if type(register) is not Roster and not isinstance(register, dict):
            raise errors.JitError(f"a register must be a dict or a Roster, not {register!r}")
    return registers


cdef int same_key(object a, object b) except -1:
    return a is b or (type(a) is type(b) and a == b)


# ---- Replays --------------------------------------------------------------------------------


cdef class Replay:
    """One prepared plan together with the calling convention of the traced function."""

    cdef readonly PlanCore plan
    cdef Py_ssize_t n_args  # -1 until everything is in place
    cdef Py_ssize_t n_calls
    cdef type result_type
    cdef object build
    cdef tuple structure
    cdef tuple registers
    cdef object make_way
    cdef list births  # grows with each lazy tensor; or None
    cdef object watch
    cdef object entry  # held from the look at the watch until the run is over; or None
    cdef Names names  # variables that the function read, or None
    cdef int records  # 0 and 1: for calls that do not or do record gradients; -1: for all
    cdef unsigned long long seen  # `world` at a run that `watch` had nothing to do for
    cdef readonly object bindings  # gives the values and chunk counts to run with, or None
    cdef BlockCache results_from
    cdef list held
    cdef list owners  # of the memory of tensors that are bound: a thread may take it from them
    cdef uint64_t turn
    cdef dict strided  # input index -> an ndarray over its home, to copy strided arrays into
    cdef Input *inputs
    cdef Output *outputs
    cdef Guard *guards
    cdef Range *writes
    cdef Py_ssize_t n_inputs, n_outputs, n_guards, n_writes
    cdef bint binds
    cdef bint severs  # whether a result is marked in any case
    cdef uint64_t given  # in the plan's turn: flags of arguments that have a lineage
    cdef object by_argument  # what marks the results that continue it
    cdef bint begun

    def __cinit__(self, *args, **kwargs):
        self.n_args = -1

    def __init__(self, PlanCore plan not None, inputs, outputs, type result_type not None, *,
                 build=None, bindings=None, structure=None, registers=(), make_way=None,
                 list births=None, watch=None, entry=None, Names names=None, int records=-1, guards=(), writes=(), keep=None,
                 BlockCache results_from=None, severed=(), by_argument=None):
        if self.begun:
            raise errors.JitError("a replay is initialised once")
        self.begun = True  # before any other code, which may come back here
        if not issubclass(result_type, ArrayHandle):
            raise errors.DTypeError(f"result_type must extend ArrayHandle: {result_type!r}")
        inputs, outputs = tuple(inputs), tuple(outputs)
        guards, writes = tuple(guards), tuple(writes)
        self.plan = plan
        self.result_type = result_type
        self.build = build
        self.bindings = bindings
        self.structure = None if structure is None else check_structure(structure)
        self.results_from = results_from
        self.registers = check_registers(registers)
        self.make_way = make_way
        self.births = births
        self.watch = watch
        self.entry = entry
        self.names = names
        self.records = records
        self.held = [keep, inputs, outputs, guards]
        self.strided = {}
        self.inputs = <Input *> calloc_for(len(inputs), sizeof(Input))
        self.outputs = <Output *> calloc_for(len(outputs), sizeof(Output))
        self.guards = <Guard *> calloc_for(len(guards), sizeof(Guard))
        self.writes = <Range *> calloc_for(len(writes), sizeof(Range))
        for spec in inputs:
            self.add_input(self.inputs + self.n_inputs, spec)
        for address, code, shape, *sites in outputs:
            self.add_output(self.outputs + self.n_outputs, address, code, shape,
                            tuple(sites[0]) if sites else ())
        self.by_argument = by_argument
        for i, (mark, given) in enumerate(severed):
            self.sever(i, mark, given)
        for handle, address in guards:
            self.add_guard(self.guards + self.n_guards, handle, address)
        for begin, end in writes:
            self.writes[self.n_writes].begin = <char *> <size_t> begin
            self.writes[self.n_writes].end = <char *> <size_t> end
            self.n_writes += 1
        self.n_args = self.n_inputs

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n_inputs):
            PyMem_Free(self.inputs[i].sites)
        for i in range(self.n_outputs):
            PyMem_Free(self.outputs[i].sites)
        PyMem_Free(self.inputs)
        PyMem_Free(self.outputs)
        PyMem_Free(self.guards)
        PyMem_Free(self.writes)

    cdef int add_input(self, Input *entry, tuple spec) except -1:
        self.n_inputs += 1
        entry.kind = spec[0]
        if entry.kind == KIND_STATIC:
            _, value, by_value = spec
            self.held.append(value)
            entry.by_value = by_value
            entry.value = <PyObject *> value
        elif entry.kind == KIND_FLOAT:
            _, code, address = spec
            entry.code = check_code(code)
            if entry.code != FLOAT32 and entry.code != FLOAT64:
                raise errors.DTypeError("a float input is float32 or float64")
            entry.home = <char *> <size_t> address
        elif entry.kind == KIND_ARRAY:
            _, code, shape, address, sites, *plain = spec
            entry.plain = bool(plain and plain[0])
            self.add_array(entry, check_code(code), shape, address, tuple(sites))
        else:
            raise errors.DTypeError(f"an input is ARRAY, FLOAT or STATIC, not {spec[0]!r}")
        if entry.kind != KIND_STATIC and entry.home == NULL:
            raise errors.ShapeError("the address of an input must not be 0")
        return 0

    cdef int add_array(self, Input *entry, int code, tuple shape, size_t address,
                       tuple sites) except -1:
        entry.code = code
        entry.nbytes = count_bytes(shape, code)
        entry.typenum = numpy_type(code)
        entry.other = other_type(entry.typenum)
        entry.ndim = <int> len(shape)
        for i, dim in enumerate(shape):
            entry.dims[<Py_ssize_t> i] = dim
        entry.value = <PyObject *> shape
        self.held.append(shape)
        entry.home = <char *> address
        entry.sites = <Site *> calloc_for(len(sites), sizeof(Site))
        entry.n_sites = self.fill_sites(entry.sites, sites, entry.nbytes)
        return 0

    cdef Py_ssize_t fill_sites(self, Site *entry, tuple sites, Py_ssize_t nbytes) except -1:
        for op, slot, offset in sites:
            if nbytes == 0:
                offset = 0  # of nothing a kernel reads nothing, wherever a part of it begins
            if not 0 <= offset <= nbytes:
                raise errors.ShapeError(f"site offset {offset} lies outside {nbytes} bytes")
            entry.op, entry.slot, entry.offset = op, slot, offset
            entry.home = <void *> <size_t> self.plan.pointer(op, slot)
            entry += 1
            self.binds = True
        return len(sites)

    cdef int add_output(self, Output *entry, size_t address, code, tuple shape,
                        tuple sites) except -1:
        self.n_outputs += 1
        entry.source = <const char *> address
        entry.code = check_code(code)
        entry.nbytes = count_bytes(shape, entry.code)
        entry.shape = <PyObject *> shape
        self.held.append(shape)
        if address == 0:
            raise errors.ShapeError("the address of an output must not be 0")
        entry.sites = <Site *> calloc_for(len(sites), sizeof(Site))
        entry.n_sites = self.fill_sites(entry.sites, sites, entry.nbytes)
        return 0

    cdef int sever(self, Py_ssize_t i, mark, given) except -1:
        cdef Py_ssize_t place
        if i >= self.n_outputs:
            raise errors.JitError(f"there is no output {i} to be marked")
        if mark is not None:
            self.held.append(mark)
            self.outputs[i].severed = <PyObject *> mark
            self.severs = True
        for place in given:
            if not 0 <= place < self.n_inputs or self.inputs[place].kind != KIND_ARRAY:
                raise errors.JitError(f"there is no array argument {place}")
            self.inputs[place].flag = <uint64_t> 1 << min(place, 63)
            self.outputs[i].given |= self.inputs[place].flag
        return 0

    cdef int add_guard(self, Guard *entry, ArrayHandle handle, size_t address) except -1:
        if handle is None or address == 0:
            raise errors.ShapeError("a guard is a handle and the address of its data")
        self.held.append(handle)
        entry.handle = <PyObject *> handle
        entry.data = <char *> address
        self.n_guards += 1
        return 0

    @property
    def calls(self):
        return self.n_calls

    def __reduce__(self):
        no_copies(self)

    def __call__(self, *args):
        return self.with_leaves(args)

    cdef object attempt(self, tuple args):
        """MISMATCH or the results."""
        cdef list leaves
        if self.structure is not None:
            leaves = []
            if not collect(self.structure, args, leaves):
                return mismatch
            args = tuple(leaves)
        return self.with_leaves(args)

    def load(self, *args):
        """Copy arguments in, each to its place in the plan's memory; MISMATCH, or None."""
        cdef bint held = False
        if not self.takes(args):
            return mismatch
        if not all_empty(self.registers):
            self.make_way()
        self.plan.acquire()
        try:
            held = self.settled() and self.copy_in(args, False)
        finally:
            self.plan.leave()
        return None if held else mismatch

    def profile(self, *args):
        """Run as a call does, without results; MISMATCH, or the samples of the kernels."""
        cdef krt_sample *samples = new_samples(self.plan.count)
        try:
            if self.results_of(args, samples) is None:
                return mismatch
            return list_of_samples(samples, self.plan.count)
        finally:
            PyMem_Free(samples)

    cdef object with_leaves(self, tuple args):
        """MISMATCH or the results."""
        results = self.results_of(args, NULL)
        if results is None:
            return mismatch
        if self.build is not None:
            return self.build(*results)
        return <object> PyTuple_GET_ITEM(results, 0) if self.n_outputs == 1 else results

    cdef bint takes(self, tuple args) except -1:
        """Whether this was made for such arguments, where it is called."""
        cdef Py_ssize_t i
        if PyTuple_GET_SIZE(args) != self.n_args:
            return False
        for i in range(self.n_inputs):
            if not matches(self.inputs + i, PyTuple_GET_ITEM(args, i)):
                return False
        if self.records >= 0 and self.records != records_gradients():
            return False
        return self.names is None or self.names.hold()

    cdef tuple results_of(self, tuple args, krt_sample *samples):
        """The results, or None where it was made for something else."""
        cdef bint late = False
        if not self.takes(args):
            return None
        if self.watch is None or self.seen == world:
            results = self.run(args, None, self.seen, &late, samples)
            if not late:
                return results
        if self.entry is None:
            return self.watched(args, samples)
        with self.entry:
            return self.watched(args, samples)

    cdef tuple watched(self, tuple args, krt_sample *samples):
        """The results after a look at the Python objects that the plan depends on and changes."""
        cdef bint late = True
        cdef unsigned long long now
        cdef tuple settings = ()
        while late:
            now = world
            if not self.watch.fits():
                return None
            if not all_empty(self.registers):
                self.make_way()
            busy, handover, settings = self.watch.before()
            late = False
            results = self.run(args, handover, world, &late, samples)
        if results is not None and not busy:
            self.seen = now  # what changed a gradient let `world` grow beyond
        if results is not None:
            for tensor, required in settings:
                tensor.requires_grad_(required)
        return results

    cdef tuple run(self, tuple args, tuple handover, unsigned long long known, bint *late,
                   krt_sample *samples):
        """The results; None, and nothing done, where something is not as it was traced.

        It is `late` where the world has changed since it was `known`, up to the plan's turn: then
        `handover` is not what there is to be done.
        """
        cdef krt_status status
        cdef size_t op = 0
        cdef int passes = 0
        cdef tuple results
        cdef list owners  # gone when the turn is over: their end may run any code
        cdef list dropped = None if handover is None else []  # likewise
        while True:
            passes += 1
            births = None if self.births is None else self.births[0]
            if not all_empty(self.registers):
                births = self.make_way()
            self.plan.acquire()
            if self.watch is not None and world != known:
                late[0] = True
                self.plan.leave()
                return None
            try:
                results = self.make_results() if self.settled() else None
                # Whatever can fail comes before the run, which may commit to state.
                if results is None or not self.copy_in(args, True):
                    owners = self.unbind()
                    self.plan.leave()
                    return None
                if passes < MOST_PASSES and self.overtaken(births):
                    owners = self.unbind()
                    self.plan.leave()
                    continue
                self.bind_results(results)
            except BaseException:
                owners = self.unbind()
                self.plan.leave()
                raise
            break
        status = self.plan.run(samples, &op)
        if status == KRT_OK:
            self.copy_out(results)
            self.n_calls += 1
            if handover is not None:
                self.settle(handover, dropped)
        owners = self.unbind()
        self.plan.finish(status, op)
        return results

    cdef bint overtaken(self, births) except -1:
        """Whether code that came in between has made lazy tensors since all was done for them."""
        if self.births is None or births is None or births == -1 or all_empty(self.registers):
            return False
        return births != self.births[0]

    cdef int settle(self, tuple handover, list dropped) except -1:
        """Do what goes with the run, which has written to state: nothing comes in between."""
        try:
            return hand_over(handover, dropped)
        except BaseException:
            dropped.append(self.unbind())
            self.plan.leave()
            raise

    cdef bint settled(self) except -1:
        """Let the plan have the numbers of this replay; whether its state is where it was."""
        if self.bindings is not None and self.plan.bound_by is not self:
            self.plan.bound_by = None
            self.plan.assign(self.bindings())
            self.plan.bound_by = self
        return self.guarded()

    cdef bint guarded(self) noexcept:
        """Whether the state that the plan was made for is where it was."""
        cdef Py_ssize_t i
        for i in range(self.n_guards):
            if (<ArrayHandle> self.guards[i].handle).data != self.guards[i].data:
                return False
        return True

    cdef bint copy_in(self, tuple args, bint bind) except -1:
        """Put the arguments in place; False where one of them is not any more what it was.

        Where that can be done, and `bind` is true, the plan reads them where they are.

        Since they were matched any code may have run, and done anything to them. From here to the
        run nobody else does, except while NumPy copies: behind that everything begins again.
        """
        cdef Py_ssize_t i = 0
        cdef Input *spec
        cdef PyObject *arg
        cdef double value
        self.given = 0
        self.turn += 1
        while i < self.n_inputs:
            spec = self.inputs + i
            arg = PyTuple_GET_ITEM(args, i)
            if spec.kind == KIND_ARRAY:
                if not is_array(spec, arg):
                    return False
                if not is_strided(arg):
                    self.take_array(spec, <object> arg, bind)
                elif spec.copied != self.turn:
                    spec.copied = self.turn
                    self.copy_strided(spec, i, <cnp.ndarray> arg)
                    i = 0
                    continue
            elif spec.kind == KIND_FLOAT:
                value = PyFloat_AS_DOUBLE(<object> arg)
                if spec.code == FLOAT32:
                    (<float *> spec.home)[0] = <float> value
                else:
                    (<double *> spec.home)[0] = value
            i += 1
        return True

    cdef int take_array(self, Input *spec, object arg, bint bind) except -1:
        cdef char *data
        cdef bint aligned = True
        cdef bint array = cnp.PyArray_CheckExact(arg)
        if array:
            data = <char *> cnp.PyArray_DATA(<cnp.ndarray> arg)
            aligned = cnp.PyArray_ISALIGNED(<cnp.ndarray> arg)
        else:
            data = (<ArrayHandle> arg).data
            if spec.flag and has_lineage(<ArrayHandle> arg):
                self.given |= spec.flag
        if bind and spec.n_sites and aligned and not self.overlaps(data, spec.nbytes):
            if not array:
                if self.owners is None:
                    self.owners = []
                self.owners.append((<ArrayHandle> arg).memory if (<ArrayHandle> arg).hold is None
                                   else (<ArrayHandle> arg).hold)
            self.point(spec.sites, spec.n_sites, data)
        elif spec.nbytes:
            memmove(spec.home, data, <size_t> spec.nbytes)
        return 0

    cdef int copy_strided(self, Input *spec, Py_ssize_t index, cnp.ndarray arg) except -1:
        target = self.strided.get(index)
        if target is None:
            target = cnp.PyArray_SimpleNewFromData(spec.ndim, spec.dims, spec.typenum, spec.home)
            self.strided[index] = target
        return cnp.PyArray_CopyInto(<cnp.ndarray> target, arg)

    cdef bint overlaps(self, const char *data, Py_ssize_t nbytes) noexcept:
        cdef Py_ssize_t i
        for i in range(self.n_writes):
            if share_bytes(data, nbytes, self.writes[i].begin,
                           self.writes[i].end - self.writes[i].begin):
                return True
        return False

    cdef void bind_results(self, tuple results) noexcept:
        """Let the plan write results where the caller will find them, and mark these."""
        cdef Py_ssize_t i
        for i in range(self.n_outputs):
            self.point(self.outputs[i].sites, self.outputs[i].n_sites,
                       (<ArrayHandle> PyTuple_GET_ITEM(results, i)).data)
        if (self.severs or self.given) and (self.records >= 0 or records_gradients()):
            self.mark(results)

    cdef void point(self, const Site *sites, Py_ssize_t count, char *data) noexcept:
        """Bind `sites` to `data`, or home again if that is NULL."""
        cdef Py_ssize_t i
        for i in range(count):
            self.plan.bind(sites[i].op, sites[i].slot,
                           sites[i].home if data == NULL else data + sites[i].offset)

    cdef list unbind(self):
        """Point every site home again: the plan must not hold on to what the caller may free."""
        cdef Py_ssize_t i
        cdef list owners = self.owners
        if not self.binds:
            return None
        for i in range(self.n_inputs):
            self.point(self.inputs[i].sites, self.inputs[i].n_sites, NULL)
        for i in range(self.n_outputs):
            self.point(self.outputs[i].sites, self.outputs[i].n_sites, NULL)
        self.owners = None
        return owners

    cdef tuple make_results(self):
        """Bare handles over fresh memory."""
        cdef Py_ssize_t i
        cdef ArrayHandle handle
        cdef Memory memory
        cdef tuple results = PyTuple_New(self.n_outputs)
        for i in range(self.n_outputs):
            memory = new_memory(self.results_from, self.outputs[i].nbytes)
            handle = <ArrayHandle?> bare_instance(self.result_type, NO_ARGS)
            handle.memory = memory
            handle.data = memory.data
            handle.code = self.outputs[i].code
            handle.shape = <tuple> self.outputs[i].shape
            handle.nbytes = self.outputs[i].nbytes
            Py_INCREF(handle)
            PyTuple_SET_ITEM(results, i, handle)
        return results

    cdef void mark(self, tuple results) noexcept:
        cdef Py_ssize_t i
        cdef PyObject *severed
        for i in range(self.n_outputs):
            severed = self.outputs[i].severed
            if self.outputs[i].given & self.given:
                severed = <PyObject *> self.by_argument
            if severed != NULL:
                Py_INCREF(<object> severed)
                (<ArrayHandle> PyTuple_GET_ITEM(results, i)).severed = severed

    cdef void copy_out(self, tuple results) noexcept:
        cdef Py_ssize_t i
        cdef ArrayHandle handle
        for i in range(self.n_outputs):
            handle = <ArrayHandle> PyTuple_GET_ITEM(results, i)
            if handle.nbytes and self.outputs[i].n_sites == 0:
                memcpy(handle.data, self.outputs[i].source, <size_t> handle.nbytes)


cdef class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`."""

    cdef Replay latest
    cdef list replays
    cdef tuple registers
    cdef tuple names

    def __cinit__(self, *args, **kwargs):
        self.replays = []
        self.registers = ()
        self.names = ()

    def __call__(self, *args, **kwargs):
        return self.call(args, kwargs)

    cdef object call(self, tuple args, dict kwargs):
        """A call; `kwargs` is None where there are none."""
        # Held here: another thread may clear the replays while this one runs.
        cdef Replay latest = self.latest
        cdef Replay replay
        cdef tuple given = args
        if latest is not None and all_empty(self.registers):
            if kwargs:
                given = self.by_position(args, kwargs)
            if given is not None:
                result = latest.attempt(given)
                if result is not mismatch:
                    return result
                for replay in self.replays:
                    if replay is not latest:
                        result = replay.attempt(given)
                        if result is not mismatch:
                            self.latest = replay
                            return result
        return self._slow(args, {} if kwargs is None else kwargs)

    cdef tuple by_position(self, tuple args, dict kwargs):
        """All arguments in the order of the parameters; None where that cannot be done."""
        cdef Py_ssize_t i
        cdef Py_ssize_t first = len(args)
        cdef Py_ssize_t count = first + len(kwargs)
        cdef list given
        if count > len(self.names):
            return None
        given = list(args)
        for i in range(first, count):
            name = self.names[i]
            if name not in kwargs:
                return None
            given.append(kwargs[name])
        return tuple(given)

    def _name_parameters(self, names):
        self.names = tuple(names)

    def _slow(self, args, kwargs):
        raise NotImplementedError("a subclass traces here")

    def _require_empty(self, registers):
        self.registers = check_registers(registers)

    def _add_replay(self, Replay replay not None):
        # A new list, so that a call which is going through the old one is not disturbed.
        self.replays = [*self.replays, replay]
        self.latest = replay

    def _clear_replays(self):
        self.replays = []
        self.latest = None

    @property
    def _replays(self):
        return tuple(self.replays)


cdef object call_jit(object self, object args, PyObject *kwargs):
    return (<JitCore> self).call(<tuple> args, None if kwargs == NULL else <dict> kwargs)


# Cython's own would make a dict of keyword arguments for each call, and mostly there are none.
set_call(JitCore, call_jit)
