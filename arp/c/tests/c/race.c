// Two threads that count in one variable without a lock, for a test of the test.
#include <atomium_rp.h>
#include <pthread.h>

static volatile int count;

static void *work(void *unused)
{
    for (int i = 0; i < 1000; ++i)
        ++count;
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], 0);
    return 0;
}
