# cython: language_level=3, boundscheck=False, wraparound=False, binding=False, auto_pickle=False
"""The boundary to the C core: takes Python arguments apart, calls once, maps the status."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.number cimport PyNumber_Index
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t
from posix.unistd cimport usleep

from kernelrt._krt cimport *
from kernelrt._memory cimport Storage, writes
from kernelrt._ops cimport Edits, Exchange, Ops, Region, address_of, call, integer
from kernelrt._status cimport raise_status

import atexit
import os
import warnings

from kernelrt import errors
from kernelrt._memory import no_copies

KERNEL = <int> KRT_KERNEL
COPY = <int> KRT_COPY
CUSTOM = <int> KRT_CUSTOM
NOP = <int> KRT_NOP
REGION = <int> KRT_REGION
HOST_PARALLEL_SAFE = <int> KRT_HOST_PARALLEL_SAFE
MAY_FAIL = <int> KRT_MAY_FAIL
COMMIT = <int> KRT_COMMIT
STATUS = 0

# Releasing the GIL and taking it back costs about a tenth of a microsecond and, where other
# threads want it, a turn of theirs; other threads can wait this long instead.
cdef int64_t GIL_COST_NS = 10_000
cdef int64_t LOCK_SLICE_NS = 50_000_000

cdef bint costs_are_set = False  # by set_thread_costs


# At exit compiled code is freed, so nobody may be executing it without the GIL by then. The
# interpreter waits until they are out; executions that begin later keep the GIL, and daemon
# threads that try to get it are stopped by the interpreter. All of this is protected by the GIL.
cdef extern from *:
    """
    /* Executions without the GIL: of all threads, and of this one. */
    static int executing;
    static _Thread_local int executing_here;
    """
    int executing
    int executing_here

cdef bint exiting = False
cdef bint start_failed = False  # and nobody was told yet
cdef unsigned long last_thread = 0  # the one that ends the process, once `exiting`


cdef krt_status run_without_gil(krt_plan *plan, krt_sample *samples, size_t *failed_op) noexcept:
    global executing, executing_here, start_failed
    cdef krt_status status
    executing += 1
    executing_here += 1
    with nogil:
        if samples != NULL:
            status = krt_plan_execute_profiled(plan, samples, failed_op)
        else:
            status = krt_plan_execute(plan, failed_op)
    executing_here -= 1
    executing -= 1
    start_failed = start_failed or krt_pool_take_start_failure()
    return status


cdef krt_sample *new_samples(size_t count) except NULL:
    """Room for what the kernels of a plan took, to be freed with PyMem_Free."""
    cdef krt_sample *samples = <krt_sample *> PyMem_Calloc(count + 1, sizeof(krt_sample))
    if samples == NULL:
        raise errors.OutOfMemoryError("no memory for a profile")
    return samples


cdef list list_of_samples(const krt_sample *samples, size_t count):
    cdef size_t i
    return [(samples[i].start_ns, samples[i].elapsed_ns, samples[i].worker, samples[i].chunks,
             samples[i].runs)
            for i in range(count)]


cdef bint must_end() noexcept:
    """Whether the process waits for this thread to come out of its plan."""
    return exiting and executing_here and <unsigned long> PyThread_get_thread_ident() != last_thread


def _wait_for_daemon_threads():
    """Let executions end; long plans notice within a poll. Gives up after some seconds: False."""
    global exiting, last_thread
    cdef int rounds
    last_thread = <unsigned long> PyThread_get_thread_ident()
    exiting = True
    for rounds in range(5000):
        if executing <= executing_here:
            return True
        with nogil:
            usleep(1000)
    return False


def _forget_other_threads():
    """In a forked child only this thread executes."""
    global executing
    executing = executing_here


atexit.register(_wait_for_daemon_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


# ---- Plans ----------------------------------------------------------------------------------


cdef krt_status call_custom(void *self, size_t op) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    try:
        call(plan.customs[op], plan.plan, op, krt_plan_get_pointer)
        return KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_CUSTOM_FAILED


cdef krt_status check_signals(void *self) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    try:
        PyErr_CheckSignals()
        if must_end():
            plan.error = SystemExit()
            return KRT_INTERRUPTED
        return KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_INTERRUPTED


cdef inline krt_status launch(
    PlanCore core, krt_sample *samples, size_t *failed_op
) noexcept:
    if not exiting and (samples != NULL or krt_plan_cost_ns(core.plan) >= GIL_COST_NS):
        return run_without_gil(core.plan, samples, failed_op)
    if samples != NULL:
        return krt_plan_execute_profiled(core.plan, samples, failed_op)
    return krt_plan_execute(core.plan, failed_op)


cdef tuple told_turns(list path):
    """Where regions stopped, for people, and the number of the innermost turn that has one."""
    text, number = "", None
    for core, op, _, turn in reversed(path):
        name = core._turn_name(op, turn)
        if name is not None:
            text += f", in {name}"
            number = turn if number is None else number
    return text, number


cdef int raise_in_turn(krt_status status, size_t op, cause, name, turn) except -1:
    try:
        return raise_status(status, NULL, op, cause, name, None)
    except errors.CustomFunctionError as error:
        error.turn = turn
        raise


cdef class PlanCore:
    """The prepared operations of a plan as flat C arrays, and the loop over them."""

    def __cinit__(self, *args, **kwargs):
        self.customs = {}
        self.lasting = True
        self.sources = ()
        self.bodies = ()

    def __init__(self, ops):
        cdef krt_host host
        cdef krt_fault fault
        cdef krt_status status
        if self.plan != NULL:
            raise errors.PlanBuildError("a plan is initialised once")
        cdef Ops staged = Ops(ops)
        if not costs_are_set:
            import kernelrt.runtime.cost  # noqa: F401 - it sets them
        host.self = <void *> self
        host.custom = call_custom
        host.poll = check_signals
        if staged.regions:
            self.adopt(staged, host, &fault)
        else:
            status = krt_plan_create(staged.ops, staged.n, host, &self.plan, &fault)
            raise_status(status, &fault, 0, None)
        self.count = staged.n
        self.samples = krt_plan_n_samples(self.plan)
        self.customs = staged.customs

    cdef int adopt(self, Ops staged, krt_host host, krt_fault *fault) except -1:
        """Make the plan, with others as bodies of its regions, each in a turn of its own."""
        cdef Region region
        cdef PlanCore body
        cdef krt_status status
        cdef size_t i
        cdef list taken = []
        try:
            for op, region in staged.regions.items():
                for i, body in enumerate(region.bodies):
                    if body is self or body in taken:
                        raise errors.PlanBuildError(
                            f"op {op}: bodies: a plan is the body of one region alone, and once")
                    body.acquire()
                    taken.append(body)
                    region.plans[i] = body.plan
            status = krt_plan_create(staged.ops, staged.n, host, &self.plan, fault)
            raise_status(status, fault, 0, None)
            for body in taken:
                body.owned = True
            self.bodies = tuple([(op, (<Region> region).bodies)
                                 for op, region in staged.regions.items()])
        finally:
            for body in taken:
                krt_lock_release(&body.lock)
        return 0

    def __dealloc__(self):
        krt_plan_destroy(self.plan)

    cdef int acquire(self) except -1:
        """Take the plan's turn: a live plan that is nobody's body, locked."""
        self.acquire_to_read()
        if self.owned:
            krt_lock_release(&self.lock)
            raise errors.PlanBuildError(
                "the plan is the body of a region, and run and changed by the region's plan alone; "
                "make another plan of it")
        return 0

    cdef int acquire_to_read(self) except -1:
        """Take the turn of a live plan. Waits in slices, so that signals come in."""
        cdef krt_status status = krt_lock_acquire(&self.lock, 0)
        while status == KRT_TIMEOUT:
            with nogil:
                status = krt_lock_acquire(&self.lock, LOCK_SLICE_NS)
            if status == KRT_TIMEOUT:
                PyErr_CheckSignals()
        if status != KRT_OK:
            raise_status(status, NULL, 0, None)
        if self.plan == NULL:
            krt_lock_release(&self.lock)
            raise errors.PlanReleasedError("the plan was released; prepare it again")
        return 0

    cdef void bind(self, size_t op, size_t slot, void *address) noexcept:
        cdef krt_fault fault
        krt_plan_set_pointer(self.plan, op, slot, address, &fault)

    cdef krt_status run(self, krt_sample *samples, size_t *failed_op) noexcept:
        global writes
        cdef krt_status status
        if self.preparation is not None and self.prepared != writes:
            status = self.prepare()
            if status != KRT_OK:
                failed_op[0] = 0
                return status
        status = launch(self, samples, failed_op)
        if self.lasting:
            if self.prepared == writes:
                self.prepared += 1  # nothing that it writes was prepared
            writes += 1
        return status

    cdef krt_status prepare(self) noexcept:
        """Compute what stays the same from run to run, of what is there now."""
        cdef PlanCore preparation = self.preparation
        cdef Storage source
        cdef unsigned long long now = writes
        cdef size_t op = 0
        cdef bint own = True
        cdef krt_status status = krt_lock_acquire(&preparation.lock, 0)
        if status != KRT_OK:
            return KRT_BUSY if status == KRT_TIMEOUT else status
        if preparation.plan == NULL:
            status = KRT_INTERRUPTED
            self.error = errors.PlanReleasedError("the plan's preparation was released")
        else:
            status = launch(preparation, NULL, &op)
            self.error, preparation.error = preparation.error, None
        krt_lock_release(&preparation.lock)
        for source in self.sources:
            own = own and source.is_own()
        self.prepared = now if status == KRT_OK and own else 0
        return status

    cdef void leave(self) noexcept:
        krt_lock_release(&self.lock)

    cdef int finish(self, krt_status status, size_t op) except -1:
        """End the turn, then say how it went: what is said may run any Python."""
        global start_failed
        cdef int64_t word
        if status == KRT_OK:
            krt_lock_release(&self.lock)
            if start_failed:
                start_failed = False
                warnings.warn("a thread could not be started; plans run on fewer threads",
                              RuntimeWarning, stacklevel=2)
            return 0
        cdef size_t at = op
        cdef PlanCore core = self
        cdef list path = []
        if status == KRT_OUT_OF_BOUNDS or status == KRT_CUSTOM_FAILED:
            path = self.stopped_in(&at)
            if path:
                core = path[len(path) - 1][2]
        word = krt_plan_status(core.plan, at) if at < core.count else 0
        cause, core.error = core.error, None
        if core is not self and self.error is not None:
            cause, self.error = self.error, None
        krt_lock_release(&self.lock)
        name = index_error = None
        if status == KRT_OUT_OF_BOUNDS:
            index_error = core._index_error(at, word)
        elif status == KRT_CUSTOM_FAILED:
            name = core._op_name(at)
        if path:
            where, turn = told_turns(path)
            if name is not None:
                name += where
            elif where:
                index_error.args = (f"{index_error.args[0]}{where}", *index_error.args[1:])
                index_error.turn = turn
            if where and isinstance(cause, Exception) and name is not None:
                return raise_in_turn(status, op, cause, name, turn)
        return raise_status(status, NULL, op, cause, name, index_error)

    cdef list stopped_in(self, size_t *op):
        """The regions, outermost first, within which the last run stopped: for each of them
        its plan, its op, the plan of the body and the number of the turn. `op` becomes that of the
        last of these plans."""
        cdef krt_failure failure
        cdef PlanCore core = self, body
        cdef list path = []
        while krt_region_failure(core.plan, op[0], &failure):
            body = core.body_at(op[0], failure.body)
            path.append((core, op[0], body, failure.turn))
            core, op[0] = body, failure.op
        return path

    cdef PlanCore body_at(self, size_t op, size_t which):
        for place, bodies in self.bodies:
            if place == op:
                return <PlanCore?> bodies[which]
        return None

    @property
    def is_body(self):
        return self.owned

    def _turn_name(self, op, turn):
        return f"turn {turn} of {self._op_name(op)}"

    def _op_name(self, op):
        return f"op {op}"

    def _index_error(self, op, status_word):
        return errors.IndexBoundsError(
            f"{self._op_name(op)} read an index that lies outside its axis"
        )

    cdef int assign(self, tuple changes) except -1:
        """Make all changes, and only then set the attributes that tell of them."""
        pointers, values, chunks, attributes = changes
        cdef Edits edits = Edits(tuple(pointers), tuple(values), tuple(chunks))
        cdef krt_fault fault
        raise_status(krt_plan_edit(self.plan, edits.items, edits.n, &fault), &fault, 0, None)
        for owner, name, value in attributes:
            setattr(owner, name, value)
        return 0

    cdef int acquire_with(self, bind) except -1:
        self.acquire()
        self.bound_by = None
        try:
            self.assign(bind())
        except BaseException:
            krt_lock_release(&self.lock)
            raise
        return 0

    def set_with(self, bind):
        self.acquire_with(bind)
        krt_lock_release(&self.lock)

    def exchange_with(self, bind):
        cdef Exchange exchange
        cdef krt_fault fault
        self.acquire()
        self.bound_by = None
        try:
            items, attributes = bind()
            exchange = Exchange(items)
            raise_status(krt_plan_exchange(self.plan, exchange.where, exchange.ops.ops,
                                           exchange.ops.n, &fault), &fault, 0, None)
            for owner, name, value in attributes:
                setattr(owner, name, value)
        finally:
            krt_lock_release(&self.lock)

    def exchange_within(self, exchanges):
        cdef Exchange exchange
        cdef krt_fault fault
        items, attributes = exchanges
        self.acquire_to_read()
        try:
            exchange = Exchange(items)
            raise_status(krt_plan_exchange(self.plan, exchange.where, exchange.ops.ops,
                                           exchange.ops.n, &fault), &fault, 0, None)
            krt_plan_cost_ns(self.plan)  # lays it out, while nobody runs it
            for owner, name, value in attributes:
                setattr(owner, name, value)
        finally:
            krt_lock_release(&self.lock)

    def execute(self):
        cdef size_t op = 0
        self.acquire()
        cdef krt_status status = self.run(NULL, &op)
        self.finish(status, op)

    def execute_with(self, bind):
        cdef size_t op = 0
        self.acquire_with(bind)
        cdef krt_status status = self.run(NULL, &op)
        self.finish(status, op)

    def execute_profiled_raw(self, bind=None):
        cdef krt_sample *samples = new_samples(self.samples)
        cdef krt_status status
        cdef size_t op = 0
        try:
            if bind is None:
                self.acquire()
            else:
                self.acquire_with(bind)
            status = self.run(samples, &op)
            self.finish(status, op)
            return list_of_samples(samples, self.samples)
        finally:
            PyMem_Free(samples)

    def pointer(self, size_t op, size_t slot):
        cdef void *address = NULL
        cdef krt_fault fault
        self.acquire_to_read()
        cdef krt_status status = krt_plan_get_pointer(self.plan, op, slot, &address, &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)
        return <size_t> address

    def set_pointer(self, size_t op, size_t slot, address):
        cdef void *target = address_of(op, "address", address)
        cdef krt_fault fault
        self.acquire()
        cdef krt_status status = krt_plan_set_pointer(self.plan, op, slot, target,
                                                      &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)

    def value(self, size_t op, size_t slot):
        cdef int64_t value = 0
        cdef krt_fault fault
        self.acquire_to_read()
        cdef krt_status status = krt_plan_get_value(self.plan, op, slot, &value, &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)
        return value

    def set_value(self, size_t op, size_t slot, v):
        cdef int64_t value = integer(op, "value", v)
        cdef krt_fault fault
        self.acquire()
        self.bound_by = None
        cdef krt_status status = krt_plan_set_value(self.plan, op, slot, value, &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)

    def chunks(self, size_t op):
        cdef int64_t n = 0
        cdef krt_fault fault
        self.acquire_to_read()
        cdef krt_status status = krt_plan_get_chunks(self.plan, op, &n, &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)
        return n

    def set_chunks(self, size_t op, n):
        cdef int64_t chunks = integer(op, "chunks", n)
        cdef krt_fault fault
        self.acquire()
        self.bound_by = None
        cdef krt_status status = krt_plan_set_chunks(self.plan, op, chunks, &fault)
        krt_lock_release(&self.lock)
        raise_status(status, &fault, op, None)

    def set_threads(self, n):
        cdef int threads = thread_count(n)
        self.acquire()
        krt_plan_set_threads(self.plan, threads)
        self.limit = threads
        krt_lock_release(&self.lock)
        if self.preparation is not None:
            self.preparation.set_threads(n)

    def keep_to_own_memory(self):
        self.lasting = False

    def prepare_by(self, PlanCore preparation not None, sources):
        sources = tuple(sources)
        for source in sources:
            if not isinstance(source, Storage):
                raise errors.PlanBuildError(f"sources are of Storage, not {source!r}")
        self.set_with(lambda: ((), (), (), ((self, "_prepared_by", (preparation, sources)),)))

    @property
    def _prepared_by(self):
        """The preparation, or None, and the storages that it reads. Set within a turn."""
        return self.preparation, self.sources

    @_prepared_by.setter
    def _prepared_by(self, tuple found):
        preparation, sources = found
        for source in sources:
            (<Storage?> source).watch()
        self.preparation, self.sources, self.prepared = preparation, sources, 0

    def need_stack(self, size_t nbytes):
        self.acquire()
        krt_plan_need_stack(self.plan, nbytes)
        krt_lock_release(&self.lock)

    @property
    def max_threads(self):
        return self.limit or None

    def __reduce__(self):
        no_copies(self)

    @property
    def released(self):
        return self.plan == NULL

    @property
    def n_ops(self):
        return self.count

    @property
    def cost_ns(self):
        self.acquire_to_read()
        cdef int64_t cost = krt_plan_cost_ns(self.plan)
        krt_lock_release(&self.lock)
        return cost

    def release(self):
        if self.plan == NULL:
            return
        try:
            self.acquire()
        except errors.PlanReleasedError:
            return
        cdef krt_plan *plan = self.plan
        self.plan = NULL
        krt_lock_release(&self.lock)
        krt_plan_destroy(plan)
        self.customs = {}
        bodies, self.bodies = self.bodies, ()
        for _, region in bodies:
            for body in region:
                (<PlanCore> body).owned = False
                body.release()


# ---- The machine ----------------------------------------------------------------------------


def clock_ns():
    return krt_clock_ns()


def affinity_count():
    return krt_affinity_count()


def cgroup_quota():
    cdef int64_t milli = krt_cgroup_milli_cpus()
    return milli / 1000.0 if milli else None


def pool_limit():
    return krt_pool_limit()


def get_num_threads():
    return krt_get_num_threads()


def set_thread_costs(int64_t hand_over_ns, int64_t chunk_ns, int64_t wake_ns):
    global costs_are_set
    costs_are_set = True
    krt_set_thread_costs(krt_thread_costs(hand_over_ns, chunk_ns, wake_ns))


cpdef int thread_count(n) except -1:
    try:
        n = PyNumber_Index(n)
    except TypeError:
        raise errors.DTypeError(
            f"threads: expected an int of at least 1, not {type(n).__name__} ({n!r})"
        ) from None
    if n < 1:
        raise errors.ShapeError(f"the number of threads must be at least 1, not {n}")
    return <int> min(n, 1 << 20)


def set_num_threads(n):
    krt_set_num_threads(thread_count(n))
