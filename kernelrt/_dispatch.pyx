# cython: language_level=3, boundscheck=False, wraparound=False, binding=False, auto_pickle=False
"""The boundary to the C core: takes Python arguments apart, calls once, maps the status."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t
from posix.unistd cimport pause, usleep

from kernelrt._krt cimport *
from kernelrt._ops cimport Ops, address_of, integer

import atexit
import warnings

from kernelrt import errors
from kernelrt._memory import no_copies

KERNEL = <int> KRT_KERNEL
COPY = <int> KRT_COPY
CUSTOM = <int> KRT_CUSTOM
NOP = <int> KRT_NOP
HOST_PARALLEL_SAFE = <int> KRT_HOST_PARALLEL_SAFE
MAY_FAIL = <int> KRT_MAY_FAIL
COMMIT = <int> KRT_COMMIT

# Releasing the GIL and taking it back costs about a tenth of a microsecond and, where other
# threads want it, a turn of theirs; other threads can wait this long instead.
cdef int64_t GIL_COST_NS = 10_000
cdef int64_t LOCK_SLICE_NS = 50_000_000


cdef int raise_status(krt_status status, const krt_fault *fault, size_t op,
                      object cause, object name=None, object index_error=None) except -1:
    """The one place where a krt_status becomes an exception."""
    if status == KRT_OK:
        return 0
    if status == KRT_NO_MEMORY:
        raise errors.OutOfMemoryError("no memory for the tables of a plan")
    if status == KRT_INVALID:
        raise errors.PlanBuildError(
            f"op {fault.op}: {fault.field.decode()}: {fault.reason.decode()}"
        )
    if status == KRT_BUSY:
        raise errors.PlanBusyError(
            "the plan was used from one of its own custom functions; "
            "execute a replica() there, or move the call out of the plan"
        )
    if status == KRT_OUT_OF_BOUNDS:
        index_error.op = op
        raise index_error from cause  # an interrupt that came at the same time
    if status == KRT_CUSTOM_FAILED:
        error = errors.CustomFunctionError(
            f"the custom function of {name} raised {type(cause).__name__}: {cause}"
        )
        error.op = op
        raise error from cause
    if status == KRT_INTERRUPTED:
        raise cause
    raise SystemError(f"unexpected status {<int> status} from the C core")


# ---- Exit -----------------------------------------------------------------------------------

# At exit compiled code is freed while daemon threads may be executing it. So the interpreter waits
# until they are out, and does not let them in again; like every daemon thread that wants the GIL
# by then they wait for the end of the process. Both variables are protected by the GIL.
cdef int executing_without_gil = 0
cdef bint exiting = False


cdef void enter_without_gil() noexcept:
    global executing_without_gil
    if exiting:
        with nogil:
            while True:
                pause()
    executing_without_gil += 1


cdef void leave_without_gil() noexcept:
    global executing_without_gil
    executing_without_gil -= 1
    if exiting:
        with nogil:
            while True:
                pause()


def _wait_for_daemon_threads():
    """Let executions end; long plans notice within a poll. Gives up after some seconds."""
    global exiting
    cdef int rounds
    exiting = True
    for rounds in range(5000):
        if executing_without_gil == 0:
            return
        with nogil:
            usleep(1000)


atexit.register(_wait_for_daemon_threads)


# ---- Plans ----------------------------------------------------------------------------------


cdef krt_status call_custom(void *self, size_t op) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    try:
        plan.customs[op]()
        return KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_CUSTOM_FAILED


cdef krt_status check_signals(void *self) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    try:
        PyErr_CheckSignals()
        return KRT_INTERRUPTED if exiting else KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_INTERRUPTED


cdef class PlanCore:
    """The prepared operations of a plan as flat C arrays, and the loop over them."""

    def __cinit__(self, *args, **kwargs):
        self.customs = {}

    def __init__(self, ops):
        cdef krt_host host
        cdef krt_fault fault
        cdef krt_status status
        if self.plan != NULL:
            raise errors.PlanBuildError("a plan is initialised once")
        cdef Ops staged = Ops(ops)
        host.self = <void *> self
        host.custom = call_custom
        host.poll = check_signals
        status = krt_plan_create(staged.ops, staged.n, &self.status_word, host, &self.plan, &fault)
        raise_status(status, &fault, 0, None)
        self.count = staged.n
        self.customs = staged.customs

    def __dealloc__(self):
        krt_plan_destroy(self.plan)

    cdef int acquire(self, krt_frame *frame) except -1:
        """Take the plan's turn: a live plan, locked. Waits in slices, so that signals come in."""
        cdef krt_status status = krt_lock_acquire(&self.lock, frame, 0)
        while status == KRT_TIMEOUT:
            with nogil:
                status = krt_lock_acquire(&self.lock, frame, LOCK_SLICE_NS)
            if status == KRT_TIMEOUT:
                PyErr_CheckSignals()
        if status != KRT_OK:
            raise_status(status, NULL, 0, None)
        if self.plan == NULL:
            krt_lock_release(frame)
            raise errors.PlanReleasedError("the plan was released; prepare it again")
        return 0

    cdef void bind(self, size_t op, size_t slot, void *address) noexcept:
        cdef krt_fault fault
        krt_plan_set_pointer(self.plan, op, slot, address, &fault)

    cdef krt_status run(self, krt_sample *samples, size_t *failed_op) noexcept:
        cdef krt_status status
        if samples == NULL and krt_plan_cost_ns(self.plan) < GIL_COST_NS:
            return krt_plan_execute(self.plan, failed_op)
        enter_without_gil()
        with nogil:
            if samples != NULL:
                status = krt_plan_execute_profiled(self.plan, samples, failed_op)
            else:
                status = krt_plan_execute(self.plan, failed_op)
        leave_without_gil()
        if krt_pool_take_start_failure():
            status = self.warn_fewer_threads(status)
        return status

    cdef void leave(self, krt_frame *frame) noexcept:
        krt_lock_release(frame)

    cdef int finish(self, krt_frame *frame, krt_status status, size_t op) except -1:
        if status == KRT_OK:
            krt_lock_release(frame)
            return 0
        cause, self.error = self.error, None
        index_error = None
        if status == KRT_OUT_OF_BOUNDS:
            index_error = self._index_error(op, self.status_word)
        krt_lock_release(frame)
        return raise_status(status, NULL, op, cause, self._op_name(op), index_error)

    cdef krt_status warn_fewer_threads(self, krt_status status):
        """Say once that the pool is smaller than asked for; a filter may make that an error."""
        try:
            warnings.warn("a thread could not be started; plans run on fewer threads",
                          RuntimeWarning, stacklevel=2)
        except BaseException as error:
            if status == KRT_OK:
                self.error = error
                return KRT_INTERRUPTED
        return status

    def _op_name(self, op):
        return f"op {op}"

    def _index_error(self, op, status_word):
        return errors.IndexBoundsError(
            f"{self._op_name(op)} read an index that lies outside its axis"
        )

    cdef int assign(self, pointers, values, chunks) except -1:
        """Set all that is given, chunks first: they alone may need memory, and are undone."""
        cdef krt_fault fault, ignored
        cdef int64_t before = 0
        cdef list done = []
        for op, n in chunks:
            raise_status(krt_plan_get_chunks(self.plan, op, &before, &fault), &fault, op, None)
            status = krt_plan_set_chunks(self.plan, op, integer(op, "chunks", n), &fault)
            if status != KRT_OK:
                for earlier, count in done:
                    krt_plan_set_chunks(self.plan, earlier, count, &ignored)
                raise_status(status, &fault, op, None)
            done.append((op, before))
        for op, slot, v in values:
            raise_status(krt_plan_set_value(self.plan, op, slot, integer(op, "value", v), &fault),
                         &fault, op, None)
        for op, slot, address in pointers:
            raise_status(krt_plan_set_pointer(self.plan, op, slot,
                                              address_of(op, "address", address), &fault),
                         &fault, op, None)
        return 0

    cdef int acquire_with(self, krt_frame *frame, bind) except -1:
        self.acquire(frame)
        self.bound_by = None
        try:
            pointers, values, chunks = bind()
            self.assign(pointers, values, chunks)
        except BaseException:
            krt_lock_release(frame)
            raise
        return 0

    def set_with(self, bind):
        cdef krt_frame frame
        self.acquire_with(&frame, bind)
        krt_lock_release(&frame)

    def execute(self):
        cdef krt_frame frame
        cdef size_t op = 0
        self.acquire(&frame)
        cdef krt_status status = self.run(NULL, &op)
        self.finish(&frame, status, op)

    def execute_with(self, bind):
        cdef krt_frame frame
        cdef size_t op = 0
        self.acquire_with(&frame, bind)
        cdef krt_status status = self.run(NULL, &op)
        self.finish(&frame, status, op)

    def execute_profiled_raw(self, bind=None):
        cdef size_t i, n = self.count
        cdef krt_sample *samples = <krt_sample *> PyMem_Calloc(n + 1, sizeof(krt_sample))
        if samples == NULL:
            raise errors.OutOfMemoryError("no memory for a profile")
        cdef krt_frame frame
        cdef krt_status status
        cdef size_t op = 0
        try:
            if bind is None:
                self.acquire(&frame)
            else:
                self.acquire_with(&frame, bind)
            status = self.run(samples, &op)
            self.finish(&frame, status, op)
            return [(samples[i].start_ns, samples[i].elapsed_ns, samples[i].worker,
                     samples[i].chunks) for i in range(n)]
        finally:
            PyMem_Free(samples)

    def pointer(self, size_t op, size_t slot):
        cdef void *address = NULL
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        cdef krt_status status = krt_plan_get_pointer(self.plan, op, slot, &address, &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)
        return <size_t> address

    def set_pointer(self, size_t op, size_t slot, address):
        cdef void *target = address_of(op, "address", address)
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        cdef krt_status status = krt_plan_set_pointer(self.plan, op, slot, target,
                                                      &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)

    def value(self, size_t op, size_t slot):
        cdef int64_t value = 0
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        cdef krt_status status = krt_plan_get_value(self.plan, op, slot, &value, &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)
        return value

    def set_value(self, size_t op, size_t slot, v):
        cdef int64_t value = integer(op, "value", v)
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        self.bound_by = None
        cdef krt_status status = krt_plan_set_value(self.plan, op, slot, value, &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)

    def chunks(self, size_t op):
        cdef int64_t n = 0
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        cdef krt_status status = krt_plan_get_chunks(self.plan, op, &n, &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)
        return n

    def set_chunks(self, size_t op, n):
        cdef int64_t chunks = integer(op, "chunks", n)
        cdef krt_fault fault
        cdef krt_frame frame
        self.acquire(&frame)
        self.bound_by = None
        cdef krt_status status = krt_plan_set_chunks(self.plan, op, chunks, &fault)
        krt_lock_release(&frame)
        raise_status(status, &fault, op, None)

    def set_threads(self, n):
        cdef int threads = thread_count(n)
        cdef krt_frame frame
        self.acquire(&frame)
        krt_plan_set_threads(self.plan, threads)
        krt_lock_release(&frame)

    def __reduce__(self):
        no_copies(self)

    @property
    def status_address(self):
        return <size_t> &self.status_word

    @property
    def released(self):
        return self.plan == NULL

    @property
    def n_ops(self):
        return self.count

    @property
    def cost_ns(self):
        cdef krt_frame frame
        self.acquire(&frame)
        cdef int64_t cost = krt_plan_cost_ns(self.plan)
        krt_lock_release(&frame)
        return cost

    def release(self):
        if self.plan == NULL:
            return
        cdef krt_frame frame
        try:
            self.acquire(&frame)
        except errors.PlanReleasedError:
            return
        cdef krt_plan *plan = self.plan
        self.plan = NULL
        krt_lock_release(&frame)
        krt_plan_destroy(plan)
        self.customs = {}


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


cdef int thread_count(n) except -1:
    n = PyNumber_Index(n)
    if n < 1:
        raise errors.ShapeError(f"the number of threads must be at least 1, not {n}")
    return <int> min(n, 1 << 20)


def set_num_threads(n):
    krt_set_num_threads(thread_count(n))
