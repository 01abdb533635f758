# cython: language_level=3
"""The modes of a thread. Each change is one C call, so no interrupt can leave a mode changed."""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from posix.signal cimport sigaction, sigaction_t

import _signal
import signal
import threading

from kernelrt import errors
from kernelrt.native import locks

GRAD = <int> KRT_GRAD
OBSERVED = <int> KRT_OBSERVED
NONFINITE = <int> KRT_NONFINITE
STEPWISE = <int> KRT_STEPWISE

cdef extern from *:
    """
    static _Thread_local PyObject *krt_modes[6]; /* NULL: the default */
    static _Thread_local unsigned long krt_writes, krt_reads;
    static unsigned long krt_all_writes, krt_all_computed; /* of all threads */
    static _Thread_local long krt_nested; /* depth of nested operations */

    /* Use the vectorcall function at offset `offset` of instances; call methods unbound. */
    static void krt_let_call(PyObject *type, size_t offset)
    {
        PyTypeObject *kind = (PyTypeObject *)type;
        kind->tp_vectorcall_offset = (Py_ssize_t)offset;
        kind->tp_call = PyVectorcall_Call;
        kind->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
        PyType_Modified(kind);
    }
    static PyObject *krt_new(PyObject *type, PyObject *no_args)
    {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_args, NULL);
    }
    """
    object krt_new(object type, tuple no_args)
    PyObject *krt_modes[4]
    unsigned long krt_writes, krt_reads, krt_all_writes, krt_all_computed
    long krt_nested
    void krt_let_call(object type, size_t offset)
    object PyObject_Vectorcall(object function, PyObject **args, size_t nargsf, PyObject *names)
    object PyMethod_New(object function, object owner)
    PyObject *Py_False
    PyObject *Py_True
    PyObject *Py_None
    object PyObject_GenericGetAttr(object owner, object name)


# Whether threads run jitted functions step by step by default.
cdef bint stepwise_at_first = False


cdef object get(int field):
    if krt_modes[field] != NULL:
        return <object> krt_modes[field]
    if field == KRT_STEPWISE:
        return stepwise_at_first
    return True if field == KRT_GRAD else False if field == KRT_NONFINITE else None


cdef int put(int field, object value) except -1:
    global debugging
    cdef PyObject *before = krt_modes[field]
    if field >= KRT_NONFINITE and value:
        debugging = True
    Py_INCREF(value)
    krt_modes[field] = <PyObject *> value
    Py_XDECREF(before)  # last: it may run a finalizer
    return 0


cdef bint records_gradients() noexcept:
    return krt_modes[<int> KRT_GRAD] != Py_False


cdef bint tracing() noexcept:
    return krt_modes[<int> KRT_TRACE] != NULL and krt_modes[<int> KRT_TRACE] != Py_None


cdef bint debugs() noexcept:
    cdef PyObject *stepwise = krt_modes[<int> KRT_STEPWISE]
    return (krt_modes[<int> KRT_NONFINITE] == Py_True or stepwise == Py_True
            or (stepwise == NULL and stepwise_at_first))


def begin_stepwise(bint value):
    global stepwise_at_first, debugging
    stepwise_at_first = value
    debugging = debugging or value


cdef Moment now() noexcept:
    cdef Moment found
    found.writes, found.all_writes, found.values = krt_writes, krt_all_writes, krt_all_computed
    return found


# A write matters only if lazy tensors were computed for it: before a write, the tensors that read
# the memory are computed. If none was, an operation has taken no node that depends on the old
# contents.
cdef bint disturbed(Moment begun) noexcept:
    return krt_all_writes != begun.all_writes and krt_all_computed != begun.values


cdef tuple NO_ARGS = ()


cdef object new_instance(object kind):
    return krt_new(kind, NO_ARGS)


cdef class Local:
    @property
    def grad(self):
        return records_gradients()

    @property
    def trace(self):
        return get(KRT_TRACE)

    @trace.setter
    def trace(self, value):
        put(KRT_TRACE, value)

    @property
    def scope(self):
        return get(KRT_SCOPE)

    @scope.setter
    def scope(self, value):
        put(KRT_SCOPE, value)

    @property
    def observed(self):
        return get(KRT_OBSERVED)

    @property
    def debugs(self):
        return debugs()

    @property
    def nonfinite(self):
        return get(KRT_NONFINITE)

    @property
    def stepwise(self):
        return get(KRT_STEPWISE)

    @property
    def writes(self):
        return krt_writes


