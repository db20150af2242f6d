// What refers to blocks of the heap is known: each access to them is volatile, so all compilers make it once.
//
// `expect KIND CALLERS = REFERENCES BLOCKS BYTES`: the row of the blocks that these procedures allocate, the innermost
// first. With `alone` in front the numbers are those of the program alone: in a whole process the library's own references
// to the blocks are seen, too.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

typedef volatile long cell;

static long sum;

// Not known to the compiler, which else makes a copy of the wrapper for this size.
static volatile long cells_of_node = 6;

static NOINLINE cell *wrapper(long cells) {
    cell *made = malloc(cells * sizeof(cell));
    if (!made)
        abort();
    sum += 1; // no tail call
    return made;
}

// Two lists of 48 bytes a node, by one wrapper, which is passed over.
// expect heap make_first main = 3200 400 19200
static NOINLINE cell *make_first(void) {
    cell *list = 0;
    for (int i = 0; i < 400; i++) {
        cell *node = wrapper(cells_of_node);
        node[0] = (long)list;
        node[1] = i;
        list = node;
    }
    return list;
}

// expect heap make_second main = 800 100 4800
static NOINLINE cell *make_second(void) {
    cell *list = 0;
    for (int i = 0; i < 100; i++) {
        cell *node = wrapper(cells_of_node);
        node[0] = (long)list;
        node[1] = i;
        list = node;
    }
    return list;
}

// Each node is read three times twice: 6 of 8 references, the others have made it.
static NOINLINE void walk(cell *list) {
    for (int turn = 0; turn < 3; turn++)
        for (cell *node = list; node;) {
            sum += node[1];
            node = (cell *)node[0];
        }
}

// expect alone heap grow main = 51000 2 408000
static NOINLINE void grow(void) {
    cell *block = malloc(1000 * sizeof(cell));
    for (int i = 0; i < 1000; i++)
        block[i] = i;
    block = realloc((void *)block, 50000 * sizeof(cell));
    for (int i = 0; i < 50000; i++)
        block[i] = i;
    free((void *)block);
}

// The blocks of both have the same memory in turns.
// expect alone heap first recycle main = 800 100 6400
static NOINLINE cell *first(void) {
    cell *block = malloc(64);
    for (int i = 0; i < 8; i++)
        block[i] = i;
    return block;
}

// expect alone heap second recycle main = 1600 100 6400
static NOINLINE cell *second(void) {
    cell *block = malloc(64);
    for (int i = 0; i < 8; i++)
        block[i] = i;
    for (int i = 0; i < 8; i++)
        sum += block[i];
    return block;
}

static NOINLINE void recycle(void) {
    for (int turn = 0; turn < 100; turn++) {
        free((void *)first());
        free((void *)second());
    }
}

// expect mapped map main = 32768 1 131072
static NOINLINE void map(void) {
    cell *memory = mmap(0, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1 << 14; i++)
        memory[i] = i;
    munmap((void *)memory, 1 << 15);
    for (int i = 1 << 12; i < 1 << 14; i++)
        sum += memory[i];
    for (int i = 1 << 12; i < 1 << 13; i++)
        sum += memory[i];
    munmap((char *)memory + (1 << 15), 3 << 15);
}

// expect heap aligned main = 600 3 6000
static NOINLINE void aligned(void) {
    void *one = 0;
    if (posix_memalign(&one, 256, 2000))
        abort();
    void *all[3] = {one, aligned_alloc(512, 2000), reallocarray(0, 20, 100)};
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 200; at++)
            ((cell *)all[i])[at] = at;
}

static NOINLINE void *part(void *given) {
    cell *shared = given;
    for (int i = 0; i < 1000; i++)
        shared[i] = i;
    return 0;
}

// expect heap threads main = 5000 1 8000
static NOINLINE void threads(void) {
    cell *shared = malloc(1000 * sizeof(cell));
    pthread_t all[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&all[i], 0, part, (void *)shared);
        pthread_join(all[i], 0);
    }
    for (int i = 0; i < 1000; i++)
        sum += shared[i];
    // With several threads what `free` does in the block would count for the block.
}

// A pool of its own, for the option --alloc.
static char pool[1 << 14];
static char *top = pool;
NOINLINE void *pool_get(long kind, long size) {
    char *block = top;
    top += (size + 15) / 16 * 16;
    sum += kind;
    return block;
}

// expect pool heap pooled main = 500 50 5000
static NOINLINE void pooled(void) {
    for (int i = 0; i < 50; i++) {
        cell *block = pool_get(3, 100);
        for (int at = 0; at < 10; at++)
            block[at] = at;
    }
}

// The child has its parent's blocks, and counts from 0.
// expect child heap inherited main = 300 0 0
// expect heap inherited main = 700 1 8000
static NOINLINE void inherited(void) {
    cell *block = malloc(1000 * sizeof(cell));
    for (int i = 0; i < 700; i++)
        block[i] = i;
    if (fork() == 0) {
        for (int i = 300; i < 600; i++)
            sum += block[i];
        exit(0);
    }
    wait(0);
}

int main(void) {
    walk(make_first());
    walk(make_second());
    grow();
    recycle();
    map();
    aligned();
    pooled();
    inherited();
    threads();
    printf("%ld\n", sum);
    fflush(stdout);
    return 0;
}
