/* Errors in threads, forked children, signal handlers, coroutines and after a longjmp; much that is right in between. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noipa))
enum { THREADS = 4, BLOCKS = 5000 };

static volatile long sum;
static void *_Atomic shared[64];

APART static long late(volatile long *p)
{
    return p[1]; // error: Invalid read of size 8
}

static void *in_thread(void *arg)
{
    unsigned seed = (unsigned)(long)arg;
    long own = 0;
    for (int i = 0; i < BLOCKS; i++) {
        seed = seed * 1103515245 + 12345;
        size_t size = 1 + (seed >> 16) % 300;
        char *p = malloc(size);
        memset(p, (int)size, size);
        if (i % 7 == 0)
            p = realloc(p, size + 100);
        own += p[size - 1];
        /* Another thread frees it. */
        free(__atomic_exchange_n((void **)&shared[seed % 64], p, __ATOMIC_ACQ_REL));
    }
    long *freed = malloc(40);
    free(freed);
    own += late(freed);
    return (void *)own;
}

APART static void threads(void)
{
    pthread_t all[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&all[i], 0, in_thread, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], 0);
    for (int i = 0; i < 64; i++)
        free(shared[i]);
}

APART static void beyond(volatile char *p, int i)
{
    p[i] = 1; // error: Invalid write of size 1
}

APART static void children(char *self)
{
    /* The byte after the block is the C library's padding: without the tool, no harm is done. */
    char *block = malloc(20);
    pid_t child = fork();
    if (child == 0) {
        beyond(block, 20);
        free(block);
        for (int i = 0; i < 1000; i++)
            free(malloc(i));
        exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    child = vfork();
    if (child == 0) {
        execl(self, self, "again", (char *)0);
        _exit(99);
    }
    waitpid(child, &status, 0);
    printf("vforked %d\n", WEXITSTATUS(status));
    free(block);
}

static char *for_handler;

static void handler(int signal)
{
    (void)signal;
    sum += for_handler[8]; // error: Invalid read of size 1
}

APART static void signals(void)
{
    stack_t stack = { .ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ }, none = { .ss_flags = SS_DISABLE };
    sigaltstack(&stack, 0);
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    sigaction(SIGUSR1, &action, 0);
    for_handler = malloc(8);
    raise(SIGUSR1);
    sigaltstack(&none, 0);
    free(for_handler);
    free(stack.ss_sp);
}

static jmp_buf back;

APART static void jump(int depth)
{
    volatile char room[1000];
    room[depth] = 1;
    if (depth)
        jump(depth - 1);
    else
        longjmp(back, 1);
    sum += room[depth];
}

APART static void jumps(void)
{
    volatile char *p = malloc(16);
    if (!setjmp(back))
        jump(20);
    sum += p[16]; // error: Invalid read of size 1
    free((void *)p);
}

static ucontext_t outside, inside;

static void coroutine(void)
{
    volatile char *p = malloc(10);
    for (int i = 0; i < 3; i++) {
        p[i] = 1;
        printf("coroutine %d\n", i);
        swapcontext(&inside, &outside);
    }
    sum += p[10]; // error: Invalid read of size 1
    free((void *)p);
}

APART static void coroutines(void)
{
    size_t size = 256 << 10;
    char *stack = malloc(size);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = size;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < 4; i++)
        swapcontext(&outside, &inside);
    free(stack);
}

APART static void library(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW);
    void *(*make)(int) = (void *(*)(int))dlsym(handle, "make");
    long (*use)(volatile char *, int) = (long (*)(volatile char *, int))dlsym(handle, "use");
    char *p = make(5);
    sum += use(p, 4) + use(p, 5);
    free(p);
    dlclose(handle);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "again")) {
        free(malloc(10));
        return 3;
    }
    setvbuf(stdout, 0, _IONBF, 0);
    threads();
    children(argv[0]);
    signals();
    jumps();
    coroutines();
    library(argv[1]);
    printf("end\n");
    return 0;
}
