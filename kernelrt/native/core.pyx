# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Binding of the C core: the table of a plan, and the threads of the process.

The C core is linked to this extension only and keeps its state here. Other extensions call it
through the methods of `Table`.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t, uint32_t
from posix.unistd cimport usleep

from kernelrt.native.krt cimport *
from kernelrt.native.krt_model cimport *
from kernelrt.native.op_structs cimport Edits, Exchange, Ops, Region, address_of, call, integer

import _signal
import atexit
import os
import threading

from kernelrt import errors
from kernelrt.native.memory import no_copies

# ---- Executions without the GIL
#
# At exit compiled code is freed, so no thread may be executing it without the GIL by then. So an
# exit handler waits until all threads have left it. Executions that begin later keep the GIL, and
# the interpreter stops daemon threads that try to take it. A forked child has one thread. These
# variables are written with the GIL held; running plans poll them without the GIL.

cdef extern from "Python.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef extern from *:
    """
    /* Number of executions without the GIL: of all threads, and of this one. */
    static int executing;
    static _Thread_local int executing_here;
    /* Whether the process is exiting, and the thread that runs the exit handlers. */
    static _Atomic int exiting;
    static unsigned long last_thread;
    """
    int executing
    int executing_here
    int exiting
    unsigned long last_thread

cdef unsigned long main_thread = threading.main_thread().ident


cdef void begin() noexcept:
    global executing, executing_here
    executing += 1
    executing_here += 1


cdef void end() noexcept:
    global executing, executing_here
    executing_here -= 1
    executing -= 1


cdef bint is_exiting() noexcept nogil:
    return exiting != 0


cdef bint must_end() noexcept nogil:
    return exiting and executing_here and PyThread_get_thread_ident() != last_thread


cdef bint handles_signals() noexcept nogil:
    return PyThread_get_thread_ident() == main_thread


def _wait_for_daemon_threads():
    """Wait until executions have ended; long plans notice at their next poll.

    Return False if some are still running after 5 seconds.
    """
    global last_thread, exiting
    cdef int rounds
    last_thread = PyThread_get_thread_ident()
    exiting = 1
    for rounds in range(5000):
        if executing <= executing_here:
            return True
        with nogil:
            usleep(1000)
    return False


def _forget_other_threads():
    """Reset the state in a forked child, whose only thread is the main thread."""
    global executing, main_thread
    executing = executing_here
    main_thread = PyThread_get_thread_ident()