local = Local()


def began_write():
    global krt_writes, krt_all_writes
    krt_writes += 1
    krt_all_writes += 1


def computed():
    global krt_all_computed
    krt_all_computed += 1


def count_read():
    global krt_reads
    krt_reads += 1


cdef unsigned long reads() noexcept:
    return krt_reads


# Maximum number of attempts of an operation. The first do not take the lock. The later ones do, so
# that other threads wait; signal handlers and finalizers do not come that often.
cdef enum:
    MOST_TIMES = 100
    TIMES_WITHOUT_LOCK = 4


# NumPy's parameter names -> PyTorch's names; the first that the function has is used.
ALIASES = {"axis": ("dim", "dims"), "keepdims": ("keepdim",)}


# PyTorch's parameter names of single functions -> their names as methods.
OF_ONE = {
    "mm": {"mat2": "other"}, "bmm": {"mat2": "other"}, "outer": {"vec2": "other"},
    "ger": {"vec2": "other"}, "dot": {"tensor": "other"}, "vdot": {"tensor": "other"},
    "split": {"split_size_or_sections": "split_size"},
    "unsafe_split": {"split_size_or_sections": "split_size"},
    "transpose": {"axis0": "dim0", "axis1": "dim1"},  # swapaxes is another name of it
}


cpdef dict aliases_of(object function):
    """Return a mapping of aliases of parameters to the parameters' names; None without aliases."""
    cdef object code = getattr(function, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = {
        alias: name
        for alias, known in ALIASES.items() if alias not in names
        for name in known[::-1] if name in names
    }
    for alias, name in OF_ONE.get(code.co_name, {}).items():
        if alias not in names and name in names:
            found[alias] = name
    return found or None


# Aliases of starred parameters, such as sizes and axes.
SEVERAL = {"shape": ("size",), "dims": ("axis",)}
HAS_SEVERAL = 4  # CO_VARARGS of co_flags: the function has a starred parameter


cpdef tuple several_of(object function):
    """Return the keywords that may give a starred parameter's values; None if there are none."""
    cdef object code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & HAS_SEVERAL:
        return None
    name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return (name, *SEVERAL.get(name, ()))


def with_starred(str name, tuple several, int before, tuple given, dict options):
    """Return `given`, followed by the value of a keyword in `several`, taken from `options`."""
    cdef tuple named = tuple([options.pop(other) for other in several if other in options])
    if len(given) + len(named) > before + 1:
        raise errors.DTypeError(f"{name}: {several[0]} is given twice; pass it once")
    return given + named


cdef PyObject *with_several(
    Operation operation, PyObject **args, size_t n, tuple names
) except NULL:
    """Call `operation` with the values of its starred parameter given by keyword."""
    cdef tuple given = tuple([<object> args[i] for i in range(n)])
    cdef dict options = {name: <object> args[n + i] for i, name in enumerate(names)}
    given = with_starred(operation.__name__, operation.several, 1, given, options)
    found = operation(*given, **options)
    Py_INCREF(found)
    return <PyObject *> found


cdef tuple by_own_names(Operation operation, tuple names):
    """Return `names` of arguments with aliases replaced by the function's own names."""
    cdef object name, own
    for name in names:
        if name in operation.aliases:
            break
    else:
        return names
    own = tuple([operation.aliases.get(name, name) for name in names])
    for name in names:
        if name in operation.aliases and own.count(operation.aliases[name]) > 1:
            raise errors.DTypeError(
                f"{operation.__name__}: {operation.aliases[name]} and {name} are the same "
                "parameter; pass one of them"
            )
    return own


cdef class Operation:
    def __cinit__(self, function):
        self.call = <vectorcallfunc> done_whole
        self.function = function
        self.code = getattr(function, "__code__", None)
        self.aliases = aliases_of(function)
        self.templates = {}
        if getattr(getattr(function, "__code__", None), "co_argcount", 0) == 1:
            self.several = several_of(function)

    def __init__(self, function):
        import functools

        functools.update_wrapper(self, function)

    def __get__(self, owner, kind):
        return self if owner is None else PyMethod_New(self, owner)

    def __call__(self, *args, **kwargs):
        return self(*args, **kwargs)  # calls tp_call, which `krt_let_call` has replaced

    def __reduce__(self):
        return self.__qualname__

    def __repr__(self):
        return f"<operation {self.__qualname__}>"


cdef PyObject *done_whole(
    PyObject *operation, PyObject **args, size_t nargsf, PyObject *names
) except NULL:
    # The memory in front of the arguments must not change between two calls.
    global krt_nested
    cdef size_t n = nargsf & ~(<size_t> 1 << (8 * sizeof(size_t) - 1))
    cdef tuple own
    if names == NULL and n == 2 and (<Operation> operation).fast_path != NULL:
        krt_nested += 1
        try:
            found = (<Operation> operation).fast_path(
                (<Operation> operation).rule, (<Operation> operation).code, <object> args[0],
                <object> args[1])
        finally:
            krt_nested -= 1
        if found is not None:
            Py_INCREF(found)
            return <PyObject *> found
    if names != NULL and (<Operation> operation).several is not None:
        for name in <tuple> names:
            if name in (<Operation> operation).several:
                return with_several(<Operation> operation, args, n, <tuple> names)
    if names != NULL and (<Operation> operation).aliases is not None:
        own = by_own_names(<Operation> operation, <tuple> names)
        names = <PyObject *> own
    if krt_nested or look_up == NULL:
        return repeated((<Operation> operation).function, args, n, names, False, <object> operation)
    krt_nested += 1
    try:
        answer = look_up(<Operation> operation, args, n, names)
    finally:
        krt_nested -= 1
    if answer is not None and not isinstance(answer, Recording):
        Py_INCREF(answer)
        return <PyObject *> answer
    found = <object> repeated(
        (<Operation> operation).function, args, n, names, False, <object> operation)
    Py_DECREF(found)
    if answer is not None:
        krt_nested += 1
        try:
            (<Recording> answer).record(found)
        finally:
            krt_nested -= 1
    Py_INCREF(found)
    return <PyObject *> found


cdef look_up_t look_up = NULL


cdef void use_templates(look_up_t function) noexcept:
    global look_up
    look_up = function


cdef class Recording:
    cdef int record(self, object found) except -1:
        return 0


cdef int offer_numbers(PyObject **args, size_t n, PyObject *names) except -1:
    """Tell the trace to treat float arguments of a failed operation as constants of the program."""
    cdef size_t count = n + (0 if names == NULL else len(<tuple> names))
    get(KRT_TRACE).take_by_value([<object> args[i] for i in range(count)])
    return 0


cdef object called_by_value(object function, PyObject **args, size_t n, PyObject *names):
    """Call `function` with float arguments as Python numbers; return None if there are none."""
    cdef size_t i, count = n + (0 if names == NULL else len(<tuple> names))
    cdef list given = [<object> args[i] for i in range(count)]
    from kernelrt.tensor.nodes.arguments import python_number

    found = [python_number(value) for value in given]
    if all([a is b for a, b in zip(found, given)]):
        return None
    named = {} if names == NULL else dict(zip(<tuple> names, found[n:]))
    try:
        return function(*found[:n], **named)
    except Exception:
        return None  # the caller raises the first error


cdef object lock = None


def _name_lock(now_lock):
    """Set the lock that is held while tensors get data."""
    global lock
    lock = now_lock


cdef PyObject *repeated(
    object function, PyObject **args, size_t n, PyObject *names, bint any_write, object named
) except NULL:
    """Call `function` until no relevant write happens during the call; return the result.

    With `any_write`, each write by code that interrupts this thread is relevant.
    """
    cdef bint calm = False
    cdef object found
    cdef int time
    for time in range(TIMES_WITHOUT_LOCK):
        found = once(function, args, n, names, any_write, &calm)
        if calm:
            Py_INCREF(found)
            return <PyObject *> found
    with lock:  # other threads wait; handlers and finalizers may still come
        for time in range(TIMES_WITHOUT_LOCK, MOST_TIMES):
            found = once(function, args, n, names, any_write, &calm)
            if calm:
                Py_INCREF(found)
                return <PyObject *> found
    raise errors.PlanBusyError(
        f"{named.__qualname__} was interrupted {MOST_TIMES} times by code that writes to memory; "
        "make the signal handler run less often"
    )


cdef object once(
    object function, PyObject **args, size_t n, PyObject *names, bint any_write, bint *calm
):
    """Call `function`; set `calm` to whether no relevant write happened during the call."""
    global krt_nested
    cdef Moment begun = now()
    cdef object found
    krt_nested += 1
    try:
        found = PyObject_Vectorcall(function, args, n, names)
    except Exception:
        if tracing():
            offer_numbers(args, n, names)
        if not (debugging and get(KRT_STEPWISE)):
            raise
        found = called_by_value(function, args, n, names)
        if found is None:
            raise
    finally:
        krt_nested -= 1
    calm[0] = krt_writes == begun.writes if any_write else not disturbed(begun)
    return found


cdef bint is_nested() noexcept:
    return krt_nested > 1


def undisturbed(function, named, bint any_write=True):
    cdef PyObject *found = repeated(function, NULL, 0, NULL, any_write, named)
    try:
        return <object> found
    finally:
        Py_XDECREF(found)


cdef int _let_call(Operation one) except -1:
    krt_let_call(Operation, <size_t> (<char *> &one.call - <char *> <PyObject *> one))
    return 0


_let_call(Operation(Local))


@cython.auto_pickle(True)
cdef class Mode:
    cdef int field
    cdef object value
    cdef list before

    def __init__(self, int field, value):
        if field not in (KRT_GRAD, KRT_OBSERVED, KRT_NONFINITE, KRT_STEPWISE):
            raise errors.KernelrtError(f"there is no mode {field}")
        self.field = field
        self.value = value
        self.before = []

    def __enter__(self):
        self.before.append(get(self.field))
        if self.field == KRT_GRAD and self.value and get(KRT_TRACE) is not None:
            get(KRT_TRACE).asked = True  # the trace depends on the caller's mode from here on
        put(self.field, self.value)
        return self.value

    def __exit__(self, *_):
        put(self.field, self.before.pop())

    def __call__(self, function):
        return _decorated(function, self.field, self.value)


@cython.auto_pickle(True)
cdef class Setting(Mode):
    def __init__(self, int field, value):
        Mode.__init__(self, field, value)
        self.before.append(get(field))
        put(field, value)

    def __enter__(self):
        if self.field == KRT_GRAD and self.value and get(KRT_TRACE) is not None:
            get(KRT_TRACE).asked = True
        if not self.before:  # it is entered again after an exit
            self.before.append(get(self.field))
            put(self.field, self.value)
        return self.value

    def __call__(self, function):
        put(self.field, self.before.pop())
        return _decorated(function, self.field, self.value)


@cython.auto_pickle(True)
cdef class Closing(Setting):
    cdef object begin
    cdef object end
    cdef list tokens

    def __init__(self, int field, value, begin, end):
        self.begin, self.end = begin, end
        self.tokens = [begin()]
        Setting.__init__(self, field, value)

    def __enter__(self):
        if not self.tokens:
            self.tokens.append(self.begin())
        return Setting.__enter__(self)

    def __exit__(self, kind, error, traceback):
        try:
            token = self.tokens.pop()
            if self.value and kind is None:
                self.end(token)
        finally:
            put(self.field, self.before.pop())


# Names of the modes that can decorate functions.
cdef dict NAMES = {
    <int> KRT_GRAD: "no_grad", <int> KRT_NONFINITE: "debug_nans", <int> KRT_STEPWISE: "disable_jit",
}


def _decorated(function, int field, value):
    import functools
    import inspect

    if (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)):
        raise errors.GradientError(
            f"{getattr(function, '__name__', function)}() is a generator or coroutine function: "
            "its body runs after the call, when the mode has ended; write "
            f"'with kernelrt.{NAMES.get(field, 'no_grad')}():' in its body"
        )

    @functools.wraps(function)
    def within(*args, **kwargs):
        with Mode(field, value):
            return function(*args, **kwargs)

    return within


