# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Where in the user's program an operation was written, at the price of walking a few frames."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

import contextlib
import os

cdef extern from *:
    """
    #include "Python.h"
    static PyObject *file_of(PyObject *code) { return ((PyCodeObject *)code)->co_filename; }
    static PyObject *code_of(PyFrameObject *frame) { return (PyObject *)PyFrame_GetCode(frame); }
    """
    ctypedef struct PyFrameObject:
        pass
    PyFrameObject *PyEval_GetFrame()
    PyFrameObject *PyFrame_GetBack(PyFrameObject *frame) except? NULL  # none, or no memory
    PyObject *code_of(PyFrameObject *frame)  # a new reference
    int PyFrame_GetLasti(PyFrameObject *frame)
    PyObject *file_of(PyObject *code)

cdef enum:
    USER = 0
    TENSOR = 1
    OTHER = 2
    BETWEEN = 3  # of nobody: what enters and leaves contexts that are written as generators

cdef str PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
cdef dict rooms = {contextlib.contextmanager.__code__.co_filename: BETWEEN}
#: How many traces and schedules there were: what was written before one is older than it.
epoch = 0


cdef int room_of(str file):
    known = rooms.get(file)
    if known is None:
        known = USER
        if file.startswith(PACKAGE):
            room = file[len(PACKAGE):].split(os.sep)[0]
            known = TENSOR if room == "tensor" else USER if room == "cli" else OTHER
        rooms[file] = known
    return known


def here(object scope):
    """The place outside of this package that the running call came from.

    Gives ``(code, offset of the instruction, code of the method called, code of the caller within
    this package, scope, epoch, False)``; None where there is no such place.
    """
    return here_of(scope, None)


cdef object here_of(object scope, object method):
    cdef PyFrameObject *frame = PyEval_GetFrame()
    cdef PyFrameObject *back
    cdef object code, caller = None
    cdef PyObject *raw
    cdef int room
    if frame == NULL:
        return None
    Py_INCREF(<object> <PyObject *> frame)
    while frame != NULL:
        raw = code_of(frame)
        code = <object> raw
        Py_DECREF(code)
        room = room_of(<str> file_of(raw))
        if room == USER:
            found = (code, PyFrame_GetLasti(frame), method, caller, scope, epoch, False)
            Py_DECREF(<object> <PyObject *> frame)
            return found
        if caller is None:
            if room == TENSOR:
                method = code
            elif room == OTHER:
                caller = code
        try:
            back = PyFrame_GetBack(frame)
        finally:
            Py_DECREF(<object> <PyObject *> frame)
        frame = back
    return None


def now():
    """The epoch, to compare origins with."""
    return epoch


def advance():
    """Begin a new epoch."""
    global epoch
    epoch += 1
