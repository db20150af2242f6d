// Handlers of other kinds, interrupting code at any place: for one signal only, on a stack of its own, of signals with values, left
// by a jump, interrupted by another; and what the kernel tells of them.
// Prints: once 60, own stack 60, values 3540 of 60, jumps 60, nested 60, waited 60, masks 0 wrong
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 60 };
static volatile int once, own_stack, jumps, nested, depth, wrong, values, valued;
static volatile unsigned words[256];
static char stack[32768];
static sigjmp_buf back;
static pthread_t computing;

static void work(void)
{
    static unsigned n;
    for (int i = 0; i < 500; i++) {
        n = n * 1664525 + 1013904223;
        words[n >> 24] += n;
    }
}

static void start_timer(void)
{
    static unsigned n = 1;
    n = n * 1103515245 + 12345;
    struct itimerval t = {{0, 0}, {0, 40 + (n >> 16) % 150}};
    setitimer(ITIMER_REAL, &t, 0);
}

static void check_mask(int signal, int is_blocked)
{
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP && sigismember(&now, i) != (i == signal && is_blocked))
            wrong++;
}

static void on_once(int signal)
{
    struct sigaction now;
    sigaction(signal, NULL, &now);
    wrong += now.sa_handler != SIG_DFL || !(now.sa_flags & SA_RESETHAND);
    check_mask(signal, 1);
    once++;
}

static void on_own_stack(int signal)
{
    char here;
    wrong += &here < stack || &here >= stack + sizeof stack;
    check_mask(signal, 0);
    own_stack++;
}

static void on_jump(int signal)
{
    siglongjmp(back, signal);
}

static void on_value(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    // In the order in which they were sent, with all that belongs to them.
    wrong += info->si_value.sival_int != valued || info->si_pid != getpid() || info->si_code != SI_QUEUE;
    values += info->si_value.sival_int;
    valued++;
}

static void on_nested(int signal)
{
    (void)signal;
    int here = ++depth;
    if (here == 3) {
        nested++;
        return;
    }
    start_timer();
    while (depth == here)
        work();
}

static void *sends(void *unused)
{
    // The other thread handles all of them.
    sigset_t set;
    sigfillset(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < TIMES; i++) {
        union sigval value = {.sival_int = i * 2};
        value.sival_int = i;
        sigqueue(getpid(), SIGRTMIN, value);
        usleep(100);
    }
    return unused;
}

int main(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    for (int i = 0; i < TIMES; i++) {
        a.sa_handler = on_once;
        a.sa_flags = SA_RESETHAND;
        sigaction(SIGALRM, &a, NULL);
        start_timer();
        while (once == i)
            work();
    }
    check_mask(0, 0);

    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, NULL);
    a.sa_handler = on_own_stack;
    a.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(SIGALRM, &a, NULL);
    for (int i = 0; i < TIMES; i++) {
        start_timer();
        while (own_stack == i)
            work();
    }

    a.sa_handler = on_jump;
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, NULL);
    while (jumps < TIMES) {
        if (sigsetjmp(back, 1)) {
            jumps++;
            check_mask(0, 0);
            continue;
        }
        start_timer();
        for (;;)
            work();
    }

    a.sa_handler = on_nested;
    a.sa_flags = SA_NODEFER;
    sigaction(SIGALRM, &a, NULL);
    for (int i = 0; i < TIMES; i++) {
        depth = 0;
        start_timer();
        while (nested == i)
            work();
    }

    a.sa_sigaction = on_value;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGRTMIN, &a, NULL);
    pthread_create(&computing, NULL, sends, NULL);
    while (valued < TIMES)
        work();
    pthread_join(computing, NULL);

    // Signals that nobody handles.
    int waited = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < TIMES; i++) {
        siginfo_t info;
        union sigval value = {.sival_int = i};
        sigqueue(getpid(), SIGUSR1, value);
        work();
        waited += sigwaitinfo(&set, &info) == SIGUSR1 && info.si_value.sival_int == i;
    }
    printf("once %d, own stack %d, values %d of %d, jumps %d, nested %d, waited %d, masks %d wrong\n", once,
           own_stack, values * 2, valued, jumps, nested, waited, wrong);
    return 0;
}
