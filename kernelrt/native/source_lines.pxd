# cython: language_level=3
"""The source line of an operation, for other extensions."""

# Number of traces and schedules so far. Origins noted before one of them have a smaller epoch.
cdef long epoch

# Do the same as `here`, with `method` as the called method unless a frame names another.
cdef object here_of(object scope, object method)
