/* Each error of the heap once. A line with `error: TEXT` at its end is where it is found, and how it begins. */
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noipa))

static int sum;

APART static void *block(size_t size) { return malloc(size); }
APART static void check(volatile char *p, int i)
{
    sum += p[i]; // error: Invalid read of size 1
}
APART static void put(volatile int *p, int i)
{
    p[i] = 1; // error: Invalid write of size 4
}
APART static void partly(volatile char *p)
{
    sum += *(volatile short *)(p + 9); // error: Invalid read of size 2
}
APART static void late(volatile long *p)
{
    sum += p[1]; // error: Invalid read of size 8
}
APART static void twice(void *p)
{
    free(p); // error: Invalid free() / delete / delete[] / realloc()
}
APART static void larger(void *p)
{
    p = realloc(p, 80); // error: Invalid free() / delete / delete[] / realloc()
}
APART static void inside(char *p)
{
    free(p + 8); // error: Invalid free() / delete / delete[] / realloc()
}
APART static void elsewhere(void)
{
    free(&sum); // error: Invalid free() / delete / delete[] / realloc()
}
APART static void copied(char *to, char *from, size_t n)
{
    memcpy(to, from, n); // error: Source and destination overlap in memcpy
}
APART static void filled(char *to, size_t n)
{
    memset(to, 0, n); // error: Invalid write of size 1
}
APART static void negative(long n)
{
    void *volatile p = malloc(n); // error: Argument 'size' of function malloc has a fishy
    (void)p;
}

int main(void)
{
    char *p = block(10);
    check(p, 9);
    check(p, 10);
    partly(p);
    int *q = block(40);
    put(q, 9);
    put(q, -1);
    filled((char *)q, 40);
    filled((char *)q + 24, 17);
    copied((char *)q, (char *)q + 8, 8);
    copied((char *)q, (char *)q + 4, 8);
    inside((char *)q);
    free(q);
    late((long *)q);
    twice(q);
    larger(q);
    elsewhere();
    negative(-5);
    q = block(100);
    q = realloc(q, 4000);
    free(q);
    free(p);
    p = block(77);
    p = 0;
    return 0;
}
