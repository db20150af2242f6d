// Processes made by threads: fork, vfork and posix_spawn from a thread that is not the
// first; threads in the child; the end of the process by a thread, beside others.
// variants: gcc-O2 gcc-O2-static gcc-O2-nopie clang-O2
// cflags: -pthread
// count: before 2000
// count: after 2000
// count-forked: before 0
// count-forked: after 50000
// stdout: spawned 0 forked 7 vforked 3
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile long sink;
__attribute__((noinline)) void before(void) { sink = 1; }
__attribute__((noinline)) void after(void) { sink = 2; }
static volatile int waiter;
// The process must not end before the thread that waits does so: what runs during the
// last calls is counted by one and not by the other.
static void until_it_waits(void)
{
    char name[64], state = 0;
    while (state != 'S') {
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", waiter);
        FILE *f = waiter ? fopen(name, "r") : NULL;
        if (f) {
            if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
            fclose(f);
        }
    }
}
static void *in_child(void *p)
{
    for (int i = 0; i < 10000; i++) after();
    return p;
}
static void *forks(void *p)
{
    int s, f, v;
    pid_t pid;
    char *args[] = {"true", NULL};
    for (int i = 0; i < 1000; i++) before();
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ)) exit(2);
    waitpid(pid, &s, 0);
    pid = fork();
    if (pid == 0) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, in_child, NULL);
        in_child(NULL);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        exit(7);
    }
    waitpid(pid, &f, 0);
    pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 3", NULL);
        _exit(1);
    }
    waitpid(pid, &v, 0);
    for (int i = 0; i < 2000; i++) after();
    printf("spawned %d forked %d vforked %d\n", WEXITSTATUS(s), WEXITSTATUS(f), WEXITSTATUS(v));
    until_it_waits();
    exit(0);
    return p;
}
static void *waits(void *p)
{
    waiter = syscall(SYS_gettid);
    for (;;) pause();
    return p;
}
int main(void)
{
    pthread_t t;
    for (int i = 0; i < 1000; i++) before();
    pthread_create(&t, NULL, waits, NULL);
    pthread_create(&t, NULL, forks, NULL);
    pthread_join(t, NULL);
    return 1;
}
