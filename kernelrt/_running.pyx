# cython: language_level=3, binding=False
"""Who executes without the GIL: what the end of the process waits for, and a forked child forgets.

At exit compiled code is freed, so nobody may be executing it without the GIL by then. The
interpreter waits until they are out; executions that begin later keep the GIL, and daemon threads
that try to get it are stopped by the interpreter. All of this is protected by the GIL.
"""

from cpython.pythread cimport PyThread_get_thread_ident
from posix.unistd cimport usleep

import atexit
import os

cdef extern from *:
    """
    /* Executions without the GIL: of all threads, and of this one. */
    static int executing;
    static _Thread_local int executing_here;
    """
    int executing
    int executing_here

cdef bint exiting = False
cdef unsigned long last_thread = 0  # the one that ends the process, once `exiting`


cdef void begin() noexcept:
    global executing, executing_here
    executing += 1
    executing_here += 1


cdef void end() noexcept:
    global executing, executing_here
    executing_here -= 1
    executing -= 1


cdef bint must_end() noexcept:
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
