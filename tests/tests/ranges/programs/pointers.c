// The allocator behind pointers, which are called and jumped to. Each block's elements are stored once and loaded once.
//
// variants: gcc-O2 gcc-O2-static clang-O0-static
// cflags: -g
// stdout: 1520250
#include <stdio.h>
#include <stdlib.h>

typedef void *allocate_fn(size_t);
typedef void *move_fn(void *, size_t);
typedef void free_fn(void *);

static allocate_fn *volatile get = malloc;
static move_fn *volatile move = realloc;
static free_fn *volatile put = free;

static long use(volatile long *block, long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        block[i] = i;
    for (long i = 0; i < n; i++)
        sum += block[i];
    return sum;
}

// Two blocks, of 1,000 and of 1,500 elements; the first is moved.
__attribute__((noinline)) long work(void) {
    long *block = get(1000 * sizeof(long));
    long sum = use(block, 1000);
    block = move(block, 1500 * sizeof(long));
    if (!block)
        return 0;
    for (long i = 1000; i < 1500; i++)
        ((volatile long *)block)[i] = i;
    for (long i = 1000; i < 1500; i++)
        sum += ((volatile long *)block)[i];
    put(block);
    return sum;
}

// Ends in a jump.
__attribute__((noinline)) void *jumps(size_t size) { return get(size); }

// A block that another procedure makes, in memory which had been used before.
__attribute__((noinline)) long later(void) {
    long sum = 0;
    for (int i = 0; i < 10; i++) {
        long *block = jumps(100 * sizeof(long));
        sum += use(block, 100);
        put(block);
    }
    return sum;
}

// The same memory again, by a call with a name: nobody's.
__attribute__((noinline)) long named(void) {
    long sum = 0;
    for (int i = 0; i < 10; i++) {
        long *block = malloc(100 * sizeof(long));
        sum += use(block, 100);
        free(block);
    }
    return sum;
}

int main(void) {
    long sum = work();
    sum += later();
    sum += named() * 7;
    printf("%ld\n", sum);
    return 0;
}
