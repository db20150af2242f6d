// Unwinding that starts at any instruction: a profiling signal's backtrace, and
// threads that are cancelled wherever they are.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie clang-O2
// cflags: -fexceptions -fnon-call-exceptions -fasynchronous-unwind-tables -pthread
// stdout: strange 0
// stdout: cancelled 40 cleaned most pushed 40
// counts: no
//
// Handlers look for return addresses that the functions themselves have noted, so it
// holds for them wherever their code lies.

#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned sink;
static volatile int ticks, strange, depth;
/* What main and middle are returned to. */
static void *in_main, *in_middle;

static void on_tick(int signal)
{
    void *frames[64];
    int n = backtrace(frames, 64), seen = 0, wanted = depth;
    (void)signal;
    if (!wanted)
        return;
    ticks++;
    for (int i = 0; i < n; i++)
        if (frames[i] == (wanted - seen == 2 ? in_middle : in_main))
            seen++;
    if (seen != wanted)
        strange++;
}

NOINLINE unsigned leaf(unsigned x)
{
    return x & 4 ? x * 3 : x + 7;
}

NOINLINE unsigned work(unsigned n, unsigned a, unsigned b)
{
    unsigned sum = a;
    int outer = depth;
    in_middle = __builtin_return_address(0);
    if (outer)
        depth = 2;
    for (unsigned i = 0; i < n; i++) {
        if (sum % 3 == 0)
            sum += leaf(i) ^ b;
        else if (sum % 5 == 1)
            sum -= i * a;
        else
            sum ^= leaf(b + i) << (i & 3);
    }
    depth = outer;
    return sum;
}

NOINLINE unsigned middle(unsigned n)
{
    in_main = __builtin_return_address(0);
    depth = 1;
    unsigned x = work(n, n & 7, n >> 3) + 1;
    depth = 0;
    sink += x;
    return x;
}

static volatile int cleaned, pushed;
static unsigned (*volatile call)(unsigned, unsigned, unsigned) = work;

static void clean(int *p)
{
    __atomic_add_fetch(&cleaned, *p, __ATOMIC_SEQ_CST);
}

static void popped(void *p)
{
    __atomic_add_fetch(&pushed, *(int *)p, __ATOMIC_SEQ_CST);
}

NOINLINE unsigned forever(int *started)
{
    __attribute__((cleanup(clean))) int one = 1;
    unsigned x = 1;
    __atomic_store_n(started, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        x += call(50 + (sink & 3), x, x >> 5);
        sink = x;
    }
    return x;
}

static void *thread(void *started)
{
    int one = 1;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(popped, &one);
    forever(started);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    void *warm[4];
    backtrace(warm, 4);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &often, NULL);
    while (ticks < 60) {
        middle(3000);
    }
    setitimer(ITIMER_PROF, &never, NULL);
    printf("strange %d\n", strange);
    depth = 0;
    int cancelled = 0;
    for (int i = 0; i < 40; i++) {
        pthread_t t;
        int started = 0;
        void *result;
        pthread_create(&t, NULL, thread, &started);
        while (!__atomic_load_n(&started, __ATOMIC_SEQ_CST))
            ;
        struct timespec pause = {0, 50000 + 7919 * i};
        nanosleep(&pause, NULL);
        pthread_cancel(t);
        pthread_join(t, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    /* Compilers protect calls, not each instruction: a few may be missed. */
    printf("cancelled %d cleaned %s pushed %d\n", cancelled, cleaned > 30 ? "most" : "few", pushed);
    return 0;
}
