/* Threads that begin and end in several ways. Each calls `work` with its number, and how often is known. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef GS
int arch_prctl(int, unsigned long);
#endif

__attribute__((noipa)) void work(long thread) {}

static void works(int n) {
    long thread = syscall(SYS_gettid);
    while (n--)
        work(thread);
}

static void *returns(void *n) {
    works((long)n);
    return n;
}

static void *exits(void *n) {
    works((long)n);
    pthread_exit(n);
}

static void run(void *(*function)(void *), long n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, (void *)n) || pthread_join(thread, NULL))
        abort();
}

static void *nested(void *n) {
    works((long)n);
    run(returns, (long)n + 1);
    return n;
}

static volatile int is_there;

static void *stays(void *n) {
    works((long)n);
    is_there = 1;
    for (;;)
        pause();
}

/* Waits until all other threads have ended. Their number is the links of the folder: a list of it that is read while
   threads end may be too short. */
static void wait_for_all(void) {
    struct stat all = {0};
    while (stat("/proc/self/task", &all) || all.st_nlink != 3)
        usleep(1000);
}

int main(void) {
#ifdef GS
    unsigned long base;
    arch_prctl(0x1004, (unsigned long)&base);
#endif
    works(3);
    for (int i = 0; i < 50; i++)
        run(returns, 10);
    run(exits, 2);
    run(nested, 4);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    for (int i = 0; i < 300; i++)
        if (pthread_create(&thread, &attributes, returns, (void *)1))
            abort();
    wait_for_all();
    if (fork() == 0) {
        run(returns, 20);
        return 0;
    }
    wait(NULL);
    if (pthread_create(&thread, NULL, stays, (void *)7))
        abort();
    while (!is_there)
        usleep(1000);
    return 0;
}
