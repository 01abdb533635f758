/* test_blocks.c - the cache of freed blocks: sizes, order, limits, and that no byte is shared. */
#include "blocks.h"
#include "check.h"

static void test_sizes(void)
{
    for (size_t nbytes = 1; nbytes < 1 << 20; nbytes += nbytes / 7 + 1) {
        size_t size = krt_block_size(nbytes);
        CHECK(size >= nbytes && size % KRT_BLOCK_ALIGNMENT == 0);
        CHECK(size <= nbytes + nbytes / 4 + KRT_BLOCK_ALIGNMENT);
        CHECK(krt_block_size(size) == size);
    }
    CHECK(krt_block_size(0) == KRT_BLOCK_ALIGNMENT);
    CHECK(krt_block_size(SIZE_MAX) == 0 && krt_block_size((size_t)PTRDIFF_MAX) == 0);
}

static void test_random_use(void)
{
    enum { LIVE = 64 };
    struct {
        unsigned char *bytes;
        size_t size;
        unsigned char mark;
    } live[LIVE] = {{0}};
    krt_blocks *blocks = krt_blocks_create(1 << 16);
    CHECK(blocks);
    for (long step = 0, n = rounds("KRT_ROUNDS", 200) * 1000; step < n; ++step) {
        uint32_t i = random_below(LIVE);
        if (live[i].bytes) {
            for (size_t b = 0; b < live[i].size; b += 61)
                CHECK(live[i].bytes[b] == live[i].mark);
            krt_blocks_give(blocks, live[i].bytes, live[i].size);
            live[i].bytes = NULL;
        } else {
            live[i].size = random_below(random_below(4) ? 1000 : 100000);
            live[i].mark = (unsigned char)step;
            live[i].bytes = krt_blocks_take(blocks, live[i].size);
            CHECK(live[i].bytes && (uintptr_t)live[i].bytes % KRT_BLOCK_ALIGNMENT == 0);
            memset(live[i].bytes, live[i].mark, live[i].size);
        }
        if (!random_below(100))
            krt_blocks_trim(blocks, random_below(1 << 16));
        if (!random_below(1000))
            krt_blocks_set_limit(blocks, random_below(1 << 17));
        krt_block_stats stats = krt_blocks_stats(blocks);
        CHECK(stats.cached <= stats.limit);
    }
    for (uint32_t i = 0; i < LIVE; ++i)
        if (live[i].bytes)
            krt_blocks_give(blocks, live[i].bytes, live[i].size);
    krt_blocks_destroy(blocks);
    krt_blocks_destroy(NULL);
}

static void test_what_cannot_be_had(void)
{
    krt_blocks *blocks = krt_blocks_create(1 << 20);
    krt_blocks_give(blocks, krt_blocks_take(blocks, 5000), 5000);
    CHECK(krt_blocks_stats(blocks).cached);
    CHECK(!krt_blocks_take(blocks, (size_t)PTRDIFF_MAX));
    CHECK(!krt_blocks_stats(blocks).cached);
    krt_blocks_destroy(blocks);
    krt_test_fail_alloc(1);
    CHECK(!krt_blocks_create(1));
    krt_test_fail_alloc(0);
}

int main(void)
{
    test_sizes();
    test_random_use();
    test_what_cannot_be_had();
    return 0;
}
