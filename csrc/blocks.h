/* blocks.h - aligned memory with a cache of freed blocks in front of the system's allocator.
 *
 * Nothing here takes a lock: whoever owns a cache serialises the calls. */
#ifndef KRT_BLOCKS_H
#define KRT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment of a block: a cache line, and the widest vector register. */
#define KRT_BLOCK_ALIGNMENT 64

typedef struct krt_blocks krt_blocks;

typedef struct krt_block_stats {
    size_t cached; /* bytes of free blocks that are kept */
    size_t limit;  /* the most that `cached` may be */
    size_t hits;   /* requests that a kept block served */
    size_t misses; /* requests that the system served */
} krt_block_stats;

/* A cache that keeps up to `limit` bytes. NULL: no memory. */
krt_blocks *krt_blocks_create(size_t limit);

/* Free the cache and what it keeps; NULL is allowed. Blocks that are out must be given to
 * krt_memory_free from then on, as krt_block_size of what they were taken for. */
void krt_blocks_destroy(krt_blocks *blocks);

/* The bytes that a block of at least `nbytes` has: a multiple of the alignment and of a quarter of
 * a power of two, so that requests of about one size share blocks. 0: too large for any. */
size_t krt_block_size(size_t nbytes);

/* A block of krt_block_size(nbytes) bytes with arbitrary content. NULL: the system has none left
 * even after the cache was emptied. */
void *krt_blocks_take(krt_blocks *blocks, size_t nbytes);

/* Give back a block that was taken for `nbytes`. The one freed longest ago goes to the system
 * when the limit is passed. */
void krt_blocks_give(krt_blocks *blocks, void *block, size_t nbytes);

/* Give blocks to the system until at most `keep` bytes are kept; the bytes given back. */
size_t krt_blocks_trim(krt_blocks *blocks, size_t keep);

void krt_blocks_set_limit(krt_blocks *blocks, size_t limit);
krt_block_stats krt_blocks_stats(const krt_blocks *blocks);

#endif
