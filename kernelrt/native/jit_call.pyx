# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""The way of a call of a jitted function: to the replay that takes its arguments."""

from cpython.object cimport PyObject

from kernelrt.native.array_handle cimport all_empty, check_registers
from kernelrt.native.thread_modes cimport debugging, debugs
from kernelrt.native.replay cimport Replay, mismatch

cdef extern from *:
    """
    typedef PyObject *(*Call)(PyObject *, PyObject *, PyObject *);
    #define KRT_SET_CALL(type, call) ((PyTypeObject *)(type))->tp_call = (call)
    """
    ctypedef object (*Call)(object self, object args, PyObject *kwargs)
    void set_call "KRT_SET_CALL"(type type, Call call)


cdef class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`."""

    cdef Replay latest
    cdef list replays
    cdef tuple registers
    cdef tuple names

    def __cinit__(self, *args, **kwargs):
        self.replays = []
        self.registers = ()
        self.names = ()

    def __call__(self, *args, **kwargs):
        return self.call(args, kwargs)

    cdef object call(self, tuple args, dict kwargs):
        """A call; `kwargs` is None where there are none."""
        # Held here: another thread may clear the replays while this one runs.
        cdef Replay latest = self.latest
        cdef Replay replay
        cdef list replays
        cdef tuple given = args
        if latest is not None and all_empty(self.registers) and not (debugging and debugs()):
            if kwargs:
                given = self.by_position(args, kwargs)
            if given is not None:
                result = latest.attempt(given)
                if result is not mismatch:
                    return result
                replays = self.replays
                for replay in replays:
                    if replay is not latest:
                        result = replay.attempt(given)
                        if result is not mismatch:
                            if replays is self.replays:  # nobody has cleared them meanwhile
                                self.latest = replay
                            return result
        return self._slow(args, {} if kwargs is None else kwargs)

    cdef tuple by_position(self, tuple args, dict kwargs):
        """All arguments in the order of the parameters; None where that cannot be done."""
        cdef Py_ssize_t i
        cdef Py_ssize_t first = len(args)
        cdef Py_ssize_t count = first + len(kwargs)
        cdef list given
        if count > len(self.names):
            return None
        given = list(args)
        for i in range(first, count):
            name = self.names[i]
            if name not in kwargs:
                return None
            given.append(kwargs[name])
        return tuple(given)

    def _name_parameters(self, names):
        self.names = tuple(names)

    def _slow(self, args, kwargs):
        raise NotImplementedError("a subclass traces here")

    def _require_empty(self, registers):
        self.registers = check_registers(registers)

    def _add_replay(self, Replay replay not None):
        # A new list, so that a call which is going through the old one is not disturbed.
        self.replays = [*self.replays, replay]
        self.latest = replay

    def _clear_replays(self):
        self.replays = []
        self.latest = None

    @property
    def _replays(self):
        return tuple(self.replays)


cdef object call_jit(object self, object args, PyObject *kwargs):
    return (<JitCore> self).call(<tuple> args, None if kwargs == NULL else <dict> kwargs)


# Cython's own would make a dict of keyword arguments for each call, and mostly there are none.
set_call(JitCore, call_jit)
