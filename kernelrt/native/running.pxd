# cython: language_level=3
"""What is asked of _running by whoever executes."""


# Whether the process ends: then executions keep the GIL from now on.
cdef bint is_exiting() noexcept nogil

# This thread executes without the GIL, between the first and the second. Both are called with it.
cdef void begin() noexcept
cdef void end() noexcept

# Whether the process waits for this thread to come out of its plan.
cdef bint must_end() noexcept nogil

# Whether Python runs handlers of signals on this thread.
cdef bint handles_signals() noexcept nogil
