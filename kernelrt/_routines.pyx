# cython: language_level=3
"""Where the routines of csrc/ are."""

cdef extern from "routines.h":
    ctypedef void krt_routine(void *const *bufs, const long *vals)

cdef extern from "sort.h":
    krt_routine krt_argsort_u32, krt_argsort_u64

cdef extern from "linalg.h":
    krt_routine krt_cholesky_f32, krt_cholesky_f64, krt_lu_f32, krt_lu_f64, krt_exchange_f32, krt_exchange_f64
    krt_routine krt_solve_f32, krt_solve_f64, krt_triangular_f32, krt_triangular_f64
    krt_routine krt_qr_f32, krt_qr_f64, krt_eigh_f32, krt_eigh_f64, krt_svd_f32, krt_svd_f64

ADDRESSES = {
    "argsort_u32": <size_t> &krt_argsort_u32,
    "argsort_u64": <size_t> &krt_argsort_u64,
    "cholesky_f32": <size_t> &krt_cholesky_f32,
    "cholesky_f64": <size_t> &krt_cholesky_f64,
    "exchange_f32": <size_t> &krt_exchange_f32,
    "exchange_f64": <size_t> &krt_exchange_f64,
    "lu_f32": <size_t> &krt_lu_f32,
    "lu_f64": <size_t> &krt_lu_f64,
    "solve_f32": <size_t> &krt_solve_f32,
    "solve_f64": <size_t> &krt_solve_f64,
    "triangular_f32": <size_t> &krt_triangular_f32,
    "triangular_f64": <size_t> &krt_triangular_f64,
    "qr_f32": <size_t> &krt_qr_f32,
    "qr_f64": <size_t> &krt_qr_f64,
    "eigh_f32": <size_t> &krt_eigh_f32,
    "eigh_f64": <size_t> &krt_eigh_f64,
    "svd_f32": <size_t> &krt_svd_f32,
    "svd_f64": <size_t> &krt_svd_f64,
}
