// Threads that count at the same places at the same time; many short ones, one after
// the other and detached; C11 threads; signals inside threads, nested.
// variants: gcc-O2 gcc-O2-static gcc-O2-staticpie clang-O2 gcc-O2-nopie gcc-O2-strip
// cflags: -pthread
// count: work 1600000
// count: short_one 3000
// count: detached 300
// count: c11 20
// count: outer_handler 4000
// count: inner_handler 4000
// stdout: done
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <threads.h>
static volatile long sink;
static sem_t over;
static pthread_barrier_t all;
__attribute__((noinline)) void work(long i) { sink = i; }
static void *busy(void *p)
{
    pthread_barrier_wait(&all);
    for (long i = 0; i < 200000; i++) work(i);
    return p;
}
__attribute__((noinline)) void *short_one(void *p) { sink = 1; return p; }
__attribute__((noinline)) void *detached(void *p) { sem_post(&over); return p; }
__attribute__((noinline)) int c11(void *p) { (void)p; return 3; }
__attribute__((noinline)) void inner_handler(int s) { sink = s; }
__attribute__((noinline)) void outer_handler(int s) { sink = s; raise(SIGUSR2); }
static void *signalled(void *p)
{
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);
    return p;
}
int main(void)
{
    pthread_t t[8];
    sem_init(&over, 0, 0);
    pthread_barrier_init(&all, NULL, 8);
    signal(SIGUSR1, outer_handler);
    signal(SIGUSR2, inner_handler);
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, busy, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 3000; i += 6) {
        for (int j = 0; j < 6; j++) pthread_create(&t[j], NULL, short_one, NULL);
        for (int j = 0; j < 6; j++) pthread_join(t[j], NULL);
    }
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 300; i++) {
        pthread_create(&t[0], &attr, detached, NULL);
        if (i % 3 == 0) for (int j = 0; j < (i ? 3 : 1); j++) sem_wait(&over);
    }
    for (int i = 0; i < 2; i++) sem_wait(&over);
    for (int i = 0; i < 20; i++) {
        thrd_t c;
        thrd_create(&c, c11, NULL);
        thrd_join(c, NULL);
    }
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, signalled, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    puts("done");
    return 0;
}
