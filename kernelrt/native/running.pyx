# cython: language_level=3, binding=False
"""Who executes without the GIL: what the end of the process waits for, and a forked child forgets.

At exit compiled code is freed, so nobody may be executing it without the GIL by then. The
interpreter waits until they are out; executions that begin later keep the GIL, and daemon threads
that try to get it are stopped by the interpreter. All of this is written with the GIL, and what
executions ask now and then is read without it.
"""

from posix.unistd cimport usleep

import atexit
import os
import threading

cdef extern from "Python.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef extern from *:
    """
    /* Executions without the GIL: of all threads, and of this one. */
    static int executing;
    static _Thread_local int executing_here;
    /* Whether the process ends, and then the thread that ends it. */
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
    """Let executions end; long plans notice within a poll. Gives up after some seconds: False."""
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
    """In a forked child only this thread executes, and it is the main one."""
    global executing, main_thread
    executing = executing_here
    main_thread = PyThread_get_thread_ident()


atexit.register(_wait_for_daemon_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
