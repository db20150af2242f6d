// A loop whose iterations are kernels; with SPLIT, two threads do half of them each.
#include <stdio.h>
#include "ato.h"
#ifdef SPLIT
#include <pthread.h>
#endif

enum { ITEMS = 40, ROUNDS = 6 };

static unsigned results[ITEMS];
static int now;

static void work(long from, long to)
{
    for (long x = from; x < to; ++x) {
        ATO_KERNEL_BEGIN_FROM(item, from);
        unsigned sum = 0;
        for (long i = 0; i < x * 3 + now; ++i)
            sum = sum * 31 + (unsigned)i;
        results[x] += sum;
        ATO_KERNEL_END(item);
    }
}

#ifdef SPLIT
static void *half(void *which)
{
    long from = which ? ITEMS / 2 : 0;
    work(from, from + ITEMS / 2);
    return NULL;
}
#endif

int main(void)
{
    for (now = 0; now < ROUNDS; ++now) {
        ATO_PROFILE_BEGIN(round);
#ifdef SPLIT
        pthread_t threads[2];
        for (int i = 0; i < 2; ++i)
            pthread_create(&threads[i], NULL, half, i ? &now : NULL);
        for (int i = 0; i < 2; ++i)
            pthread_join(threads[i], NULL);
#else
        work(0, ITEMS);
#endif
        ATO_PROFILE_END(round);
    }
    unsigned sum = 0;
    for (int i = 0; i < ITEMS; ++i)
        sum = sum * 7 + results[i];
    printf("%08x\n", sum);
    return 0;
}
