// Makes its surroundings hard for whoever writes a file when it ends, and does some work.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }
static volatile sig_atomic_t signals;
static void on_signal(int s) { signals += s; }
int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    printf("%s\n", how);
    fflush(stdout);
    if (!strcmp(how, "close"))
        for (int i = 0; i < 5000; i++) close(i);
    else if (!strcmp(how, "close_range"))
        close_range(0, ~0U, 0);
    else if (!strcmp(how, "chroot") && (mkdir("empty", 0700) || chroot("empty") || chdir("/")))
        return 90;
    else if (!strcmp(how, "chdir") && chdir("/proc/self"))
        return 91;
    else if (!strcmp(how, "no descriptors")) {
        struct rlimit r = { 3, 3 };
        setrlimit(RLIMIT_NOFILE, &r);
    } else if (!strncmp(how, "file size", 9)) {
        struct rlimit r = { 0, 0 };
        setrlimit(RLIMIT_FSIZE, &r);
        if (!strcmp(how, "file size caught")) signal(SIGXFSZ, on_signal);
    } else if (!strcmp(how, "own")) {
        /* The file gets a number that what is written meanwhile had before. */
        for (int i = 0; i < 1000000; i++) work();
        close_range(0, ~0U, 0);
        FILE *own = fopen("own", "w");
        for (int i = 1; i < 20; i++) dup2(0, i);
        for (int i = 0; i < 1000000; i++) work();
        fputs("the program's", own);
        fclose(own);
    } else if (!strcmp(how, "wait"))
        getchar();
    else if (!strcmp(how, "umask"))
        umask(0777);
    else if (!strcmp(how, "blocked")) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
    }
    for (int i = 0; i < 1000; i++) work();
    return signals ? 92 : 17;
}
