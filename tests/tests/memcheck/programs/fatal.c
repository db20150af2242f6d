// Ends by signals that the program does not handle; the argument says by which.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noipa)) static long load(long *from) { return *from + 1; }
__attribute__((noipa)) static void store(int *to) { *to = 5; }
__attribute__((noipa)) static unsigned long length(char *text) { return strlen(text) + 1; }
__attribute__((noipa)) static int go(int (*function)(void)) { return function() + 1; }
__attribute__((noipa)) static int quotient(int by) { return 17 / by; }

static const int constant = 3;

int main(int argc, char **argv) {
    const char *way = argv[1];
    // Nothing is mapped there, and no look-up of shadow memory says so.
    void *volatile unmapped = (void *)0x123456789000;
    // No address of the processor.
    void *volatile nowhere = (void *)0x4141414141414141;
    volatile int none = 0;
    if (!strcmp(way, "read"))
        printf("%ld\n", load(unmapped));
    if (!strcmp(way, "write"))
        store(unmapped);
    if (!strcmp(way, "constant"))
        store((int *)&constant);
    if (!strcmp(way, "nowhere"))
        printf("%ld\n", load(nowhere));
    if (!strcmp(way, "function"))
        printf("%lu\n", length(unmapped));
    if (!strcmp(way, "jump"))
        printf("%d\n", go(unmapped));
    if (!strcmp(way, "divide"))
        printf("%d\n", quotient(none));
    if (!strcmp(way, "abort"))
        abort();
    return 0;
}
