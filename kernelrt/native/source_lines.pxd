# cython: language_level=3
"""Where an operation was written, for other extensions."""

# How many traces and schedules there were: what was written before one is older than it.
cdef long epoch

# What `here` gives where the code of the method called is `method`, unless a frame tells another.
cdef object here_of(object scope, object method)