atexit.register(_wait_for_daemon_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


# ---- Statuses as exceptions

cdef int raise_status(krt_status status, const krt_fault *fault, size_t op, object cause,
                      object name=None, object index_error=None, object iteration=None) except -1:
    if status == KRT_OK:
        return 0
    if status == KRT_NO_MEMORY:
        raise errors.OutOfMemoryError("could not allocate the tables of a plan")
    if status == KRT_INVALID:
        raise errors.PlanBuildError(
            f"op {fault.op}: {fault.field.decode()}: {fault.reason.decode()}"
        )
    if status == KRT_BUSY:
        raise errors.PlanBusyError(
            "this thread is using the plan already: the call comes from one of the plan's own "
            "custom functions, or from a signal handler or finalizer; execute a copy made with "
            "replicate() there, or make the call after the plan has finished"
        )
    if status == KRT_DEADLOCK:
        raise errors.PlanBusyError(
            "waiting for the plan would deadlock: the thread that uses it waits for a plan that "
            "this thread is executing; in custom functions, execute a copy made with replicate(), "
            "or move the calls out of the plans"
        )
    if status == KRT_FORKED:
        raise errors.ForkError(
            "a signal handler forked this process while several threads executed the plan; these "
            "threads do not exist in the child, so this run has no result here; execute the plan "
            "again"
        )
    if status == KRT_NO_STACK:
        raise errors.OutOfMemoryError(
            "this thread has too little stack left for the arrays of the plan's kernels, and the "
            "system could not start another thread to call them on; start the thread with more "
            "stack, for example after threading.stack_size(1 << 20), or end other threads"
        )
    if status == KRT_OUT_OF_BOUNDS:
        index_error.op = op
        raise index_error from cause  # the cause, if any, is an interrupt at the same time
    if status == KRT_CUSTOM_FAILED:
        if not isinstance(cause, Exception):
            raise cause  # Ctrl-C and sys.exit are not failures of the function
        error = errors.CustomFunctionError(
            f"{name} raised {type(cause).__name__}: {cause}"
        )
        error.op, error.iteration = op, iteration
        raise error from cause
    if status == KRT_INTERRUPTED:
        raise cause
    raise SystemError(f"unexpected status {<int> status} from the C core")


cdef int raise_stopped(krt_status status, size_t op, object cause, object plan, size_t at,
                       int64_t word, list path) except -1:
    cdef str where = ""
    iteration = name = index_error = None
    if status == KRT_OUT_OF_BOUNDS:
        index_error = plan._index_error(at, word)
        where, iteration = iterations_of(path)
        if where:
            index_error.args = (f"{index_error.args[0]}{where}", *index_error.args[1:])
            index_error.iteration = iteration
    elif status == KRT_CUSTOM_FAILED:
        name = plan._op_name(at)
        where, iteration = iterations_of(path)
        name += where
    return raise_status(status, NULL, op, cause, name, index_error, iteration)


cdef tuple iterations_of(list path):
    """Return the iterations in which regions stopped as text, and the number of the innermost."""
    text, number = "", None
    for plan, op, _, iteration in reversed(path):
        name = plan._iteration_name(op, iteration)
        if name is not None:
            text += f", in {name}"
            number = iteration if number is None else number
    return text, number


# ---- Runs

# Releasing and taking the GIL costs about a tenth of a microsecond. If other threads want it, it
# also costs the time for which they hold it. So plans below this estimate keep the GIL.
cdef int64_t GIL_COST_NS = 10_000
# Runs with a lower estimate may follow each other without releasing the GIL. The clock is read
# after CLOCK_PERIOD_NS of estimated time.
cdef int64_t SHORT_NS = 100_000
cdef int64_t CLOCK_PERIOD_NS = 50_000
cdef int64_t LOCK_SLICE_NS = 50_000_000

cdef bint costs_are_set = False  # by set_thread_costs
cdef bint start_failed = False


cdef krt_status run_without_gil(krt_plan *plan, krt_profile *profile, size_t *failed_op) noexcept:
    global start_failed
    cdef krt_status status
    begin()
    with nogil:
        if profile != NULL:
            status = krt_plan_execute_profiled(plan, profile, failed_op)
        else:
            status = krt_plan_execute(plan, failed_op)
    end()
    start_failed = start_failed or krt_pool_take_start_failure()
    return status


# ---- Signals
#
# Python runs signal handlers only on its main thread, with the GIL. Taking the GIL may mean to wait
# for every other thread that wants it. So a plan takes it only after a signal has arrived.
# `_thread.interrupt_main` raises no signal, so the plan also takes the GIL now and then without
# one, but so rarely that the waits are a small part of the time.

cdef int64_t LEAST_POLL_PERIOD_NS = 50_000_000
cdef int64_t WAITS_BETWEEN_POLLS = 20

cdef extern from *:
    """
    /* Per thread: the signal count when it last asked Python, and when it asks again anyway. */
    static _Thread_local uint32_t polled_signals;
    static _Thread_local int64_t next_poll_ns;
    """
    uint32_t polled_signals
    int64_t next_poll_ns


cdef int64_t poll_due() noexcept nogil:
    cdef int64_t now = krt_clock_ns()
    if must_end():
        return now
    if not handles_signals():
        return 0
    if krt_signals_count() != polled_signals or now >= next_poll_ns:
        return now
    return 0 if krt_signals_are_counted() else now


cdef int schedule_poll(int64_t since_ns) except -1:
    global polled_signals, next_poll_ns
    cdef int64_t now = krt_clock_ns()
    find_handler()
    krt_signals_start_counting()
    polled_signals = krt_signals_count()
    next_poll_ns = now + max(LEAST_POLL_PERIOD_NS, WAITS_BETWEEN_POLLS * (now - since_ns))
    return 0


cdef bint handler_known = False


cdef int find_handler() except -1:
    """Find Python's C signal handler, by means of any signal that has a Python handler."""
    global handler_known
    cdef int number
    if handler_known:
        return 0
    for number in sorted(_signal.valid_signals()):
        if callable(_signal.getsignal(number)) and krt_signals_find_handler(
            number, <const void *> &PyErr_CheckSignals
        ):
            handler_known = True
            break
    return 0


cdef inline int acquire_live(Table table) except -1:
    """Lock a live plan. Wait in time slices, so that signal handlers can run."""
    cdef krt_status status = krt_lock_acquire(&table.lock, 0)
    while status == KRT_TIMEOUT:
        with nogil:
            status = krt_lock_acquire(&table.lock, LOCK_SLICE_NS)
        if status == KRT_TIMEOUT:
            PyErr_CheckSignals()
    if status != KRT_OK:
        raise_status(status, NULL, 0, None)
    if table.plan == NULL:
        krt_lock_release(&table.lock)
        raise errors.PlanReleasedError("the plan was released; prepare it again")
    return 0


cdef int leave_all(list taken) except -1:
    """Release the locks of plans that this thread holds."""
    cdef Table table
    for table in taken:
        krt_lock_release(&table.lock)
    return 0


def under_locks(tables, work):
    """Return the result of `work`, called while this thread has exclusive access to some plans."""
    cdef Table table
    cdef list taken = []
    try:
        for table in sorted(set(tables), key=id):  # one order for all threads
            table.acquire()
            taken.append(table)
        return work()
    finally:
        leave_all(taken)


cdef class Table:
    """The prepared operations of a plan as flat C arrays, and the lock for access to them."""

    def __cinit__(self, *args, **kwargs):
        self.customs = {}
        self.bodies = ()

    cdef int make(self, ops, krt_host host) except -1:
        cdef krt_fault fault
        cdef krt_status status
        if self.plan != NULL:
            raise errors.PlanBuildError("a plan can be initialised only once")
        if isinstance(ops, ModelPlan):
            return self.take(ops, host)
        cdef Ops staged = Ops(ops)
        if not costs_are_set:
            import kernelrt.runtime.op_cost  # noqa: F401 - the import sets the costs
        if staged.regions:
            self.adopt(staged, host, &fault)
        else:
            status = krt_plan_create(staged.ops, staged.n, host, &self.plan, &fault)
            raise_status(status, &fault, 0, None)
        self.count = staged.n
        self.samples = krt_plan_n_samples(self.plan)
        self.most_claims = krt_plan_most_claims(self.plan)
        self.customs = staged.customs
        return 0

    cdef int take(self, ModelPlan given, krt_host host) except -1:
        """Become the table of a plan that belongs to a model."""
        cdef Table body
        self.lender, self.lent = given.model, True
        self.plan = krt_model_plan(given.model.model, given.number)
        krt_plan_set_host(self.plan, host)
        self.count = krt_plan_n_ops(self.plan)
        self.samples = krt_plan_n_samples(self.plan)
        self.most_claims = krt_plan_most_claims(self.plan)
        self.bodies = given.bodies
        for _, bodies in self.bodies:
            for body in bodies:
                body.owned = True
        return 0

    cdef int adopt(self, Ops staged, krt_host host, krt_fault *fault) except -1:
        """Create the plan with other plans as bodies of its regions, while holding their locks."""
        cdef Region region
        cdef Table body
        cdef krt_status status
        cdef size_t i
        cdef list taken = []
        try:
            for op, region in staged.regions.items():
                for i, body in enumerate(region.bodies):
                    if body is self or body in taken:
                        raise errors.PlanBuildError(
                            f"op {op}: bodies: a plan can be a body of only one region, and only "
                            "once")
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
            leave_all(taken)
        return 0

    def __dealloc__(self):
        if not self.lent:
            krt_plan_destroy(self.plan)

    cdef int acquire(self) except -1:
        """Take exclusive access to a live plan that is not a body of a region."""
        acquire_live(self)
        if self.owned:
            krt_lock_release(&self.lock)
            raise errors.PlanBuildError(
                "the plan is a body of a region, so only the region's plan can run or change it; "
                "build another plan to run on its own")
        return 0

    cdef int acquire_to_read(self) except -1:
        """Take exclusive access to a live plan, which may be a body."""
        return acquire_live(self)

    cdef krt_status try_acquire(self) noexcept:
        return krt_lock_acquire(&self.lock, 0)

    cdef int acquire_with(self, bind) except -1:
        self.acquire()
        self.bound_by = None
        try:
            self.assign(bind())
        except BaseException:
            krt_lock_release(&self.lock)
            raise
        return 0

    cdef int assign(self, tuple changes) except -1:
        """Make all changes, and only then set the attributes that describe them."""
        pointers, values, chunks, attributes = changes
        cdef Edits edits = Edits(tuple(pointers), tuple(values), tuple(chunks))
        cdef krt_fault fault
        raise_status(krt_plan_edit(self.plan, edits.items, edits.n, &fault), &fault, 0, None)
        for owner, name, value in attributes:
            setattr(owner, name, value)
        return 0

    cdef void bind(self, size_t op, size_t slot, void *address) noexcept:
        cdef krt_fault fault
        krt_plan_set_pointer(self.plan, op, slot, address, &fault)

    cdef krt_status launch(self, krt_profile *profile, size_t *failed_op,
                           bint keep_gil) noexcept:
        """Run the table; fill `profile` unless it is NULL."""
        global start_failed
        cdef krt_status status
        if not is_exiting() and not keep_gil and (
            profile != NULL or krt_plan_cost_ns(self.plan) >= GIL_COST_NS
        ):
            return run_without_gil(self.plan, profile, failed_op)
        if profile != NULL:
            return krt_plan_execute_profiled(self.plan, profile, failed_op)
        status = krt_plan_execute(self.plan, failed_op)
        if keep_gil:  # a plan short enough to keep the GIL by itself starts no threads
            start_failed = start_failed or krt_pool_take_start_failure()
        return status

    cdef Py_ssize_t runs_per_clock_read(self, int64_t extra_ns) noexcept:
        """Return how many runs may keep the GIL until the next reading of the clock; 0: none.

        A run that calls code of users gets 0: that code might wait for a thread that needs the
        GIL. Each run takes `extra_ns` in addition to the plan's own time.
        """
        if self.customs or self.bodies or self.foreign:
            return 0
        cdef int64_t cost = krt_plan_cost_ns(self.plan)
        if cost >= SHORT_NS or extra_ns >= SHORT_NS - cost:
            return 0
        return max(1, CLOCK_PERIOD_NS // max(cost + extra_ns, 1))

    cdef int64_t now(self) noexcept:
        """Return monotonic time in nanoseconds."""
        return krt_clock_ns()

    cdef void leave(self) noexcept:
        krt_lock_release(&self.lock)

    cdef int call_custom(self, size_t op) except -1:
        return call(self.customs[op], self.plan, op, krt_plan_get_pointer)

    cdef list stopped_in(self, size_t *op):
        """Return the regions in which the last run stopped, outermost first.

        Each is (its plan, its op, the plan of the body, the iteration number). Set `op` to the op
        of the innermost body that stopped.
        """
        cdef krt_failure failure
        cdef Table table = self, body
        cdef list path = []
        while krt_region_failure(table.plan, op[0], &failure):
            body = table.body_at(op[0], failure.body)
            path.append((table, op[0], body, failure.iteration))
            table, op[0] = body, failure.op
        return path

    cdef Table body_at(self, size_t op, size_t which):
        for op_index, bodies in self.bodies:
            if op_index == op:
                return <Table?> bodies[which]
        return None

    cdef int64_t status_word(self, size_t op) noexcept:
        """Return the value that the op stored to its status word; 0 if there is no such op."""
        return krt_plan_status(self.plan, op) if op < self.count else 0

    def set_with(self, bind):
        self.acquire_with(bind)
        krt_lock_release(&self.lock)

    def exchange_with(self, bind):
        self.acquire()
        self.bound_by = None
        try:
            changes, attributes = bind()
            self.exchange([(table, Exchange(items)) for table, items in changes])
            for owner, name, value in attributes:
                setattr(owner, name, value)
        finally:
            krt_lock_release(&self.lock)

    cdef int exchange(self, list changes) except -1:
        """Replace kernels of this plan and of bodies, while holding the locks of the bodies."""
        cdef krt_exchange *exchanges
        cdef Exchange items
        cdef Table table
        cdef krt_fault fault
        cdef size_t n = 0
        cdef list bodies = self.all_bodies(), taken = []
        exchanges = <krt_exchange *> PyMem_Calloc(<size_t> len(changes) + 1, sizeof(krt_exchange))
        if exchanges == NULL:
            raise errors.OutOfMemoryError("could not allocate the changes of a plan")
        try:
            for table, items in changes:
                if table is not self:
                    if table not in bodies or table in taken:
                        raise errors.PlanBuildError(
                            "kernels can be exchanged only in the plan itself and in bodies of its "
                            "regions, at most once in each")
                    table.acquire_to_read()
                    taken.append(table)
                exchanges[n] = krt_exchange(plan=table.plan, where=items.where,
                                            items=items.ops.ops, n=items.ops.n)
                n += 1
            raise_status(krt_exchange_all(exchanges, n, &fault), &fault, 0, None)
        finally:
            leave_all(taken)
            PyMem_Free(exchanges)
        return 0

    cdef list all_bodies(self):
        """Return the bodies of the plan's regions and, recursively, of theirs."""
        cdef list found = []
        cdef Table body
        for _, bodies in self.bodies:
            for body in bodies:
                found.append(body)
                found += body.all_bodies()
        return found

    def unless_busy(self, work):
        if self.try_acquire() != KRT_OK:
            return False
        try:
            work()
        finally:
            krt_lock_release(&self.lock)
        return True

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

    def slices(self, size_t op):
        return 0 if self.plan == NULL else krt_plan_slices(self.plan, op)

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

    @property
    def max_threads(self):
        return self.limit or None

    def calls_foreign_code(self):
        self.acquire()
        self.foreign = True
        krt_lock_release(&self.lock)

    def need_stack(self, size_t nbytes):
        self.acquire()
        krt_plan_need_stack(self.plan, nbytes)
        krt_lock_release(&self.lock)

    @property
    def is_body(self):
        return self.owned

    @property
    def n_ops(self):
        return self.count

    @property
    def cost_ns(self):
        self.acquire_to_read()
        cdef int64_t cost = krt_plan_cost_ns(self.plan)
        krt_lock_release(&self.lock)
        return cost

    @property
    def released(self):
        return self.plan == NULL

    def release(self):
        if self.plan == NULL:
            return
        try:
            self.acquire()
        except errors.PlanReleasedError:
            return
        cdef Table table
        cdef list taken = [self]
        try:
            for table in self.all_bodies():
                table.acquire_to_read()
                taken.append(table)
        except BaseException:
            leave_all(taken)
            raise
        for table in taken:
            if not table.lent:
                krt_plan_destroy(table.plan)
            table.plan = NULL
        leave_all(taken)
        for table in taken:
            table.customs, table.bodies, table.owned = {}, (), False

    def __reduce__(self):
        no_copies(self)


# ---- Models

cdef krt_kernel find_routine(void *self, const char *name) noexcept with gil:
    return <krt_kernel> <size_t> (<Model> self).routines.get(name.decode(), 0)


cdef void *allocate_memory(void *self, size_t nbytes) noexcept with gil:
    try:
        return <void *> <size_t> (<Model> self).allocate(nbytes)
    except BaseException as error:
        (<Model> self).error = error
        return NULL


cdef class Model:
    """A model file in memory: functions that were compiled ahead of time, and their state."""

    def __init__(self, source, dict routines not None, allocate):
        cdef krt_model_options options
        cdef krt_message why
        cdef krt_status status
        cdef const unsigned char[::1] data
        cdef bytes path
        if self.model != NULL:
            raise errors.ModelFileError("a model can be initialised only once")
        self.routines, self.allocate = routines, allocate
        options.self = <void *> self
        options.routine = find_routine
        options.allocate = allocate_memory
        options.poll = NULL
        if isinstance(source, str):
            path = os.fsencode(source)
            status = krt_model_open(path, &options, &self.model, &why)
        else:
            data = source
            status = krt_model_read(&data[0] if data.shape[0] else NULL, <size_t> data.shape[0],
                                    &options, &self.model, &why)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if status == KRT_NO_MEMORY:
            raise errors.OutOfMemoryError(why.text.decode(errors="replace"))
        if status != KRT_OK:
            raise errors.ModelFileError(why.text.decode(errors="replace"))

    def __dealloc__(self):
        krt_model_close(self.model)

    def __len__(self):
        self.check_live()
        return krt_model_n_functions(self.model)

    @property
    def python(self):
        self.check_live()
        return krt_model_python(self.model).decode(errors="replace")

    @property
    def n_plans(self):
        self.check_live()
        return krt_model_n_plans(self.model)

    cdef int check_live(self) except -1:
        if self.model == NULL:
            raise errors.ModelFileError("the model is not open")
        return 0

    cdef int check(self, int function) except -1:
        self.check_live()
        if not 0 <= function < krt_model_n_functions(self.model):
            raise IndexError(f"function: the model has no function {function}")
        return 0

    cdef int check_plan(self, size_t plan) except -1:
        self.check_live()
        if plan >= krt_model_n_plans(self.model):
            raise IndexError(f"plan: the model has no plan {plan}")
        return 0

    def name(self, int function):
        self.check(function)
        return krt_model_function_name(self.model, function).decode(errors="replace")

    def plans_of(self, int function):
        cdef int preparation, plan
        self.check(function)
        plan = krt_model_function_plan(self.model, function, &preparation)
        return plan, preparation if preparation >= 0 else None

    def writes_state(self, size_t plan):
        self.check_plan(plan)
        return krt_model_writes_state(self.model, plan)

    def bodies(self, size_t plan):
        """Return (op, plans) for each region of a plan."""
        cdef const int64_t *numbers = NULL
        cdef size_t op, i, n
        self.check_plan(plan)
        found = []
        for op in range(krt_plan_n_ops(krt_model_plan(self.model, plan))):
            n = krt_model_bodies(self.model, plan, op, &numbers)
            if n:
                found.append((op, tuple([numbers[i] for i in range(n)])))
        return found

    def ports(self, int function, int side):
        """Return (name, dtype code, address, constant, sites) of each input (0) or output (1)."""
        cdef krt_port port
        cdef const int64_t *sites = NULL
        cdef size_t i, n
        cdef int k, count
        self.check(function)
        count = (krt_model_n_outputs(self.model, function) if side
                 else krt_model_n_inputs(self.model, function))
        found = []
        for k in range(count):
            if side:
                krt_model_output(self.model, function, k, &port)
            else:
                krt_model_input(self.model, function, k, &port)
            n = krt_model_sites(self.model, function, side, k, &sites)
            value = None if port.value == NULL else port.value.decode(errors="replace")
            found.append((
                port.name.decode(errors="replace"), <int> port.dtype, <size_t> port.data, value,
                tuple([(sites[3 * i], sites[3 * i + 1], sites[3 * i + 2]) for i in range(n)]),
            ))
        return found

    def shape(self, int function, int side, int number, values):
        cdef int64_t given[KRT_MOST_SIZES]
        cdef int64_t shape[KRT_MOST_AXES]
        cdef krt_message why
        cdef krt_port port
        cdef int axis
        self.check(function)
        self.fill(given, <size_t> self.plans_of(function)[0], values)
        if krt_model_shape(self.model, function, side, number, given, shape, &why) != KRT_OK:
            raise errors.VariableError(why.text.decode(errors="replace"))
        if side:
            krt_model_output(self.model, function, number, &port)
        else:
            krt_model_input(self.model, function, number, &port)
        return tuple([shape[axis] for axis in range(port.ndim)])

    def written(self, int function):
        """Return (begin, end) of each range of addresses that a function writes."""
        cdef const int64_t *pairs = NULL
        cdef size_t i, nbytes
        self.check(function)
        cdef size_t n = krt_model_written(self.model, function, &pairs)
        cdef size_t base = <size_t> krt_model_memory(self.model, &nbytes)
        return [(base + pairs[2 * i], base + pairs[2 * i + 1]) for i in range(n)]

    @property
    def n_states(self):
        self.check_live()
        return krt_model_n_states(self.model)

    def states(self):
        """Return (name, dtype code, shape, address) of each state."""
        self.check_live()
        cdef krt_port port
        cdef int i, axis
        found = []
        for i in range(krt_model_n_states(self.model)):
            if krt_model_state(self.model, i, &port) != KRT_OK:
                raise errors.ModelFileError("the file is damaged: a state has no valid shape")
            shape = tuple([port.shape[axis] for axis in range(port.ndim)])
            found.append((port.name.decode(errors="replace"), <int> port.dtype, shape, <size_t> port.data))
        return found

    def variables(self, size_t plan):
        """Return (name, least, most, initial value) of each variable of a plan."""
        cdef krt_variable variable
        cdef size_t i
        self.check_plan(plan)
        found = []
        for i in range(krt_model_n_variables(self.model, plan)):
            krt_model_variable(self.model, plan, i, &variable)
            found.append((variable.name.decode(errors="replace"), variable.least, variable.most, variable.initial))
        return found

    cdef int fill(self, int64_t *given, size_t plan, values) except -1:
        cdef size_t i, n
        self.check_plan(plan)
        n = krt_model_n_variables(self.model, plan)
        if n > KRT_MOST_SIZES or <size_t> len(values) != n:
            raise errors.VariableError(f"expected {n} values of variables, not {len(values)}")
        for i in range(n):
            given[i] = integer(0, "value", values[i])
        return 0

    def launch(self, size_t plan, values):
        """Return the values and chunks of the plan's table for values of its variables."""
        cdef int64_t given[KRT_MOST_SIZES]
        cdef krt_message why
        cdef krt_status status
        cdef size_t i, n = 0
        cdef krt_edit *edits
        self.fill(given, plan, values)
        edits = <krt_edit *> PyMem_Calloc(krt_model_most_edits(self.model, plan) + 1,
                                          sizeof(krt_edit))
        if edits == NULL:
            raise errors.OutOfMemoryError("could not allocate the changes of a plan")
        try:
            status = krt_model_launch(self.model, plan, given, edits, &n, &why)
            if status != KRT_OK:
                raise errors.VariableError(why.text.decode(errors="replace"))
            return (
                [(edits[i].op, edits[i].slot, edits[i].value) for i in range(n)
                 if edits[i].kind == KRT_SET_VALUE],
                [(edits[i].op, edits[i].value) for i in range(n)
                 if edits[i].kind == KRT_SET_CHUNKS],
            )
        finally:
            PyMem_Free(edits)

    def explain(self, size_t plan, size_t op, int64_t word, values):
        """Return (kind, message, index, size) of a failure."""
        cdef int64_t given[KRT_MOST_SIZES]
        cdef krt_problem problem
        self.fill(given, plan, values)
        self.check_op(plan, op)
        krt_model_explain(self.model, plan, op, word, given, &problem)
        return (<int> problem.kind, problem.message.text.decode(errors="replace"), problem.index,
                problem.size)

    cdef int check_op(self, size_t plan, size_t op) except -1:
        self.check_plan(plan)
        if op >= krt_plan_n_ops(krt_model_plan(self.model, plan)):
            raise IndexError(f"op: the plan has no op {op}")
        return 0

    def op_name(self, size_t plan, size_t op):
        self.check_op(plan, op)
        return krt_model_op_name(self.model, plan, op).decode(errors="replace")

    def region_name(self, size_t plan, size_t op):
        self.check_op(plan, op)
        return krt_model_region_name(self.model, plan, op).decode(errors="replace")

    def save(self, str path):
        cdef krt_message why
        cdef krt_status status
        cdef bytes name = os.fsencode(path)
        cdef const char *target = name
        self.check_live()
        with nogil:
            status = krt_model_save(self.model, target, &why)
        if status != KRT_OK:
            raise errors.ModelFileError(why.text.decode(errors="replace"))

    def __reduce__(self):
        no_copies(self)


cdef class ModelPlan:
    """A plan of a model, for the `ops` of a PlanCore."""

    def __init__(self, Model model not None, size_t number, bodies):
        model.check_plan(number)
        self.model, self.number = model, number
        self.bodies = tuple(bodies)


def clock_ns():
    return krt_clock_ns()


def processor_identity():
    cdef char text[512]
    krt_processor_identity(text, sizeof(text))
    return text.decode("ascii")


def affinity_count():
    return krt_affinity_count()


def cgroup_quota():
    cdef int64_t milli = krt_cgroup_milli_cpus()
    return milli / 1000.0 if milli else None


def pool_limit():
    return krt_pool_limit()


def get_num_threads():
    return krt_get_num_threads()


def set_thread_costs(
    int64_t hand_over_ns, int64_t chunk_ns, int64_t part_ns, int64_t wake_ns
):
    global costs_are_set
    costs_are_set = True
    krt_set_thread_costs(krt_thread_costs(hand_over_ns, chunk_ns, part_ns, wake_ns))


cpdef int thread_count(n) except -1:
    try:
        n = PyNumber_Index(n)
    except TypeError:
        raise errors.DTypeError(
            f"threads: expected an int of at least 1, not {type(n).__name__} ({n!r})"
        ) from None
    if n < 1:
        raise errors.ShapeError(f"threads: expected at least 1, not {n}")
    return <int> min(n, 1 << 20)


def set_num_threads(n):
    krt_set_num_threads(thread_count(n))
