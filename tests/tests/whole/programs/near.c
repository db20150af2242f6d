// A library between a program and another library.
#include <stdlib.h>

int far_plain(int n);
int far_chosen(int n);
int far_versioned(int n);
int twice(int n);

__attribute__((noinline)) int near_calls(int times)
{
    int sum = 0;
    for (int i = 0; i < times; i++)
        sum += far_plain(i);
    return sum + far_chosen(1) + far_versioned(1);
}

// Ends in a jump to the other library.
__attribute__((noinline)) int near_tail(int n) { return far_plain(n + 1); }

__attribute__((noinline)) int near_twice(int n) { return twice(n) + 1; }

__attribute__((noinline)) void near_sorts(int *values, size_t count, int (*compare)(const void *, const void *))
{
    qsort(values, count, sizeof *values, compare);
    values[0]++;
}

// Both libraries define this name.
__attribute__((noinline)) int twice(int n) { return 2 * n; }
