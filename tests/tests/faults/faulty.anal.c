#include <stdlib.h>

static int calls;
static volatile int zero;
static volatile int *volatile nowhere = (int *)16;

static int deeper(int number)
{
    return number / zero;
}

void divide(int at)
{
    if (++calls == at)
        calls += deeper(at);
}

void wild(int at)
{
    if (++calls == at)
        calls += *nowhere;
}

void aborts(int at)
{
    if (++calls == at)
        abort();
}
