# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""The locks of the package, and their handling when the process forks.

A fork copies one thread and every lock. So before a fork the forking thread takes all locks in
ascending order of rank, as nested code does; afterwards both processes release them. If a lock
cannot be taken although nothing makes progress (its holder may be waiting for this very thread),
the fork continues, and the child creates that lock anew.

Locks are reentrant, because finalizers and signal handlers can interrupt any code. Acquire and
release have no step at which an interrupt could leave a lock taken. Such interrupting code may also
take a lock of a lower rank than its thread holds: if that would close a cycle of waiting threads,
it gets an error.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from posix.unistd cimport usleep

import os
import sys
import threading
import time
import weakref

from kernelrt.errors import PlanBusyError

cdef extern from *:
    """
    /* Number of entries of this thread into Gates. */
    static _Thread_local int krt_inside_here;
    /* Number of entries of this thread into Pauses. */
    static _Thread_local int krt_pauses_here;
    """
    int krt_inside_here
    int krt_pauses_here
    int PyGC_Disable()
    int PyGC_Enable()

# Ranks: nested code takes locks in ascending order.
CALL, STATE, DEVICES, KERNELS, COMPILER, LOADER, IMPORTS, GATE, LLVM = range(0, 90, 10)

# A fork waits for locks of other threads as long as the process uses CPU time, up to a limit:
# threads that wait for the forking thread use none. On a busy machine threads get little CPU time.
cdef double QUIET_S = 2.0
cdef double MOST_WAIT_S = 60.0
cdef double LEAST_WORK_S = 0.01
cdef double SLICE_S = 0.05

cdef list locks = []  # weak references
cdef list hooks = []  # (rank, before, in_parent, in_child)
cdef list taken = []  # by the current fork: Locks, and hooks whose `before` has run
cdef object serial = threading.RLock()  # one fork at a time
cdef int forks = 0  # nested forks of the thread that holds `serial`
cdef int generation = 0  # number of forks between the original process and this one
cdef dict waiting = {}  # the Lock that each thread waits for
cdef ForkTimeout fork_timeout = ForkTimeout()  # of the current fork


cdef class ForkTimeout:
    """Limits the wait of a fork: until there is no progress for a while, or at most a minute.

    The time that counts is the sum of this thread's wait slices, each capped at twice its nominal
    length. On a busy machine, or while the process is stopped, a slice takes longer, but the other
    threads get no more CPU time.
    """

    cdef double last, waited, quiet, used

    def __cinit__(self):
        self.last = time.monotonic()
        self.used = time.process_time()

    cdef bint lasts(self) except -1:
        cdef double now = time.monotonic(), used = time.process_time()
        cdef double slice_s = min(now - self.last, 2 * SLICE_S)
        self.last = now
        self.waited += slice_s
        self.quiet += slice_s
        if used - self.used >= LEAST_WORK_S:
            self.used, self.quiet = used, 0
        return self.waited < MOST_WAIT_S and self.quiet < QUIET_S

    cdef bint take(self, object inner) except -1:
        """Take the lock; return whether that succeeded."""
        if inner.acquire(False):
            return True
        while self.lasts():
            if inner.acquire(True, SLICE_S):
                return True
        return False


cdef class Lock:
    """A reentrant lock that a fork leaves free in the child, unless the forking thread holds it.

    Parameters
    ----------
    rank : int
        Position in the order in which locks are taken.
    home : object, optional
        Object of another library whose RLock, its attribute `_lock`, this Lock takes.
    """

    cdef object inner
    cdef object home
    cdef readonly int rank
    cdef unsigned long holder  # thread that holds it; 0: none
    cdef int depth
    cdef object __weakref__

    def __init__(self, int rank, home=None):
        self.inner = threading.RLock() if home is None else home._lock
        self.home = home
        self.rank = rank
        locks.append(weakref.ref(self, locks.remove))

    def __enter__(self):
        if not self.inner.acquire(False):
            self.wait()
        self.holder = <unsigned long> PyThread_get_thread_ident()
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            self.holder = 0
        self.inner.release()

    def is_mine(self):
        """Return whether this thread holds the lock."""
        return self.inner._is_owned()

    cdef int wait(self) except -1:
        """Wait for a lock that another thread holds.

        Wait in time slices, because that thread, too, may close a cycle of waiting threads.
        """
        me = <unsigned long> PyThread_get_thread_ident()
        before = waiting.get(me)  # the Lock that the interrupted code waits for
        waiting[me] = self
        try:
            while not self.inner.acquire(True, SLICE_S):
                if ring_rank(self.holder, me) > self.rank:
                    raise PlanBusyError(
                        "a signal handler or a finalizer needs a lock that another thread holds, "
                        "and that thread waits for a lock that the interrupted code holds; compute "
                        "outside signal handlers and finalizers"
                    )
        finally:
            if before is None:
                waiting.pop(me, None)
            else:
                waiting[me] = before
        return 0

    cdef int renew(self) except -1:
        """Replace the lock in a forked child, unless the child's only thread holds it."""
        if not self.inner._is_owned():
            self.inner = threading.RLock()
            self.holder = 0
            self.depth = 0
            if self.home is not None:
                self.home._lock = self.inner
        return 0


cdef int ring_rank(unsigned long thread, unsigned long me) except -2:
    """Return the rank of the Lock of this thread that `thread` waits for in the end; else -1."""
    cdef Lock lock
    cdef Py_ssize_t left = len(waiting) + 1
    while left:
        lock = waiting.get(thread)
        if lock is None:
            return -1
        if lock.holder == me:
            return lock.rank
        thread = lock.holder
        left -= 1
    return -1


