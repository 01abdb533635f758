# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""The hot path of jit: find the replay for the arguments, copy them in, run, return results."""

cimport cython
cimport numpy as cnp
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.mem cimport PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memmove

from kernelrt.native.core cimport BURST_NS
from kernelrt._dispatch cimport PlanCore, Profile
from kernelrt.native.array_handle cimport (
    FLOAT32, ArrayHandle, all_empty, check_registers, count_bytes, hand_over, lineage, world,
)
from kernelrt.native.krt cimport KRT_OK, krt_sample, krt_status
from kernelrt.native.memory cimport BlockCache, Memory, new_memory, share_bytes
from kernelrt.native.thread_modes cimport debugging, debugs, records_gradients
from kernelrt.native.name_guards cimport Names
from kernelrt.native.signature cimport (
    KIND_ARRAY, KIND_FLOAT, Guard, Input, Output, Site, calloc_for, check_structure, collect,
    fill_guard, fill_input, fill_output, is_array, is_strided, matches, plain_scalar,
)

from kernelrt import errors
from kernelrt.native.memory import no_copies

cnp.import_array()

cdef extern from *:
    """
    /* Create an instance with __new__, without __init__. */
    static PyObject *bare_instance(PyTypeObject *type, PyObject *no_args)
    {
        return type->tp_new(type, no_args, NULL);
    }
    """
    object bare_instance(type type, tuple no_args)

cdef tuple NO_ARGS = ()

# Maximum number of times that a call processes new lazy tensors before its run. Other threads may
# create them without end.
cdef enum:
    MOST_PASSES = 4


class Mismatch:
    __slots__ = ()

    def __repr__(self):
        return "MISMATCH"


MISMATCH = Mismatch()
cdef object mismatch = MISMATCH


