// The program of the fleet: sorts and adds up numbers. With SLOW its procedure `mix` does twice the work, which is the
// regression that the queries have to find. With an argument it checks its result, which few runs do.
#include <stdio.h>
#include <stdlib.h>

#ifdef SLOW
enum { ROUNDS = 16 };
#else
enum { ROUNDS = 8 };
#endif

enum { COUNT = 2000 };

static unsigned numbers[COUNT];

__attribute__((noinline)) static unsigned mix(unsigned x) {
    for (int i = 0; i < ROUNDS; i++)
        x = (x ^ (x >> 7)) * 0x9e3779b1u + i;
    return x;
}

__attribute__((noinline)) static int compare(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

__attribute__((noinline)) static int check(void) {
    for (int i = 1; i < COUNT; i++)
        if (numbers[i - 1] > numbers[i])
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    unsigned sum = 0;
    (void)argv;
    for (unsigned i = 0; i < COUNT; i++)
        numbers[i] = mix(i);
    qsort(numbers, COUNT, sizeof *numbers, compare);
    for (unsigned i = 0; i < COUNT; i += 2)
        sum += numbers[i];
    printf("%u\n", sum);
    return argc > 1 ? check() : 0;
}