def waits_for_me(unsigned long thread):
    """Return whether `thread` waits, directly or indirectly, for a Lock of this thread."""
    return ring_rank(thread, <unsigned long> PyThread_get_thread_ident()) >= 0


def is_free_within(lock, double seconds):
    if not lock.acquire(True, seconds):
        return False
    lock.release()
    return True


def existing():
    return [lock for ref in list(locks) if (lock := ref()) is not None]


def at_fork(int rank, before=None, in_parent=None, in_child=None):
    """Register functions to call around each fork.

    `before` is called in ascending order of ranks, the others in descending order. A bound method
    as `in_child` does not keep its object alive.
    """
    if hasattr(in_child, "__func__"):
        in_child = weakref.WeakMethod(in_child)
    elif in_child is not None:
        in_child = _constant(in_child)
    hooks.append((rank, before, in_parent, in_child))


def _forget_hooks_below(int rank):
    """Remove the hooks of tests, which have ranks below those of the package."""
    hooks[:] = [hook for hook in hooks if hook[0] >= rank]


def _constant(function):
    return lambda: function


cdef class Gate:
    """Admits many threads at once, and makes a fork wait until they have left.

    For calls of libraries with their own locks: such a lock, if held at the fork, stays held in the
    child.
    """

    cdef int inside
    cdef int closed

    def __init__(self, int rank):
        at_fork(rank, self.close, self.open, self._after_fork)

    def run(self, function, *args):
        """Call `function` inside the gate."""
        while self.closed:
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        self.inside += 1
        _add_here(1)
        try:
            return function(*args)
        finally:
            _add_here(-1)
            self.inside -= 1

    def close(self):
        """Close the gate and wait until no other thread is inside."""
        self.closed += 1
        while self.inside > krt_inside_here and fork_timeout.lasts():
            with nogil:
                usleep(200)

    def open(self):
        """Open the gate again."""
        self.closed -= 1

    def _after_fork(self):
        self.closed = 0
        self.inside = krt_inside_here


cdef void _add_here(int n) noexcept:
    global krt_inside_here
    krt_inside_here += n


cdef class GcPause:
    """Disables the cyclic garbage collector while a thread is inside.

    The collector calls finalizers on any thread, and finalizers may compute. On a thread that
    another thread waits for, they would need locks of that thread; during an import, they would see
    a partially initialized module.
    """

    cdef int pauses
    cdef bint stopped  # whether this object disabled the collector, not the program

    def __init__(self, int rank):
        at_fork(rank, None, None, self._after_fork)

    def __enter__(self):
        self.pauses += 1
        _add_pauses_here(1)
        if PyGC_Disable():
            self.stopped = True
        if krt_pauses_here == 1:
            try:
                # From Python 3.12 on the collector runs at function entry. A pending collection
                # runs here, before this thread takes a lock that a finalizer may need.
                do_nothing()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_):
        self.pauses -= 1
        _add_pauses_here(-1)
        self.go_on()

    cdef void go_on(self) noexcept:
        if self.pauses == 0 and self.stopped:
            self.stopped = False
            PyGC_Enable()

    def _after_fork(self):
        self.pauses = krt_pauses_here
        self.go_on()


cdef object do_nothing = eval("lambda: None")


cdef void _add_pauses_here(int n) noexcept:
    global krt_pauses_here
    krt_pauses_here += n


def _rank_of(entry):
    return entry.rank if isinstance(entry, Lock) else entry[0]


cdef int begin(object entry) except -1:
    if not isinstance(entry, Lock):
        if entry[1] is not None:
            entry[1]()
        taken.append(entry)
    elif fork_timeout.take((<Lock> entry).inner):
        taken.append(entry)
    return 0


cdef int end(object entry, bint in_child) except -1:
    if isinstance(entry, Lock):
        (<Lock> entry).inner.release()
        return 0
    _, _, in_parent, child = entry
    if in_child and child is not None:
        return 0  # `renew` calls `child` in any case
    if in_parent is not None:
        in_parent()
    return 0


cdef void attempt(int (*function)(object, bint) except -1, object entry, bint in_child) noexcept:
    """Call `function`; report exceptions, so that the other entries are still released."""
    try:
        function(entry, in_child)
    except BaseException:
        sys.excepthook(*sys.exc_info())


def _before():
    global forks, fork_timeout
    cdef int born = generation
    if not ForkTimeout().take(serial):
        return  # another thread's fork is stuck
    forks += 1
    if forks > 1:
        return  # a signal handler forks while this thread prepares a fork
    fork_timeout = ForkTimeout()
    entries = hooks + existing()
    for entry in sorted(entries, key=_rank_of):
        try:
            begin(entry)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        if generation != born:
            return _before()  # a signal handler forked, and this process is the child


def _in_parent():
    global forks
    if not serial._is_owned():
        return
    forks -= 1
    if forks == 0:
        entries = taken[::-1]
        taken.clear()
        for entry in entries:
            attempt(end, entry, False)
    serial.release()


cdef int renew(object entry, bint unused) except -1:
    if isinstance(entry, Lock):
        return (<Lock> entry).renew()
    child = entry[3]
    function = None if child is None else child()
    if function is not None:
        function()
    return 0


def _in_child():
    global forks, generation, serial
    generation += 1
    forks = 0
    serial = threading.RLock()
    waiting.clear()
    entries = taken[::-1]
    taken.clear()
    for entry in entries:
        attempt(end, entry, True)
    for entry in hooks + existing():
        attempt(renew, entry, True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

#: Entered by code during which no finalizers may run.
uncollected = GcPause(LLVM)
#: Held by code that imports modules on first use. If another thread is importing a module when the
#: process forks, the child can never import it.
imports = Lock(IMPORTS)
