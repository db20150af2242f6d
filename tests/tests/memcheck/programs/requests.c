// Client requests. A line with an error says what is told of it.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "request.h"

#define REQUEST(...) (void)ASK(__VA_ARGS__)
#define U(x) ((unsigned long)(x))

enum {
    RUNNING = 0x1001,
    COUNT = 0x1201,
    MALLOCLIKE = 0x1301,
    FREELIKE,
    CREATE_POOL,
    DESTROY_POOL,
    POOL_ALLOC,
    POOL_FREE,
    POOL_TRIM,
    MOVE_POOL,
    POOL_CHANGE,
    POOL_EXISTS,
    RESIZE,
    MUTE = 0x1801,
    NOACCESS = 0x4d430000,
    UNDEFINED,
    DEFINED,
    IS_ADDRESSABLE = 0x4d430004,
    IS_DEFINED,
};

static char *map(void) {
    return mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static volatile int sink;

static void ranges(void) {
    volatile char *area = map();
    REQUEST(NOACCESS, U(area), 4096);
    area[4096] = 1;
    area[4095] = 1; // error: Invalid write of size 1
    REQUEST(UNDEFINED, U(area) + 8, 5);
    area[12] = 1;
    area[13] = 1; // error: Invalid write of size 1
    REQUEST(DEFINED, U(area), 4096);
    area[13] = 1;
    // What is mapped where something was is new.
    REQUEST(NOACCESS, U(area), 65536);
    munmap((void *)area, 65536);
    area = mmap((void *)area, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    area[100] = 1;
}

static void blocks(void) {
    char *area = map();
    volatile char *block = area + 64;
    REQUEST(NOACCESS, U(area), 65536);
    REQUEST(MALLOCLIKE, U(block), 40, 16, 0);
    memset((void *)block, 1, 40);
    block[40] = 1; // error: Invalid write of size 1
    block[-1] = 1; // error: Invalid write of size 1
    memset((void *)block, 1, 41); // error: Invalid write of size 1
    REQUEST(RESIZE, U(block), 40, 61, 16);
    block[60] = 1;
    block[61] = 1; // error: Invalid write of size 1
    REQUEST(RESIZE, U(block), 40, 80, 16); // error: Invalid free() / delete / delete[] / realloc()
    REQUEST(FREELIKE, U(block), 16);
    sink = block[8]; // error: Invalid read of size 1
    REQUEST(FREELIKE, U(block), 16); // error: Invalid free() / delete / delete[] / realloc()
    REQUEST(MALLOCLIKE, U(block), 20, 0, 0);
    free((void *)block); // error: Mismatched free() / delete / delete []
    block = malloc(10);
    REQUEST(FREELIKE, U(block), 0); // error: Mismatched free() / delete / delete []
    REQUEST(MALLOCLIKE, U(area + 1001), 3, 0, 0);
    REQUEST(MALLOCLIKE, 0, 0, 0, 0);
    area[1001] = area[1003] = 1;
    REQUEST(FREELIKE, U(area + 1001), 0);
}

static void pools(void) {
    int pool, other;
    volatile char *area = malloc(4096);
    REQUEST(NOACCESS, U(area), 4096);
    REQUEST(CREATE_POOL, U(&pool), 8, 0);
    REQUEST(POOL_ALLOC, U(&pool), U(area + 16), 24);
    REQUEST(POOL_ALLOC, U(&pool), U(area + 64), 24);
    REQUEST(POOL_ALLOC, U(&pool), U(area + 128), 24);
    area[16] = area[64] = area[128] = 1;
    REQUEST(DEFINED, U(area + 39), 1);
    area[40] = 1; // error: Invalid write of size 1
    REQUEST(POOL_FREE, U(&pool), U(area + 16));
    area[16] = 1; // error: Invalid write of size 1
    REQUEST(POOL_FREE, U(&pool), U(area + 16)); // error: Invalid free() / delete / delete[] / realloc()
    REQUEST(POOL_ALLOC, U(&other), U(area + 16), 24); // error: Illegal memory pool address
    REQUEST(POOL_TRIM, U(&pool), U(area + 72), 32);
    area[72] = 1;
    area[71] = 1; // error: Invalid write of size 1
    area[128] = 1; // error: Invalid write of size 1
    REQUEST(MOVE_POOL, U(&pool), U(&other));
    REQUEST(POOL_CHANGE, U(&other), U(area + 72), U(area + 64), 32);
    REQUEST(POOL_FREE, U(&other), U(area + 64));
    REQUEST(POOL_ALLOC, U(&other), U(area + 512), 24);
    REQUEST(DESTROY_POOL, U(&other));
    area[512] = 1; // error: Invalid write of size 1
    REQUEST(DESTROY_POOL, U(&other)); // error: Illegal memory pool address
    free((void *)area);
}

static void nested(void) {
    int pool;
    static char area[256];
    REQUEST(CREATE_POOL, U(&pool), 0, 0, 3);
    REQUEST(POOL_ALLOC, U(&pool), U(area), 256);
    REQUEST(MALLOCLIKE, U(area + 16), 50, 0, 0);
    REQUEST(MALLOCLIKE, U(area + 96), 50, 0, 0);
    REQUEST(POOL_FREE, U(&pool), U(area));
    REQUEST(DESTROY_POOL, U(&pool));
    REQUEST(FREELIKE, U(area + 16), 0); // error: Invalid free() / delete / delete[] / realloc()
}

static void reports(void) {
    volatile char *block = malloc(10);
    REQUEST(MUTE, 1);
    REQUEST(MUTE, 1);
    block[10] = 1;
    REQUEST(MUTE, -1ul);
    block[10] = 1;
    REQUEST(MUTE, -1ul);
    block[10] = 1; // error: Invalid write of size 1
    REQUEST(MUTE, -1ul);
    REQUEST(DEFINED, U(block) + 10, 1);
    block[10] = 1;
    free((void *)block);
}

static volatile char *volatile somewhere;

static __attribute__((noinline)) void close_own(void) {
    volatile char own[256];
    somewhere = own;
    REQUEST(NOACCESS, U(own), 256);
    somewhere[7] = 1; // error: Invalid write of size 1
}

static __attribute__((noinline)) void use_own(void) {
    volatile char own[512];
    somewhere = own;
    for (int i = 0; i < 512; i++)
        somewhere[i] = 1;
}

// An answer that is wrong is an error that nobody expects.
#define EXPECT(answer, value) \
    do { \
        if ((answer) != (value)) \
            *(volatile char *)malloc(0) = 1; \
    } while (0)

static void answers(void) {
    int pool;
    volatile char *block = malloc(40);
    EXPECT(ASK(POOL_EXISTS, U(&pool)), 0);
    REQUEST(CREATE_POOL, U(&pool), 0, 0);
    EXPECT(ASK(POOL_EXISTS, U(&pool)), 1);
    REQUEST(DESTROY_POOL, U(&pool));
    EXPECT(ASK(POOL_EXISTS, U(&pool)), 0);
    unsigned long before = ASK(COUNT);
    EXPECT(ASK(IS_ADDRESSABLE, U(block), 40), 0);
    EXPECT(ASK(IS_DEFINED, U(block), 0), 0);
    EXPECT(ASK(IS_ADDRESSABLE, U(block) + 8, 40), U(block) + 40); // error: Unaddressable byte(s) found during client check
    EXPECT(ASK(COUNT), before + 1);
    EXPECT(ASK(DEFINED, U(block), 40), -1ul);
    // A number that no request has.
    EXPECT(ASK(0x1fff), 0);
    free((void *)block);
    if (ASK(RUNNING))
        write(1, "under Valgrind\n", 15);
}

static __attribute__((noinline)) void leak(void) {
    char *area = malloc(1000);
    REQUEST(MALLOCLIKE, U(area + 104), 77, 0, 0);
    REQUEST(MALLOCLIKE, U(area + 304), 88, 0, 0);
    somewhere = area + 304;
}

int main(void) {
    ranges();
    blocks();
    pools();
    nested();
    reports();
    close_own();
    use_own();
    answers();
    leak();
    return 0;
}
