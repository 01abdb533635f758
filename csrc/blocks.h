/* blocks.h - aligned memory with a cache of freed blocks in front of the system's allocator.
 *
 * Nothing here takes a lock: the owner of a cache must serialise the calls. */
#ifndef KRT_BLOCKS_H
#define KRT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment of a block: the size of a cache line and of the widest vector register. */
#define KRT_BLOCK_ALIGNMENT 64

typedef struct krt_blocks krt_blocks;

typedef struct krt_block_stats {
    size_t cached; /* bytes of cached free blocks */
    size_t limit;  /* maximum of `cached` */
    size_t hits;   /* requests served by a cached block */
    size_t misses; /* requests served by the system */
} krt_block_stats;

/* Create a cache of up to `limit` bytes. NULL: no memory. */
krt_blocks *krt_blocks_create(size_t limit);

/* Free the cache and its blocks; NULL is allowed. Blocks in use must then be freed with
 * krt_memory_free and the krt_block_size of the requested bytes. */
void krt_blocks_destroy(krt_blocks *blocks);

/* The size of a block for `nbytes` bytes: a multiple of the alignment and of a quarter of a power
 * of two, so that requests of similar sizes share blocks. 0: too large. */
size_t krt_block_size(size_t nbytes);

/* Take a block of krt_block_size(nbytes) bytes with arbitrary content. NULL: the system has no
 * memory, even after the cache was emptied. */
void *krt_blocks_take(krt_blocks *blocks, size_t nbytes);

/* Give back a block that was taken for `nbytes`. If the limit is exceeded, the blocks freed longest
 * ago are returned to the system. */
void krt_blocks_give(krt_blocks *blocks, void *block, size_t nbytes);

/* Return blocks to the system until at most `keep` bytes are cached; return the bytes freed. */
size_t krt_blocks_trim(krt_blocks *blocks, size_t keep);

void krt_blocks_set_limit(krt_blocks *blocks, size_t limit);
krt_block_stats krt_blocks_stats(const krt_blocks *blocks);

#endif