@cython.final
cdef class Replay:
    """A prepared plan together with the calling convention of the traced function."""

    def __cinit__(self, *args, **kwargs):
        self.n_args = -1

    def __init__(self, PlanCore plan not None, inputs, outputs, type result_type not None, *,
                 build=None, bindings=None, structure=None, registers=(), make_way=None,
                 list births=None, watch=None, entry=None, Names names=None, int records=-1,
                 guards=(), writes=(), keep=None, BlockCache results_from=None, severed=(),
                 by_argument=None):
        if self.begun:
            raise errors.JitError("a replay can be initialised only once")
        self.begun = True  # before any code that may call __init__ again
        if not issubclass(result_type, ArrayHandle):
            raise errors.DTypeError(
                f"result_type: expected a subclass of ArrayHandle, not {result_type!r}")
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
            self.n_inputs += 1
            fill_input(self.inputs + self.n_inputs - 1, spec, plan, self.held)
            self.binds |= self.inputs[self.n_inputs - 1].n_sites > 0
        for spec in outputs:
            self.n_outputs += 1
            fill_output(self.outputs + self.n_outputs - 1, tuple(spec), plan, self.held)
            self.binds |= self.outputs[self.n_outputs - 1].n_sites > 0
        self.by_argument = by_argument
        for i, (mark, given) in enumerate(severed):
            self.sever(i, mark, given)
        for handle, address in guards:
            fill_guard(self.guards + self.n_guards, handle, address, self.held)
            self.n_guards += 1
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

    cdef int sever(self, Py_ssize_t i, mark, given) except -1:
        cdef Py_ssize_t arg
        if i >= self.n_outputs:
            raise errors.JitError(f"severed: there is no output {i}")
        if mark is not None:
            self.held.append(mark)
            self.outputs[i].severed = <PyObject *> mark
            self.severs = True
        for arg in given:
            if not 0 <= arg < self.n_inputs or self.inputs[arg].kind != KIND_ARRAY:
                raise errors.JitError(f"severed: there is no array argument {arg}")
            self.inputs[arg].flag = <uint64_t> 1 << min(arg, 63)
            self.outputs[i].given |= self.inputs[arg].flag
        return 0

    @property
    def calls(self):
        return self.n_calls

    def __reduce__(self):
        no_copies(self)

    def __call__(self, *args):
        return self.with_leaves(args)

    cdef object attempt(self, tuple args):
        """Return the results for arguments as they were passed, or MISMATCH."""
        cdef list leaves
        if self.most_calls and self.n_calls >= self.most_calls:
            return mismatch
        if self.structure is not None:
            leaves = []
            if not collect(self.structure, args, leaves):
                return mismatch
            args = tuple(leaves)
        return self.with_leaves(args)

    def load(self, *args):
        """Copy each argument to its address in the plan's memory. Return None, or MISMATCH."""
        cdef bint held = False
        if not self.takes(args, NULL):
            return mismatch
        if not all_empty(self.registers):
            self.make_way()
        self.plan.acquire()
        try:
            held = self.settled() and self.copy_in(args, False, NULL)
        finally:
            self.plan.leave()
        return None if held else mismatch

    def profile(self, *args):
        """Run like a call, and return the samples of the kernels, or MISMATCH."""
        cdef Profile profile = Profile(self.plan)
        if self.results_of(args, &profile.raw, NULL, None) is None:
            return mismatch
        return profile.rows()

    cdef object with_leaves(self, tuple args):
        """Return the results for the leaves of the arguments, or MISMATCH."""
        results = self.results_of(args, NULL, NULL, None)
        if results is None:
            return mismatch
        if self.build is not None:
            return self.build(*results)
        return <object> PyTuple_GET_ITEM(results, 0) if self.n_outputs == 1 else results

    cdef bint takes(self, tuple args, const StepBatch *batch) except -1:
        """Return whether the replay matches these arguments in the present state.

        Arguments that a `batch` has rows for match already.
        """
        cdef Py_ssize_t i
        if PyTuple_GET_SIZE(args) != self.n_args:
            return False
        for i in range(self.n_inputs):
            if batch != NULL and batch.sources[i].data != NULL:
                continue
            if not matches(self.inputs + i, PyTuple_GET_ITEM(args, i)):
                return False
        if self.records >= 0 and self.records != records_gradients():
            return False
        return self.names is None or self.names.hold()

    cdef tuple results_of(self, tuple args, krt_profile *profile, StepBatch *batch, tuple into):
        """Run and return the results; return None if the replay does not match.

        With a `batch`, run one or several steps of many, whose results are stacked in `into`.
        """
        cdef bint late = False
        if not self.takes(args, batch):
            return None
        if self.watch is None or self.seen == world:
            results = self.run(args, None, self.seen, &late, profile, batch, into)
            if not late:
                return results
        if self.entry is None:
            return self.watched(args, profile, batch, into)
        with self.entry:
            return self.watched(args, profile, batch, into)

    cdef tuple watched(self, tuple args, krt_profile *profile, StepBatch *batch, tuple into):
        """Check the Python state that the plan depends on, then run and return the results."""
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
            results = self.run(args, handover, world, &late, profile, batch, into)
        if results is not None and not busy:
            self.seen = now  # if the run changed a gradient, `world` is greater
        if results is not None:
            for tensor, required in settings:
                tensor.requires_grad_(required)
        return results

    cdef tuple run(self, tuple args, tuple handover, unsigned long long known, bint *late,
                   krt_profile *profile, StepBatch *batch, tuple into):
        """Run and return the results; return None without a run if the state does not match.

        Set `late` if `world` differs from `known` when the plan is locked: then `handover` is not
        up to date.
        """
        cdef krt_status status
        cdef size_t op = 0
        cdef int passes = 0
        cdef tuple results
        cdef list owners  # dropped after the plan is released: destroying them may run any code
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
                results = None
                if self.settled():
                    results = self.make_results(-1) if into is None else into
                # Everything that can fail precedes the run, which may write state.
                if results is None or not self.copy_in(args, True, batch):
                    owners = self.unbind()
                    self.plan.leave()
                    return None
                if passes < MOST_PASSES and self.overtaken(births):
                    owners = self.unbind()
                    self.plan.leave()
                    continue
                self.bind_results(results, batch)
            except BaseException:
                owners = self.unbind()
                self.plan.leave()
                raise
            break
        if batch != NULL and handover is None:
            status = self.go_on(results, batch, &op)
        else:
            status = self.plan.run(profile, &op, False)
            if status == KRT_OK:
                self.copy_out(results, batch)
                self.n_calls += 1
                if batch != NULL:
                    step_on(batch)
                if handover is not None:
                    self.settle(handover, dropped)
        owners = self.unbind()
        self.plan.finish(status, op)
        return results

    cdef krt_status go_on(self, tuple results, StepBatch *batch, size_t *op) noexcept:
        """Run up to `batch.ahead` steps. The arguments and results of the first are bound.

        Several steps run only while this thread keeps the GIL, so that all checks stay valid. Stop
        if other Python code has run nevertheless.
        """
        cdef krt_status status
        cdef Py_ssize_t i, clock_period = 0, done = 0
        cdef int64_t copies_ns = 0, end = 0
        cdef bint keep_gil
        if not self.aliased:
            for i in range(self.n_inputs):
                if batch.sources[i].data == NULL:
                    continue
                if not self.stays(self.inputs + i, batch.sources + i, batch):
                    copies_ns += gather_ns(batch.sources + i, batch)
            clock_period = self.plan.runs_per_clock_read(copies_ns)
        keep_gil = clock_period > 0 and batch.ahead > 1
        if keep_gil:
            end = self.plan.now() + BURST_NS
        cdef unsigned long long before = self.plan.called_back
        while True:
            status = self.plan.run(NULL, op, keep_gil)
            if status != KRT_OK:
                return status
            self.copy_out(results, batch)
            self.n_calls += 1
            step_on(batch)
            done += 1
            if not keep_gil or done == batch.ahead or self.plan.called_back != before:
                return KRT_OK
            if done % clock_period == 0 and self.plan.now() >= end:
                return KRT_OK
            for i in range(self.n_inputs):
                if batch.sources[i].data != NULL:
                    self.take_rows(self.inputs + i, batch.sources + i, batch)
            self.bind_outputs(results, batch)

    cdef bint overtaken(self, births) except -1:
        """Return whether lazy tensors were created after the last call of `make_way`."""
        if self.births is None or births is None or births == -1 or all_empty(self.registers):
            return False
        return births != self.births[0]

    cdef int settle(self, tuple handover, list dropped) except -1:
        """Do the work that belongs to the run, before other code can see the written state."""
        try:
            return hand_over(handover, dropped)
        except BaseException:
            dropped.append(self.unbind())
            self.plan.leave()
            raise

    cdef bint settled(self) except -1:
        """Set the plan's values for this replay; return whether its state is where it was."""
        if self.bindings is not None and self.plan.bound_by is not self:
            self.plan.bound_by = None
            self.plan.assign(self.bindings())
            self.plan.bound_by = self
        return self.guarded()

    cdef bint guarded(self) noexcept:
        """Return whether the data of all guarded handles are at their addresses."""
        cdef Py_ssize_t i
        for i in range(self.n_guards):
            if (<ArrayHandle> self.guards[i].handle).data != self.guards[i].data:
                return False
        return True

    cdef bint copy_in(self, tuple args, bint bind, const StepBatch *batch) except -1:
        """Copy or bind the arguments; return False if one of them has changed and does not match.

        If `bind` is true, bind arguments where possible, so that the plan reads them in place.

        Any code may have run since the arguments were matched. From here to the run no other code
        runs, except while NumPy copies a strided array: then all arguments are checked again.
        """
        cdef Py_ssize_t i = 0
        cdef Input *spec
        cdef PyObject *arg
        cdef double value
        self.given = 0
        self.aliased = False
        self.turn += 1
        while i < self.n_inputs:
            spec = self.inputs + i
            arg = PyTuple_GET_ITEM(args, i)
            if spec.kind == KIND_ARRAY:
                if batch != NULL and batch.sources[i].data != NULL:
                    if spec.flag and not cnp.PyArray_CheckExact(<object> arg):
                        if lineage(<ArrayHandle> arg):
                            self.given |= spec.flag
                    self.take_rows(spec, batch.sources + i, batch)
                elif not is_array(spec, arg):
                    return False
                elif not is_strided(arg):
                    self.take_array(spec, <object> arg, bind)
                    if batch != NULL:
                        self.aliased |= self.changes(spec, arg)
                elif spec.copied != self.turn:
                    self.aliased |= self.n_writes > 0
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
            if spec.flag and lineage(<ArrayHandle> arg):
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

    cdef bint stays(self, const Input *spec, const Source *source, const StepBatch *batch) noexcept:
        """Return whether the plan reads the rows of a step in place."""
        return (follows(source, batch) and spec.n_sites and source.aligned
                and not self.overlaps(first_row(source, batch), spec.nbytes))

    cdef bint changes(self, const Input *spec, PyObject *arg) noexcept:
        """Return whether the plan writes memory of this argument."""
        if cnp.PyArray_CheckExact(<object> arg):
            return self.overlaps(<char *> cnp.PyArray_DATA(<cnp.ndarray> arg), spec.nbytes)
        return self.overlaps((<ArrayHandle> arg).data, spec.nbytes)

    cdef void take_rows(self, Input *spec, const Source *source, const StepBatch *batch) noexcept:
        """Like `take_array`, for the rows of a step. The caller keeps their memory alive."""
        if self.stays(spec, source, batch):
            self.point(spec.sites, spec.n_sites, <char *> first_row(source, batch))
            return
        self.point(spec.sites, spec.n_sites, NULL)  # the last step may have read rows in place
        gather(spec.home, source, batch)

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

    cdef char *result_address(self, tuple results, Py_ssize_t i, const StepBatch *batch) noexcept:
        """Return the address of a result."""
        cdef char *data = (<ArrayHandle> PyTuple_GET_ITEM(results, i)).data
        return data if batch == NULL else data + batch.step * self.outputs[i].nbytes

    cdef void bind_results(self, tuple results, const StepBatch *batch) noexcept:
        """Bind the outputs of the plan to the memory of the results, and tag these."""
        self.bind_outputs(results, batch)
        if (self.severs or self.given) and (self.records >= 0 or records_gradients()):
            self.mark(results)

    cdef void bind_outputs(self, tuple results, const StepBatch *batch) noexcept:
        cdef Py_ssize_t i
        for i in range(self.n_outputs):
            self.point(self.outputs[i].sites, self.outputs[i].n_sites,
                       self.result_address(results, i, batch))

    cdef void point(self, const Site *sites, Py_ssize_t count, char *data) noexcept:
        """Bind `sites` to `data`; if that is NULL, to the plan's own buffer again."""
        cdef Py_ssize_t i
        for i in range(count):
            self.plan.bind(sites[i].op, sites[i].slot,
                           sites[i].home if data == NULL else data + sites[i].offset)

    cdef list unbind(self):
        """Bind all sites to the plan's own buffers again: the caller may free its memory."""
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

    cdef tuple make_results(self, Py_ssize_t steps):
        """Create handles over new memory for the results of `steps` steps; -1: of a call."""
        cdef Py_ssize_t i
        cdef ArrayHandle handle
        cdef Memory memory
        cdef tuple shape
        cdef Py_ssize_t nbytes
        cdef tuple results = PyTuple_New(self.n_outputs)
        for i in range(self.n_outputs):
            shape, nbytes = <tuple> self.outputs[i].shape, self.outputs[i].nbytes
            if steps >= 0:
                shape = (steps, *shape)
                nbytes = count_bytes(shape, self.outputs[i].code)
            memory = new_memory(self.results_from, nbytes)
            handle = <ArrayHandle?> bare_instance(self.result_type, NO_ARGS)
            handle.memory = memory
            handle.data = memory.data
            handle.code = self.outputs[i].code
            handle.shape = shape
            handle.nbytes = nbytes
            Py_INCREF(handle)
            PyTuple_SET_ITEM(results, i, handle)
        return results

    cdef void mark(self, tuple results) noexcept:
        cdef Py_ssize_t i
        cdef ArrayHandle handle
        cdef PyObject *severed
        for i in range(self.n_outputs):
            severed = self.outputs[i].severed
            if self.outputs[i].given & self.given:
                severed = <PyObject *> self.by_argument
            handle = <ArrayHandle> PyTuple_GET_ITEM(results, i)
            if severed != NULL and handle.severed == NULL:
                Py_INCREF(<object> severed)
                handle.severed = severed

    cdef void copy_out(self, tuple results, const StepBatch *batch) noexcept:
        cdef Py_ssize_t i
        for i in range(self.n_outputs):
            if self.outputs[i].nbytes and self.outputs[i].n_sites == 0:
                memcpy(self.result_address(results, i, batch), self.outputs[i].source,
                       <size_t> self.outputs[i].nbytes)