@cython.auto_pickle(True)
cdef class Limit:
    cdef object most
    cdef object read
    cdef object write
    cdef list before

    def __init__(self, most, read, write):
        self.most = most
        self.read = read
        self.write = write
        self.before = []

    def __enter__(self):
        before = self.read()
        self.before.append(before)
        self.write(min(self.most, before))

    def __exit__(self, *_):
        self.write(self.before.pop())


cdef class TraceMode:
    def __cinit__(self, *_, **__):
        self.handlers = []
        self._states = {}

    def _begin(self):
        """Prepare the trace, which is not active yet."""

    def __enter__(self):
        if get(KRT_TRACE) is not self.around:
            raise errors.JitError(
                "a trace is already active on this thread; call the function without jit inside a "
                "traced function"
            )
        if self.around is not None:
            self.draws = (<TraceMode> self.around).draws
        self._begin()
        locks.uncollected.__enter__()
        try:
            self.keep_out()
        except BaseException:
            self.leave()
            raise
        put(KRT_TRACE, self)
        return self

    def __exit__(self, *_):
        put(KRT_TRACE, self.around)
        self.leave()

    cdef int keep_out(self) except -1:
        """Wrap signal handlers so that they run as if there were no trace.

        Python runs handlers on the main thread only. This wraps the handlers that are installed
        now. Those that a handler installs are wrapped after that handler has run.
        """
        if threading.get_ident() != threading.main_thread().ident:
            return 0
        for number in SIGNALS:
            handler = _signal.getsignal(number)  # signal.getsignal creates an enum in each call
            # default_int_handler only raises.
            if callable(handler) and handler is not signal.default_int_handler \
                    and not isinstance(handler, UntracedHandler):
                wrapper = UntracedHandler(number, handler)
                self.handlers.append(wrapper)
                exchange_handler(number, handler, wrapper)
        return 0

    cdef int leave(self) except -1:
        """Restore the signal handlers, even if handlers that run meanwhile raise."""
        cdef object raised = None
        if self.around is not None:  # keep the handlers out of the enclosing trace, too
            (<TraceMode> self.around).handlers += self.handlers
            self.handlers = []
        while self.handlers:
            wrapper = self.handlers[-1]
            try:
                exchange_handler(
                    (<UntracedHandler> wrapper).number, wrapper,
                    (<UntracedHandler> wrapper).handler)
            except BaseException as error:
                if signal.getsignal((<UntracedHandler> wrapper).number) is wrapper:
                    raised = raised or error
                    continue  # try again: the handler that raised has run
                raised = raised or error
            self.handlers.pop()
        locks.uncollected.__exit__()
        if raised is not None:
            raise raised
        return 0


