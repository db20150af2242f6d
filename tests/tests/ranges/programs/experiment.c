// Data ranges: three static arrays of 16,384 ints, three allocated ones, and the pointers to
// these. Each element is stored once and loaded once. Without optimisation the pointer of an
// allocated array is loaded for each of these accesses.
//
// variants: gcc-O0 gcc-O2 clang-O0 clang-O2 gcc-O0-static gcc-O2-static clang-O0-static
// cflags: -g
// stdout: 402628608
// stdout: 402628608
// stdout: 36 28 215
#include <stdio.h>
#include <stdlib.h>

#define SIZE 16384

struct pair {
    int low;
    struct {
        char tag[3];
        short high[4];
    } inner;
};

int first[SIZE], second[SIZE], third[SIZE];
int *one, *two, *three;
static struct pair pairs[8];

static long fill_and_sum_static(void) {
    long sum = 0;
    for (int i = 0; i < SIZE; i++)
        first[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += first[i];
    for (int i = 0; i < SIZE; i++)
        second[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += second[i];
    for (int i = 0; i < SIZE; i++)
        third[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += third[i];
    return sum;
}

static long fill_and_sum_allocated(void) {
    long sum = 0;
    for (int i = 0; i < SIZE; i++)
        one[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += one[i];
    for (int i = 0; i < SIZE; i++)
        two[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += two[i];
    for (int i = 0; i < SIZE; i++)
        three[i] = i;
    for (int i = 0; i < SIZE; i++)
        sum += three[i];
    return sum;
}

static long members(void) {
    volatile struct pair *p = pairs;
    long sum = 0;
    for (int i = 0; i < 8; i++) {
        p[i].low = i;
        p[i].inner.high[2] = (short)(i + 1);
        sum += p[i].inner.high[2];
    }
    return sum;
}

// Each call stores and loads its own array, before and after the inner call.
__attribute__((noinline)) static long deeper(int depth) {
    volatile long local[4];
    local[0] = depth;
    long below = depth == 0 ? 0 : deeper(depth - 1);
    local[3] = local[0] + below;
    return local[3];
}

__attribute__((noinline)) static int *fresh(int n) {
    return malloc((size_t)n * sizeof(int));
}

__attribute__((noinline)) static long blocks(void) {
    long sum = 0;
    for (int round = 0; round < 5; round++) {
        volatile int *small = fresh(3);
        for (int i = 0; i < 3; i++)
            small[i] = i + round;
        volatile int *large = realloc((void *)small, 100 * sizeof(int));
        for (int i = 3; i < 100; i++)
            large[i] = 1;
        sum += large[0] + large[1] + large[2] + large[99];
        free((void *)large);
        // Where the block was there may be another one now, of another size.
        volatile char *other = malloc(13);
        other[12] = 1;
        sum += other[12] * 33;
        free((void *)other);
    }
    return sum;
}

int main(void) {
    one = malloc(SIZE * sizeof(int));
    two = malloc(SIZE * sizeof(int));
    three = malloc(SIZE * sizeof(int));
    if (!one || !two || !three)
        return 1;
    printf("%ld\n", fill_and_sum_static());
    printf("%ld\n", fill_and_sum_allocated());
    long a = members(), b = deeper(7), c = blocks();
    printf("%ld %ld %ld\n", a, b, c);
    free(one);
    free(two);
    free(three);
    return 0;
}
