# cython: language_level=3, binding=False
"""The one place where a krt_status becomes an exception."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport *

from kernelrt import errors


cdef int raise_status(krt_status status, const krt_fault *fault, size_t op, object cause,
                      object name=None, object index_error=None, object turn=None) except -1:
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
            "the plan is in use by the code that this call interrupts: it comes from one of the "
            "plan's own custom functions, a handler of a signal or a finalizer; execute a "
            "replica() there, or make the call once the plan is done"
        )
    if status == KRT_DEADLOCK:
        raise errors.PlanBusyError(
            "the plan is in use by a thread that waits for a plan which this thread is executing; "
            "execute a replica() in custom functions, or move the calls out of the plans"
        )
    if status == KRT_FORKED:
        raise errors.ForkError(
            "this process was forked by a signal handler while several threads executed the plan; "
            "they do not exist in the child, so this run has no result here; execute it again"
        )
    if status == KRT_NO_STACK:
        raise errors.OutOfMemoryError(
            "too little is left of this thread's stack for the arrays of the plan's kernels, and "
            "the system gives no other thread to call them on; start the thread with more stack, "
            "as by threading.stack_size(1 << 20), or end other threads"
        )
    if status == KRT_OUT_OF_BOUNDS:
        index_error.op = op
        raise index_error from cause  # an interrupt that came at the same time
    if status == KRT_CUSTOM_FAILED:
        if not isinstance(cause, Exception):
            raise cause  # Ctrl-C, sys.exit and the like are no failures of the function
        error = errors.CustomFunctionError(
            f"the custom function of {name} raised {type(cause).__name__}: {cause}"
        )
        error.op, error.turn = op, turn
        raise error from cause
    if status == KRT_INTERRUPTED:
        raise cause
    raise SystemError(f"unexpected status {<int> status} from the C core")


cdef int raise_stopped(krt_status status, size_t op, object cause, object plan, size_t at,
                       int64_t word, list path) except -1:
    cdef str where = ""
    turn = name = index_error = None
    if status == KRT_OUT_OF_BOUNDS:
        index_error = plan._index_error(at, word)
        where, turn = told_turns(path)
        if where:
            index_error.args = (f"{index_error.args[0]}{where}", *index_error.args[1:])
            index_error.turn = turn
    elif status == KRT_CUSTOM_FAILED:
        name = plan._op_name(at)
        where, turn = told_turns(path)
        name += where
    return raise_status(status, NULL, op, cause, name, index_error, turn)


cdef tuple told_turns(list path):
    """Where regions stopped, for people, and the number of the innermost turn that has one."""
    text, number = "", None
    for plan, op, _, turn in reversed(path):
        name = plan._turn_name(op, turn)
        if name is not None:
            text += f", in {name}"
            number = turn if number is None else number
    return text, number
