# cython: language_level=3
"""Addresses of the C routines of csrc/."""

cdef extern from "routines.h":
    ctypedef void krt_routine(void *const *bufs, const long *vals)
    ctypedef struct krt_named:
        const char *name
        krt_routine *at
    const krt_named *krt_routine_table(int bits, int number)

cdef extern from "foreign.h":
    krt_routine krt_each
    enum: KRT_EACH_MOST


cdef dict table(int bits):
    """Return the addresses of the routines for vectors of `bits` bits, by name."""
    cdef int number = 0
    cdef const krt_named *entry = krt_routine_table(bits, number)
    found = {}
    while entry != NULL:
        while entry.name != NULL:
            found[entry.name.decode()] = <size_t> entry.at
            entry += 1
        number += 1
        entry = krt_routine_table(bits, number)
    return found


EACH = <size_t> &krt_each
EACH_MOST = <int> KRT_EACH_MOST
ADDRESSES = {bits: found for bits in (128, 256, 512) if (found := table(bits))}
BY_NAME = {f"{name}@{bits}": at for bits, of in ADDRESSES.items() for name, at in of.items()}
