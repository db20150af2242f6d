// Blocks by the line that asks for them, variables of one file, recursion with and without its inner calls,
// frames left by longjmp and by exceptions, data by code.
// variants: gcc-O0 clang-O0
// cflags: -g
// stdout: 55 5 3 130
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdexcept>

static volatile int shared;

// Ten calls, each with an array of its own.
__attribute__((noinline)) int down(int n)
{
    volatile int local[2];
    local[0] = n;
    int below = n > 1 ? down(n - 1) : 0;
    return local[0] + below;
}

static jmp_buf back;

// Left without a return five times.
__attribute__((noinline)) void leaves(int n)
{
    volatile int left[4];
    left[n & 3] = n;
    longjmp(back, 1);
}

__attribute__((noinline)) void throws(int n)
{
    volatile int thrown[4];
    thrown[n & 3] = n;
    if (thrown[n & 3] == n) throw std::runtime_error("on purpose");
}

__attribute__((noinline)) void touches(void)
{
    for (int i = 0; i < 30; i++) shared = shared + 1;
}

int main(void)
{
    int jumps = 0, caught = 0;
    int sum = down(10);
    for (volatile int i = 0; i < 5; i = i + 1) {
        if (setjmp(back) == 0) leaves(i);
        else jumps++;
    }
    for (int i = 0; i < 3; i++) {
        try { throws(i); } catch (const std::exception &) { caught++; }
    }
    volatile char *small = (char *)malloc(24); volatile char *large = (char *)malloc(100); // both here
    small[0] = 1;
    large[99] = 2;
    free((void *)small);
    free((void *)large);
    volatile long *late = (long *)malloc(64); // here
    late[7] = 4;
    free((void *)late);
    touches();
    shared = shared + 100;
    printf("%d %d %d %d\n", sum, jumps, caught, shared);
    return 0;
}
