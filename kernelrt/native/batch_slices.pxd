# cython: language_level=3
"""Rows that the steps of a course take from memory that stays where it is."""

cimport numpy as cnp
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from kernelrt.native.array_handle cimport DIMS


cdef extern from *:
    """
    /* The first lines of a row, which the processor would not guess. */
    static inline void fetch_row(const char *row, Py_ssize_t nbytes)
    {
        Py_ssize_t most = nbytes < 512 ? nbytes : 512;
        for (Py_ssize_t i = 0; i < most; i += 64)
            __builtin_prefetch(row + i);
    }
    """
    void fetch_row(const char *row, Py_ssize_t nbytes) noexcept nogil


cdef struct Source:
    const char *data  # of the first row; NULL: the argument is as it was passed
    Py_ssize_t stride  # bytes from one row to the next
    Py_ssize_t nbytes  # of a row
    Py_ssize_t itemsize
    bint whole  # the elements of a row follow each other
    bint aligned
    int ndim  # of a row
    cnp.npy_intp dims[DIMS]
    cnp.npy_intp strides[DIMS]


# What one step takes and where its results go.
cdef struct Feed:
    const Source *sources  # one for each input of the replay
    const int64_t *order  # the numbers of the rows; NULL: as they lie
    Py_ssize_t first  # where in the order the step's rows begin
    Py_ssize_t rows
    Py_ssize_t step  # its place in the results
    Py_ssize_t ahead  # steps to be run in one turn, if nothing comes in between


cdef inline void step_on(Feed *feed) noexcept nogil:
    """Have the next step follow."""
    feed.step += 1
    feed.first += feed.rows


# What copying takes, a little more than it does: of eight bytes of a row, and of an element of one
# that does not lie in one piece.
cdef enum:
    EIGHT_BYTES_NS = 1
    ELEMENT_NS = 4


cdef inline bint follows(const Source *source, const Feed *feed) noexcept nogil:
    """Whether the rows of a step are one run of bytes."""
    return (feed.order == NULL and source.whole
            and (source.stride == source.nbytes or feed.rows == 1))


cdef inline int64_t gather_ns(const Source *source, const Feed *feed) noexcept nogil:
    """What copying the rows of a step takes at most."""
    if source.whole:
        return feed.rows * (EIGHT_BYTES_NS * source.nbytes // 8 + ELEMENT_NS)
    return feed.rows * ELEMENT_NS * (source.nbytes // source.itemsize)


cdef inline const char *first_row(const Source *source, const Feed *feed) noexcept nogil:
    """Where the rows of a step begin that are one run of bytes."""
    return source.data + feed.first * source.stride


cdef inline char *put_row(
    char *target, const char *data, const Source *source, int axis
) noexcept nogil:
    """Copy what lies behind `axis` of a row, of any strides; where the next goes."""
    cdef cnp.npy_intp i
    if axis == source.ndim:
        memcpy(target, data, <size_t> source.itemsize)
        return target + source.itemsize
    for i in range(source.dims[axis]):
        target = put_row(target, data + i * source.strides[axis], source, axis + 1)
    return target


cdef inline const char *row_at(
    const Source *source, const Feed *feed, Py_ssize_t i
) noexcept nogil:
    """Where the i-th row of a step lies."""
    cdef int64_t row = feed.first + i
    return source.data + (row if feed.order == NULL else feed.order[row]) * source.stride


cdef inline void gather(char *target, const Source *source, const Feed *feed) noexcept nogil:
    """Copy the rows of a step one after the other."""
    cdef Py_ssize_t i, nbytes = source.nbytes
    if follows(source, feed):
        memcpy(target, first_row(source, feed), <size_t> (feed.rows * nbytes))
    elif not source.whole:
        for i in range(feed.rows):
            target = put_row(target, row_at(source, feed, i), source, 0)
    elif nbytes == 8:  # a size that is known is no call
        for i in range(feed.rows):
            memcpy(target + 8 * i, row_at(source, feed, i), 8)
    elif nbytes == 4:
        for i in range(feed.rows):
            memcpy(target + 4 * i, row_at(source, feed, i), 4)
    else:
        for i in range(feed.rows):
            if i + 2 < feed.rows:
                fetch_row(row_at(source, feed, i + 2), nbytes)
            memcpy(target + nbytes * i, row_at(source, feed, i), <size_t> nbytes)
