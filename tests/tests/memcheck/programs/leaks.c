// Blocks that are lost when the process ends: `leaks WAY`. The sizes tell the blocks from each other.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static char *volatile global;
static char *volatile inside;
static char **volatile forbidden;

// A deep call leaves pointers below the stack pointer, and in frames of later calls.
NOINLINE static void scatter(char *block, int depth) {
    char *volatile copies[32];
    for (int i = 0; i < 32; i++)
        copies[i] = block;
    if (depth)
        scatter(copies[depth], depth - 1);
}

NOINLINE static void traps(void) {
    // A file that is shorter than its mapping: a read of it is SIGBUS.
    int fd = memfd_create("empty", 0);
    if (mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED)
        _exit(1);
    // Memory that can only be written, and a block whose middle cannot be read.
    mmap(NULL, 8192, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    forbidden = aligned_alloc(4096, 5 * 4096);
    forbidden[4096 / 8] = malloc(444);
    forbidden[3 * 4096 / 8] = malloc(555);
    mprotect((char *)forbidden + 4096, 4096, PROT_NONE);
}

NOINLINE static int end(const char *way) {
    if (!strcmp(way, "exit"))
        exit(0);
    if (!strcmp(way, "_exit"))
        _exit(0);
    return 0;
}

// The caller's pointer is in its frame, or in a register that `end` keeps.
NOINLINE static int hold(const char *way) {
    char *held = malloc(111);
    scatter(held, 20);
    int result = end(way);
    held[0] = 1;
    return result;
}

int main(int argc, char **argv) {
    global = malloc(222);
    inside = (char *)malloc(333) + 5;
    traps();
    return hold(argv[1]);
}