# ---- Calls of jitted functions

cdef extern from *:
    """
    typedef PyObject *(*Call)(PyObject *, PyObject *, PyObject *);
    #define KRT_SET_CALL(type, call) ((PyTypeObject *)(type))->tp_call = (call)
    """
    ctypedef object (*Call)(object self, object args, PyObject *kwargs)
    void set_call "KRT_SET_CALL"(type type, Call call)


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
        """Call the function; `kwargs` is None if there are no keyword arguments."""
        cdef tuple given = args
        if (self.latest is not None and all_empty(self.registers)
                and not (debugging and debugs())):
            if kwargs:
                given = self.by_position(args, kwargs)
            if given is not None:
                result = self.replayed(given)
                if result is not mismatch:
                    return result
                given = without_scalars(given)
                if given is not None:
                    result = self.replayed(given)
                    if result is not mismatch:
                        return result
        return self._slow(args, {} if kwargs is None else kwargs)

    cdef object replayed(self, tuple given):
        """Return the result of the first replay that matches the arguments, or MISMATCH."""
        # A reference of its own: another thread may clear the replays while this one runs.
        cdef Replay latest = self.latest
        cdef Replay replay
        cdef list replays
        if latest is None:
            return mismatch
        result = latest.attempt(given)
        if result is not mismatch:
            return result
        replays = self.replays
        for replay in replays:
            if replay is not latest:
                result = replay.attempt(given)
                if result is not mismatch:
                    if replays is self.replays:  # they were not cleared meanwhile
                        self.latest = replay
                    return result
        return mismatch

    cdef tuple by_position(self, tuple args, dict kwargs):
        """Return all arguments in the order of the parameters; None if that is impossible."""
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
        raise NotImplementedError("a subclass must override _slow")

    def _require_empty(self, registers):
        self.registers = check_registers(registers)

    def _add_replay(self, Replay replay not None):
        # A new list, because a running call may be iterating over the old one.
        self.replays = [*self.replays, replay]
        self.latest = replay

    def _clear_replays(self):
        self.replays = []
        self.latest = None

    @property
    def _replays(self):
        return tuple(self.replays)


cdef tuple without_scalars(tuple args):
    """Return the arguments with NumPy's scalars replaced; None if none is one."""
    cdef Py_ssize_t i
    cdef list found = None
    for i in range(PyTuple_GET_SIZE(args)):
        value = <object> PyTuple_GET_ITEM(args, i)
        plain = plain_scalar(value)
        if plain is not value:
            if found is None:
                found = list(args)
            found[i] = plain
    return None if found is None else tuple(found)


cdef object call_jit(object self, object args, PyObject *kwargs):
    return (<JitCore> self).call(<tuple> args, None if kwargs == NULL else <dict> kwargs)


# Cython's tp_call creates a dict of keyword arguments in each call, and most calls have none.
set_call(JitCore, call_jit)
