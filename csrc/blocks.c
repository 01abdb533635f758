/* blocks.c - see blocks.h. A free block contains its list node, so that caching it cannot fail. */
#include "blocks.h"

#include "krt.h"
#include "platform.h"

/* Four size classes per power of two. */
enum { QUARTERS = 4, CLASSES = 64 * QUARTERS };

typedef struct node {
    struct node *older, *newer; /* list of all blocks by time of freeing */
    struct node *below, *above; /* stack of one class, the last freed on top */
    size_t size;
} node;
_Static_assert(sizeof(node) <= KRT_BLOCK_ALIGNMENT, "the smallest block holds a node");

struct krt_blocks {
    krt_block_stats stats;
    node *oldest, *newest;
    node *top[CLASSES];
};

static unsigned bits(size_t value)
{
    return value ? 64u - (unsigned)__builtin_clzll(value) : 0;
}

/* The distance between size classes near `nbytes`. */
static size_t step_for(size_t nbytes)
{
    unsigned width = bits(nbytes - 1);
    size_t step = width > 3 ? (size_t)1 << (width - 3) : 1;
    return step > KRT_BLOCK_ALIGNMENT ? step : KRT_BLOCK_ALIGNMENT;
}

size_t krt_block_size(size_t nbytes)
{
    if (!nbytes)
        return KRT_BLOCK_ALIGNMENT;
    if (nbytes > PTRDIFF_MAX / 2)
        return 0;
    size_t step = step_for(nbytes);
    return (nbytes + step - 1) / step * step;
}

/* Small sizes, whose step is the alignment, have separate classes, too. */
static size_t class_of(size_t size)
{
    unsigned width = bits(size);
    return width * QUARTERS + (width > 2 ? (size >> (width - 3)) & (QUARTERS - 1) : 0);
}

krt_blocks *krt_blocks_create(size_t limit)
{
    krt_blocks *blocks = krt_alloc(sizeof *blocks);
    if (blocks)
        blocks->stats.limit = limit;
    return blocks;
}

void krt_blocks_destroy(krt_blocks *blocks)
{
    if (!blocks)
        return;
    krt_blocks_trim(blocks, 0);
    krt_free(blocks);
}

static void unlink_node(krt_blocks *blocks, node *block)
{
    *(block->older ? &block->older->newer : &blocks->oldest) = block->newer;
    *(block->newer ? &block->newer->older : &blocks->newest) = block->older;
    *(block->above ? &block->above->below : &blocks->top[class_of(block->size)]) = block->below;
    if (block->below)
        block->below->above = block->above;
    blocks->stats.cached -= block->size;
}

void *krt_blocks_take(krt_blocks *blocks, size_t nbytes)
{
    size_t size = krt_block_size(nbytes);
    node *block = size ? blocks->top[class_of(size)] : NULL;
    if (block) {
        unlink_node(blocks, block);
        ++blocks->stats.hits;
        return block;
    }
    ++blocks->stats.misses;
    void *fresh = size ? krt_memory_alloc(size, KRT_BLOCK_ALIGNMENT, false) : NULL;
    if (!fresh && krt_blocks_trim(blocks, 0) && size)
        fresh = krt_memory_alloc(size, KRT_BLOCK_ALIGNMENT, false);
    return fresh;
}

void krt_blocks_give(krt_blocks *blocks, void *memory, size_t nbytes)
{
    size_t size = krt_block_size(nbytes);
    if (size > blocks->stats.limit) {
        krt_memory_free(memory, size);
        return;
    }
    krt_blocks_trim(blocks, blocks->stats.limit - size);
    node *block = memory;
    node **top = &blocks->top[class_of(size)];
    *block = (node){.older = blocks->newest, .below = *top, .size = size};
    if (block->below)
        block->below->above = block;
    *top = block;
    *(blocks->newest ? &blocks->newest->newer : &blocks->oldest) = block;
    blocks->newest = block;
    blocks->stats.cached += size;
}

size_t krt_blocks_trim(krt_blocks *blocks, size_t keep)
{
    size_t before = blocks->stats.cached;
    while (blocks->stats.cached > keep) {
        node *block = blocks->oldest;
        unlink_node(blocks, block);
        krt_memory_free(block, block->size);
    }
    return before - blocks->stats.cached;
}

void krt_blocks_set_limit(krt_blocks *blocks, size_t limit)
{
    blocks->stats.limit = limit;
    krt_blocks_trim(blocks, limit);
}

krt_block_stats krt_blocks_stats(const krt_blocks *blocks) { return blocks->stats; }
