/* A library that contexts.c opens. Without `atom run` it is not instrumented. */
#include <stdlib.h>

void *make(int size) { return malloc(size); }
long use(volatile char *p, int i)
{
    return p[i];
}
