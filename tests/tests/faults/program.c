// A program with faults of its own, for faults of a tool beside them. Letters in the first argument: h sets handlers, a lets them
// run on another stack, t starts threads, o overflows the stack, p uses a protected page. The second argument is the number of calls of
// work.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf env;
static char stack[1 << 16];
static char *volatile page;
static volatile int opened;
static long calls;

static void handler(int signal, siginfo_t *information, void *context)
{
    char *at = information->si_addr;
    if (page && at >= page && at < page + 4096) {
        opened++;
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        return;
    }
    (void)context;
    siglongjmp(env, signal);
}

__attribute__((noinline)) long work(long n)
{
    volatile long x = n;
    return x * 3;
}

__attribute__((noinline)) long own(volatile long *p)
{
    return *p;
}

__attribute__((noinline)) long deep(long n)
{
    volatile char room[100];
    room[0] = (char)n;
    return n == 0 ? 1 : deep(n + 1) + room[0];
}

static void *thread(void *sum)
{
    for (long i = 0; i < calls; i++)
        *(long *)sum += work(i);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *how = argv[1];
    calls = atol(argv[2]);
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    if (strchr(how, 'a')) {
        stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
        sigaltstack(&other, NULL);
        action.sa_flags |= SA_ONSTACK;
    }
    if (strchr(how, 'h')) {
        int signals[] = { SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGABRT };
        for (int i = 0; i < 5; i++)
            sigaction(signals[i], &action, NULL);
    }
    if (strchr(how, 'p')) {
        page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        page[7] = 5;
        printf("opened %d\n", opened);
    }
    int got = sigsetjmp(env, 1);
    if (got == 0 && strchr(how, 'o'))
        deep(1);
    else if (got == 0)
        own((long *)8);
    printf("own %d\n", got);
    fflush(stdout);
    if (sigsetjmp(env, 1))
        printf("a fault that is not the program's\n");
    long sums[3] = { 0 };
    if (strchr(how, 't')) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, thread, &sums[i]);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    } else {
        thread(&sums[0]);
    }
    printf("done %ld\n", sums[0] + sums[1] + sums[2]);
    return 0;
}
