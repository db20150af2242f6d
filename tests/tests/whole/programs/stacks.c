// Small stacks, by argument. Each lies above a guarded field, whose words must stay as they are: nobody but the owner of a
// stack knows what is below it.
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { FIELD = 192 << 10, SMALL = 16 << 10, WORD = 0x5a };
static unsigned char *memory;
static volatile long sum;

/* Enough calls, branches, references and blocks of memory to fill the buffers of tools. */
__attribute__((noinline)) static long step(long n) { return n % 3 ? n * 7 + 1 : n / 3; }

__attribute__((noinline)) static void work(void)
{
    for (long n = 0; n < 60000; n++) {
        sum += step(n);
        if (n % 64 == 0)
            free(malloc((size_t)n % 100 + 1));
    }
}

/* The lowest address of a small stack above the field. */
static void *small(void)
{
    memory = aligned_alloc(4096, FIELD + SMALL);
    memset(memory, WORD, FIELD);
    return memory + FIELD;
}

static int changed(void)
{
    int count = 0;
    for (int i = 0; i < FIELD; i++)
        count += memory[i] != WORD;
    return count;
}

static void on_alternate(int signal) { (void)signal; work(); }

static void on_crash(int signal) { (void)signal; work(); _exit(5); }

static void handle(int signal, void (*handler)(int), size_t size)
{
    stack_t stack = { .ss_sp = (char *)small() + SMALL - size, .ss_size = size };
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    sigaltstack(&stack, NULL);
    sigaction(signal, &action, NULL);
}

static void *thread(void *p) { work(); return p; }

static void *ending(void *p) { work(); exit(6); return p; }

static void start(void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_t one;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (pthread_create(&one, &attributes, body, NULL))
        puts("no thread");
    pthread_join(one, NULL);
}

static ucontext_t outer, inner;

static void coroutine(void) { work(); swapcontext(&inner, &outer); work(); }

static int child(void *p) { (void)p; work(); _exit(3); }

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(way, "thread")) {
        start(thread);
        start(thread);
    } else if (!strcmp(way, "exit")) {
        start(ending);
    } else if (!strcmp(way, "alternate")) {
        handle(SIGUSR1, on_alternate, SMALL);
        raise(SIGUSR1);
        raise(SIGUSR1);
    } else if (!strcmp(way, "crash")) {
        handle(SIGSEGV, on_crash, 8192);
        *(volatile int *)8 = 1;
    } else if (!strcmp(way, "coroutine")) {
        getcontext(&inner);
        inner.uc_stack.ss_sp = small();
        inner.uc_stack.ss_size = SMALL;
        inner.uc_link = &outer;
        makecontext(&inner, coroutine, 0);
        swapcontext(&outer, &inner);
        swapcontext(&outer, &inner);
    } else if (!strcmp(way, "child")) {
        int status = 0;
        pid_t pid = clone(child, (char *)small() + SMALL, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        waitpid(pid, &status, 0);
        printf("child %x\n", status);
    } else if (!strcmp(way, "system")) {
        for (int i = 0; i < 5; i++) {
            work();
            printf("system %x\n", system("exit 7"));
        }
    }
    if (memory)
        printf("changed %d\n", changed());
    printf("sum %ld\n", sum);
    return 4;
}