SIGNALS = tuple(sorted(map(int, signal.valid_signals())))


cdef int exchange_handler(int number, object before, object after) except -1:
    """Replace the handler `before` of a signal by `after`, and change nothing else."""
    cdef sigaction_t action
    if signal.getsignal(number) is not before:
        return 0
    sigaction(number, NULL, &action)
    found = signal.signal(number, after)
    if found is before:
        # signal() lets system calls be interrupted; the program may have said otherwise.
        sigaction(number, &action, NULL)
    else:  # a handler that ran just now has installed another
        signal.signal(number, found)
    return 0


cdef class UntracedHandler:
    """A signal handler that runs as if no trace were active while a function is traced.

    Modes that apply to all code within a block, such as no_grad, apply to the handler, too.
    """

    cdef int number
    cdef object handler

    def __init__(self, int number, handler):
        self.number = number
        self.handler = handler

    def __call__(self, *args):
        cdef object trace = get(KRT_TRACE), scope = get(KRT_SCOPE), observed = get(KRT_OBSERVED)
        cdef object draws = None if trace is None else (<TraceMode> trace).draws
        cdef object idle = None if draws is None else draws.idle()
        put(KRT_TRACE, None)
        put(KRT_SCOPE, None)
        put(KRT_OBSERVED, None)
        try:
            return self.handler(*args)
        finally:
            put(KRT_TRACE, trace)
            put(KRT_SCOPE, scope)
            put(KRT_OBSERVED, observed)
            if trace is not None:
                (<TraceMode> trace).keep_out()
            if draws is not None:
                draws.leave_out(idle)


# Stands for the value of an attribute that an object does not have.
MISSING = object()


cdef class Observed:
    def __getattribute__(self, name):
        cdef PyObject *observed = krt_modes[<int> KRT_OBSERVED]
        if observed != NULL and observed != Py_None:
            see(self, name, <object> observed)
        return PyObject_GenericGetAttr(self, name)


cdef int see(object owner, str name, object observed) except -1:
    if not name.startswith("__"):
        held = <dict> PyObject_GenericGetAttr(owner, "__dict__")
        observed.setdefault((id(owner), name), (owner, name, held.get(name, MISSING)))
    return 0
