// Prints what the program finds of its own return addresses, as distances from main.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv);

__attribute__((noinline)) static void *caller(void) { return __builtin_return_address(0); }

__attribute__((noinline)) static void stack(void) {
    void *found[16];
    int count = backtrace(found, 16);
    // The last ones are libc's.
    for (int i = 0; i < count - 2; i++) {
        Dl_info info = {0};
        dladdr(found[i], &info);
        printf(" %td", (char *)found[i] - (char *)info.dli_fbase);
    }
    puts("");
}

__attribute__((noinline)) static int down(int n, int (*next)(int)) {
    if (n == 0) {
        stack();
        return 1;
    }
    return down(n - 1, next) + next(n);
}

__attribute__((noinline)) static int leaf(int n) { return n * 3; }

static int order(const void *a, const void *b) {
    static int told;
    if (!told++) stack();
    return *(const int *)a - *(const int *)b;
}

// One call stands directly behind another.
__attribute__((noinline)) static void first(void) { printf("%td\n", (char *)caller() - (char *)main); }
__attribute__((noinline)) static void twice(void (*call)(void)) {
    call();
    call();
}

int main(int argc, char **argv) {
    int numbers[] = {3, 1, 2};
    printf("%td\n", (char *)caller() - (char *)main);
    twice(first);
    first();
    first();
    printf("%d\n", down(5, leaf));
    qsort(numbers, 3, sizeof *numbers, order);
    return numbers[0] - 1;
}
