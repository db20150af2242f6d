// Threads, children and programs that it executes; each runs `loop` of the library a known number of times.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
long loop(long n);
int value(int n);

static void *work(void *n)
{
    return (void *)(loop((long)n) + value(1));
}

static int cloned(void *n)
{
    loop((long)n);
    return 5;
}

static void ended(const char *what, pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s %x\n", what, status);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    pthread_t threads[8];
    fflush(stdout);
    if (!strcmp(what, "threads")) {
        for (long i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, work, (void *)(1000 + i));
        long sum = 0;
        for (int i = 0; i < 8; i++) {
            void *result;
            pthread_join(threads[i], &result);
            sum += (long)result;
        }
        printf("%ld\n", sum);
    } else if (!strcmp(what, "detached")) {
        // They still run when the process ends.
        loop(500);
        for (long i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, (void *(*)(void *))pause, NULL);
        usleep(20000);
    } else if (!strcmp(what, "main-ends")) {
        loop(7);
        pthread_create(&threads[0], NULL, work, (void *)100);
        pthread_exit(NULL);
    } else if (!strcmp(what, "fork")) {
        loop(10);
        pid_t child = fork();
        if (!child) {
            loop(20);
            fflush(stdout);
            _exit(3);
        }
        ended("fork", child);
        loop(30);
    } else if (!strcmp(what, "fork-killed")) {
        pid_t child = fork();
        if (!child) {
            loop(20);
            abort();
        }
        ended("fork", child);
    } else if (!strcmp(what, "vfork")) {
        loop(10);
        pid_t child = vfork();
        if (!child) {
            loop(5);
            _exit(4);
        }
        ended("vfork", child);
        child = vfork();
        if (!child) {
            execl("/bin/echo", "echo", "executed", NULL);
            _exit(1);
        }
        ended("vfork", child);
        child = vfork();
        if (!child) {
            execl("/none", "none", NULL);
            _exit(6);
        }
        ended("vfork", child);
        loop(1);
    } else if (!strcmp(what, "spawn")) {
        char *words[] = {"echo", "spawned", NULL};
        pid_t child;
        loop(10);
        printf("%d\n", posix_spawn(&child, "/bin/echo", NULL, NULL, words, environ));
        ended("spawn", child);
        printf("%d\n", posix_spawn(&child, "/none", NULL, NULL, words, environ));
        printf("%d\n", posix_spawnp(&child, "echo", NULL, NULL, words, environ));
        ended("spawn", child);
        printf("%d\n", system("echo by a shell"));
        FILE *pipe = popen("echo by a pipe", "r");
        char line[100];
        printf("%s", fgets(line, sizeof line, pipe));
        printf("%d\n", pclose(pipe));
        loop(2);
    } else if (!strcmp(what, "exec")) {
        loop(10);
        execl("/bin/echo", "echo", "executed", NULL);
    } else if (!strcmp(what, "exec-fails")) {
        loop(10);
        execl("/none", "none", NULL);
        loop(5);
    } else if (!strcmp(what, "exec-self")) {
        loop(10);
        if (argc > 2)
            return 0;
        fflush(stdout);
        execl("/proc/self/exe", "self", "exec-self", "again", NULL);
    } else if (!strcmp(what, "exec-thread")) {
        loop(10);
        pthread_create(&threads[0], NULL, (void *(*)(void *))pause, NULL);
        fflush(stdout);
        execl("/bin/echo", "echo", "executed", NULL);
    } else if (!strcmp(what, "clone")) {
        static char stack[1 << 16];
        loop(10);
        ended("clone", clone(cloned, stack + sizeof stack, SIGCHLD, (void *)20));
        ended("clone", clone(cloned, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)20));
    } else if (!strcmp(what, "fork-threads")) {
        for (long i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, work, (void *)100);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        pid_t child = fork();
        if (!child) {
            pthread_create(&threads[0], NULL, work, (void *)50);
            pthread_join(threads[0], NULL);
            exit(0);
        }
        ended("fork", child);
    }
    fflush(stdout);
    return 0;
}
