# cython: language_level=3, boundscheck=False, wraparound=False
"""Defects, one a function, that the sanitizers of tests/sanitize.py have to report."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc

import threading

cdef extern from "planted.h" nogil:
    int planted_overflow(int n)
    int planted_use_after_free(int n)
    int planted_undefined(int n)
    void planted_count(int n)

cdef unsigned int shared = 0


cdef void count_here(int n) noexcept nogil:
    global shared
    cdef int i
    for i in range(n):
        shared = shared * 1103515245 + 12345  # which no compiler makes one step of


def none(int n):
    return n


def c_overflow(int n):
    return planted_overflow(n)


def c_use_after_free(int n):
    return planted_use_after_free(n)


def c_undefined(int n):
    return planted_undefined(n)


def overflow(int n):
    cdef char *memory = <char *> PyMem_Malloc(<size_t> n)
    memory[n] = 1
    PyMem_Free(memory)


def use_after_free(int n):
    cdef char *memory = <char *> PyMem_Malloc(<size_t> n)
    memory[0] = 1
    PyMem_Free(memory)
    return memory[0]


def undefined(int n):
    cdef int most = 2147483647
    return most + n


both = threading.Barrier(2)


def in_threads(function):
    threads = [threading.Thread(target=function) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def without_gil():
    # The lock of the interpreter orders what does not overlap.
    both.wait()
    with nogil:
        count_here(20000000)


def c_without_gil():
    both.wait()
    with nogil:
        planted_count(1000000)


def race(int n):
    in_threads(without_gil)


def c_race(int n):
    in_threads(c_without_gil)
