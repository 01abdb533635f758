# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Find the source line of an operation in the user's program by traversing a few frames."""

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
    BETWEEN = 3  # ignored: contextlib, which enters and leaves contexts written as generators

cdef str PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
cdef dict rooms = {contextlib.contextmanager.__code__.co_filename: BETWEEN}
#: Number of traces and schedules so far. Origins noted before one of them have a smaller epoch.
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
    """Return the instruction outside this package that the running call came from.

    The result is ``(code, offset of the instruction, code of the called method, code of the caller
    within this package, scope, epoch, False)``; None if there is no such instruction.
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
    """Return the current epoch, to compare origins with."""
    return epoch


def advance():
    """Begin a new epoch."""
    global epoch
    epoch += 1
