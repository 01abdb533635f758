# cython: language_level=3
"""What each thread is doing, as fields that C code reads."""


# Whether operations of this thread are recorded for gradients.
cdef bint records_gradients() noexcept
