/* krt_types.h - types of the C core that other languages use, too. */
#ifndef KRT_TYPES_H
#define KRT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum krt_status {
    KRT_OK = 0,
    KRT_NO_MEMORY,     /* an allocation failed; nothing was changed */
    KRT_INVALID,       /* an argument is out of range; see krt_fault or the function's comment */
    KRT_BUSY,          /* the calling thread is executing this very plan */
    KRT_DEADLOCK,      /* the holder of the lock waits for a lock that the calling thread holds */
    KRT_TIMEOUT,       /* another thread held the lock for the whole timeout */
    KRT_OUT_OF_BOUNDS, /* an operation stored to its status word */
    KRT_CUSTOM_FAILED, /* a custom function reported failure */
    KRT_INTERRUPTED,   /* the host asked to stop */
    KRT_FORKED,        /* in a forked child: the worker threads of this run do not exist here */
    KRT_NO_STACK       /* this thread has too little stack, and no other thread could be started */
} krt_status;

/* A compiled kernel: addresses of buffers, and values. */
typedef void (*krt_kernel)(void *const *bufs, const int64_t *vals);

#endif
