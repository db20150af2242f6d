/* Callbacks that measure, each in its way. */
#include <stdlib.h>
#include <unistd.h>

/* The time-stamp counter. */
static unsigned long now(void)
{
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (unsigned long)high << 32 | low;
}

void ticksBegin(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)context;
    *(unsigned long *)data = now();
}

void ticksEnd(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)context;
    *(unsigned long *)data = now() - *(unsigned long *)data;
}

/* A made-up clock that moves on whenever it is read: 7 for the first reading, 7 for the second. */
static double simulated;

void simulatedBegin(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)context;
    *(double *)data = simulated += 7;
}

void simulatedEnd(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)context;
    *(double *)data = (simulated += 7) - *(double *)data;
}

/* Each thread counts for itself, from its number times 1000 on. */
static long own_count[64];

void threadBegin(unsigned short tid, void **context)
{
    *context = &own_count[tid];
    own_count[tid] = tid * 1000;
}

void threadEnd(unsigned short tid, void **context)
{
    if (*context != &own_count[tid])
        abort();
    if (write(2, "joined\n", 7) != 7)
        abort();
}

void countBegin(unsigned short sid, void *data, void *context)
{
    (void)sid;
    *(long *)data = context ? ++*(long *)context : 0;
}

void countEnd(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)data, (void)context;
}

/* Says how it was called. */
void loudBegin(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)context;
    *(int *)data = -5;
    if (write(1, "begin\n", 6) != 6)
        _exit(9);
}

void loudEnd(unsigned short sid, void *data, void *context)
{
    (void)sid, (void)data, (void)context;
}
