/* Callbacks that measure, each in its way. */
#include <time.h>

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

/* Says how it was called. */
#include <unistd.h>
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
