// Does some work, looks around, and ends in the way that its argument names.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>
#include <pthread.h>

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}
__attribute__((noinline)) long worked(long n) { __asm__ volatile(""); return n + 1; }
static long work(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) sum = worked(sum);
    return sum;
}
static void *worker(void *n) { return (void *)work((long)n); }
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
__attribute__((noinline)) int deep(int n)
{
    volatile char room[4096];
    room[0] = n;
    return n < 0 ? 0 : deep(n + 1) + room[0];
}
int main(int argc, char **argv)
{
    // No child, no further thread, no further descriptor, the process's own group.
    long waited = waitpid(-1, 0, __WALL);
    printf("%ld %d\n", waited, errno == ECHILD);
    printf("%d threads, %d descriptors, %d\n", entries("/proc/self/task") - 2, entries("/proc/self/fd") - 3,
           getpgrp() == getpgid(getppid()));
    fflush(stdout);
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "threads")) {
        pthread_t t[3];
        double start = seconds();
        for (int round = 0; round == 0 || seconds() - start < 0.6; round++) {
            for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, worker, (void *)1000L);
            for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
            work(1000);
            if (round == 300) break;
            usleep(1000);
        }
        return 0;
    }
    work(1000);
    if (!strcmp(way, "kill")) raise(SIGKILL);
    if (!strcmp(way, "deep")) return deep(0);
    if (!strcmp(way, "exit")) syscall(SYS_exit, 7);
    if (!strcmp(way, "exec")) {
        execl("/nonexistent/program", "program", (char *)0);
        raise(SIGKILL);
    }
    if (!strcmp(way, "stop")) {
        // Ends when somebody has removed a file.
        while (!access(argv[2], F_OK)) usleep(1000);
    }
    return 3;
}
