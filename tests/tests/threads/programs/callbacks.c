// Threads that a library starts and that call back: timers, asynchronous names, qsort on
// a thread; contexts that one thread begins and another goes on with; OpenMP.
// variants: gcc-O2 gcc-O2-nopie gcc-O2-lazy
// cflags: -pthread -fopenmp
// count: timer_ran 40
// count: compare_entered 1
// count: step 4000
// count: in_parallel 40000
// stdout: done
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
static volatile long sink;
static sem_t ran;
__attribute__((noinline)) void timer_ran(union sigval v) { sink = v.sival_int; sem_post(&ran); }
__attribute__((noinline)) void compare_entered(void) { sink = 3; }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void *sorts(void *p)
{
    int v[100];
    for (int i = 0; i < 100; i++) v[i] = i * 37 % 101;
    qsort(v, 100, sizeof v[0], compare);
    compare_entered();
    return p;
}
static ucontext_t fiber, home;
__attribute__((noinline)) void step(void) { sink++; }
static void fiber_main(void) { for (;;) { for (int i = 0; i < 100; i++) step(); swapcontext(&fiber, &home); } }
static void *resumes(void *p)
{
    for (int i = 0; i < 10; i++) swapcontext(&home, &fiber);
    return p;
}
__attribute__((noinline)) void in_parallel(void) { sink = 4; }
int main(void)
{
    pthread_t t;
    sem_init(&ran, 0, 0);
    for (int i = 0; i < 40; i++) {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = timer_ran};
        struct itimerspec soon = {.it_value.tv_nsec = 1000};
        if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return 1;
        timer_settime(timer, 0, &soon, NULL);
        sem_wait(&ran);
        timer_delete(timer);
    }
    pthread_create(&t, NULL, sorts, NULL);
    pthread_join(t, NULL);
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = malloc(65536);
    fiber.uc_stack.ss_size = 65536;
    makecontext(&fiber, fiber_main, 0);
    for (int i = 0; i < 4; i++) {
        pthread_create(&t, NULL, resumes, NULL);
        pthread_join(t, NULL);
    }
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < 40000; i++) in_parallel();
    puts("done");
    return 0;
}
