// Says everything that a program can see of how it was executed. The first argument is the number of the
// descriptor to which it writes; a name that begins with `w` asks for that, too.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;

static void say_words(const char *title, char **words)
{
    unsigned sum = 0;
    int count = 0;
    for (; words && words[count]; count++)
        for (char *c = words[count]; *c; c++)
            sum = sum * 31 + (unsigned char)*c;
    printf("%s %d, sum %u\n", title, count, sum);
    for (int i = 0; i < count && i < 12; i++)
        printf("  %.60s\n", words[i]);
}

int main(int argc, char **argv)
{
    const char *to = getenv("CALLEE_TO");
    if (to)
        dup2(atoi(to), 1);
    say_words("arguments", argv);
    say_words("environment", environ);
    printf("argc %d\n", argc);
    for (int fd = 0; fd < 64; fd++)
        if (!(fd == 1 && to) && fcntl(fd, F_GETFD) >= 0)
            printf("descriptor %d, flags %x\n", fd, fcntl(fd, F_GETFD));
    sigset_t mask;
    sigprocmask(SIG_BLOCK, 0, &mask);
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action;
        if (sigismember(&mask, signal) == 1)
            printf("blocked %d\n", signal);
        if (sigaction(signal, 0, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d %s\n", signal, action.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    char text[4096];
    printf("folder %s\n", getcwd(text, sizeof text) ? text : "none");
    mode_t mode = umask(0);
    printf("umask %o, nice %d\n", mode, getpriority(PRIO_PROCESS, 0));
    struct rlimit limit;
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (getrlimit(i, &limit) == 0)
            printf("limit %d: %lx %lx\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
    printf("named %s\n", (char *)getauxval(AT_EXECFN));
    ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
    printf("file %.*s\n", (int)length, text);
    prctl(PR_GET_NAME, text);
    printf("command %s\n", text);
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    printf("timer %d\n", timer.it_value.tv_sec != 0);
    fflush(stdout);
    return argc > 1 && !strcmp(argv[argc - 1], "fail") ? 7 : 0;
}
