// Leaks that the program asks for while it runs. Each line of output is what a search has found: bytes and blocks.
#include <stdio.h>
#include <stdlib.h>

#include "request.h"

enum { CHECK = 0x4d430006, BYTES = 0x4d430007, BLOCKS = 0x4d43000c };

char *volatile kept, *volatile inside;

// A frame of its own, so that no pointer stays in the caller's.
__attribute__((noinline)) static void lose(int size, int count)
{
    volatile char room[256];
    room[0] = 0;
    for (int i = 0; i < count; i++) {
        char *volatile block = malloc(size);
        block[0] = 1;
        block = 0;
    }
}

__attribute__((noinline)) static void look(int summary, int delta)
{
    unsigned long bytes[4] = {0}, blocks[4] = {0};
    (void)ASK(CHECK, summary, delta);
    (void)ASK(BYTES, (unsigned long)&bytes[0], (unsigned long)&bytes[1], (unsigned long)&bytes[2], (unsigned long)&bytes[3]);
    (void)ASK(BLOCKS, (unsigned long)&blocks[0], (unsigned long)&blocks[1], (unsigned long)&blocks[2], (unsigned long)&blocks[3]);
    printf("lost %lu/%lu possibly %lu/%lu reachable %lu/%lu\n", bytes[0], blocks[0], bytes[1], blocks[1], bytes[2], blocks[2]);
}

__attribute__((noinline)) static void take(void)
{
    // What calls of malloc leave is farther down than the variables of `clean` that are no array.
    volatile char room[256];
    room[0] = 0;
    kept = malloc(1000);
    inside = (char *)malloc(300) + 100;
}

// What a call has left on the stack leads to nothing.
__attribute__((noinline)) static void clean(void)
{
    volatile char bytes[4096];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = 0;
}

int main(void)
{
    static char buffer[1 << 12];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    take();
    clean();
    look(0, 0);
    lose(40, 3);
    clean();
    look(0, 0);
    lose(70, 1);
    clean();
    look(0, 1);
    look(0, 2);
    free((void *)kept);
    kept = 0;
    clean();
    look(1, 0);
    return 0;
}
