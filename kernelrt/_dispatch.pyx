# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Run plans: take exclusive access, execute, raise the exception for the status."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t

from kernelrt.native.core cimport (
    Table, must_end, poll_due, raise_stopped, schedule_poll, start_failed,
)
from kernelrt.native.krt cimport *
from kernelrt.native.memory cimport Storage, writes

import warnings

from kernelrt import errors

KERNEL = <int> KRT_KERNEL
COPY = <int> KRT_COPY
CUSTOM = <int> KRT_CUSTOM
NOP = <int> KRT_NOP
REGION = <int> KRT_REGION
HOST_PARALLEL_SAFE = <int> KRT_HOST_PARALLEL_SAFE
MAY_FAIL = <int> KRT_MAY_FAIL
COMMIT = <int> KRT_COMMIT
FOLLOWS = <int> KRT_FOLLOWS
UNKNOWN_COST = <int> KRT_UNKNOWN_COST
STATUS = 0


@cython.final
cdef class Profile:
    """Memory for the results of a profiled run of a plan."""

    def __cinit__(self, PlanCore plan not None):
        self.n_samples = plan.samples
        self.raw.samples = <krt_sample *> PyMem_Calloc(plan.samples + 1, sizeof(krt_sample))
        self.raw.claims = <krt_claim_sample *> PyMem_Calloc(
            plan.most_claims + 1, sizeof(krt_claim_sample))
        if self.raw.samples == NULL or self.raw.claims == NULL:
            raise errors.OutOfMemoryError("could not allocate the samples of a profile")

    def __dealloc__(self):
        PyMem_Free(self.raw.samples)
        PyMem_Free(self.raw.claims)

    cdef list rows(self):
        """Return a tuple for each op: start, elapsed, worker, chunks, runs and claims.

        A claim is (begin, end, worker, start, elapsed); an op that ran on the calling thread alone
        has none. Claims are in order of their chunks.
        """
        cdef dict claims = {}
        cdef krt_claim_sample *claim
        cdef krt_sample *sample
        cdef size_t i
        for i in range(self.raw.n_claims):
            claim = self.raw.claims + i
            claims.setdefault(claim.op, []).append(
                (claim.begin, claim.end, claim.worker, claim.start_ns, claim.elapsed_ns))
        out = []
        for i in range(self.n_samples):
            sample = self.raw.samples + i
            out.append((sample.start_ns, sample.elapsed_ns, sample.worker, sample.chunks,
                        sample.runs, tuple(sorted(claims.get(i, ())))))
        return out


cdef krt_status call_custom(void *self, size_t op) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    plan.called_back += 1
    try:
        plan.call_custom(op)
        return KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_CUSTOM_FAILED


cdef krt_status poll(void *self) noexcept nogil:
    cdef int64_t now = poll_due()
    return poll_python(self, now) if now else KRT_OK


cdef krt_status poll_python(void *self, int64_t since_ns) noexcept with gil:
    cdef PlanCore plan = <PlanCore> self
    plan.called_back += 1
    try:
        schedule_poll(since_ns)
        PyErr_CheckSignals()
        if must_end():
            plan.error = SystemExit()
            return KRT_INTERRUPTED
        return KRT_OK
    except BaseException as error:
        plan.error = error
        return KRT_INTERRUPTED


cdef class PlanCore(Table):
    """A table of prepared operations that can be executed."""

    def __cinit__(self, *args, **kwargs):
        self.lasting = True
        self.sources = ()

    def __init__(self, ops):
        cdef krt_host host
        host.self = <void *> self
        host.custom = call_custom
        host.poll = poll
        self.make(ops, host)

    cdef krt_status run(self, krt_profile *profile, size_t *failed_op,
                        bint keep_gil) noexcept:
        global writes
        cdef krt_status status
        if self.preparation is not None and self.prepared != writes:
            status = self.prepare()
            if status != KRT_OK:
                failed_op[0] = 0
                return status
        status = self.launch(profile, failed_op, keep_gil)
        if self.lasting:
            if self.prepared == writes:
                self.prepared += 1  # its own writes do not touch the preparation's sources
            writes += 1
        return status

    cdef krt_status prepare(self) noexcept:
        """Compute the run-invariant values from the present contents of their sources."""
        self.called_back += 1  # the preparation may release the GIL
        cdef PlanCore preparation = self.preparation
        cdef Storage source
        cdef unsigned long long now = writes
        cdef size_t op = 0
        cdef bint own = True
        cdef krt_status status = preparation.try_acquire()
        if status != KRT_OK:
            return KRT_BUSY if status == KRT_TIMEOUT else status
        if preparation.plan == NULL:
            status = KRT_INTERRUPTED
            self.error = errors.PlanReleasedError("the preparation of the plan was released")
        else:
            status = preparation.launch(NULL, &op, False)
            self.error, preparation.error = preparation.error, None
        preparation.leave()
        for source in self.sources:
            own = own and source.is_own()
        self.prepared = now if status == KRT_OK and own else 0
        return status

    cdef int finish(self, krt_status status, size_t op) except -1:
        """Release the plan, then raise or warn: both may run any Python code."""
        global start_failed
        cdef int64_t word
        if status == KRT_OK:
            self.leave()
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
        word = core.status_word(at)
        cause, core.error = core.error, None
        if core is not self and self.error is not None:
            cause, self.error = self.error, None
        self.leave()
        return raise_stopped(status, op, cause, core, at, word, path)

    def _iteration_name(self, op, iteration):
        return f"iteration {iteration} of {self._op_name(op)}"

    def _op_name(self, op):
        return f"op {op}"

    def _index_error(self, op, status_word):
        return errors.IndexBoundsError(
            f"{self._op_name(op)} read an index that lies outside its axis"
        )

    def execute(self):
        cdef size_t op = 0
        self.acquire()
        cdef krt_status status = self.run(NULL, &op, False)
        self.finish(status, op)

    def execute_with(self, bind):
        cdef size_t op = 0
        self.acquire_with(bind)
        cdef krt_status status = self.run(NULL, &op, False)
        self.finish(status, op)

    def execute_profiled_raw(self, bind=None):
        cdef Profile profile = Profile(self)
        cdef krt_status status
        cdef size_t op = 0
        if bind is None:
            self.acquire()
        else:
            self.acquire_with(bind)
        status = self.run(&profile.raw, &op, False)
        self.finish(status, op)
        return profile.rows()

    def set_threads(self, n):
        Table.set_threads(self, n)
        if self.preparation is not None:
            self.preparation.set_threads(n)

    def keep_to_own_memory(self):
        self.lasting = False

    def prepare_by(self, PlanCore preparation not None, sources):
        sources = tuple(sources)
        for source in sources:
            if not isinstance(source, Storage):
                raise errors.PlanBuildError(f"sources: expected Storage objects, not {source!r}")
        self.set_with(lambda: ((), (), (), ((self, "_prepared_by", (preparation, sources)),)))

    @property
    def _prepared_by(self):
        """The preparation or None, and the storages that it reads. Set under exclusive access."""
        return self.preparation, self.sources

    @_prepared_by.setter
    def _prepared_by(self, tuple found):
        preparation, sources = found
        for source in sources:
            (<Storage?> source).watch()
        self.preparation, self.sources, self.prepared = preparation, sources, 0
