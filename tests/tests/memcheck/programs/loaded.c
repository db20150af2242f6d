/* A library that contexts.c opens. */
#include <stdlib.h>

void *make(int size) { return malloc(size); }
long use(volatile char *p, int i)
{
    return p[i]; // error: Invalid read of size 1
}
