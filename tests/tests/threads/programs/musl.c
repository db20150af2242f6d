// Threads of another C library, linked statically and dynamically.
// variants: musl-O2 musl-O2-static
// cflags: -pthread
// count: work 400000
// count: short_one 1000
// stdout: done
#include <pthread.h>
#include <stdio.h>
static volatile long sink;
__attribute__((noinline)) void work(long i) { sink = i; }
__attribute__((noinline)) void *short_one(void *p) { sink = 1; return p; }
static void *busy(void *p) { for (long i = 0; i < 100000; i++) work(i); return p; }
int main(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, busy, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 1000; i++) {
        pthread_create(&t[0], NULL, short_one, NULL);
        pthread_join(t[0], NULL);
    }
    puts("done");
    return 0;
}
