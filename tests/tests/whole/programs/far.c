// A library that another library calls: a function with two versions, one that is chosen when the process
// starts, one that another library defines too, and data with known accesses.
#include <stdlib.h>

// Elements are stored and loaded once each by far_fills. The loader would clear a table of zeros.
long far_table[64] = {1};

__attribute__((noinline)) int far_plain(int n) { return n * 3; }

#ifdef PLAIN // for musl, which has neither
int far_chosen(int n) { return n + 1; }
int far_versioned(int n) { return n + 20; }
#else
static int one(int n) { return n + 1; }
static int two(int n) { return n + 2; }
static int (*choose(void))(int) { return getenv("CHOOSE") ? two : one; }
int far_chosen(int n) __attribute__((ifunc("choose")));

int far_old(int n) { return n + 10; }
int far_new(int n) { return n + 20; }
__asm__(".symver far_old, far_versioned@FAR_1");
__asm__(".symver far_new, far_versioned@@FAR_2");
#endif

__attribute__((noinline)) int twice(int n) { return n + n; }

// Stores COUNT (at most 64) longs into the table and into a new block, and loads those of the table.
__attribute__((noinline)) long *far_fills(long count)
{
    volatile long *table = far_table;
    volatile long *block = malloc(count * sizeof *block);
    for (long i = 0; i < count; i++)
        table[i] = i * 5;
    for (long i = 0; i < count; i++)
        block[i] = table[i];
    return (long *)block;
}

__attribute__((noinline)) void far_frees(long *block) { free(block); }
