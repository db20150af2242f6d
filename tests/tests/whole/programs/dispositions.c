// Prints what it can see of its signal dispositions, and of a child's.
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void handler(int signal) { (void)signal; }

static void show(const char *when)
{
    printf("%s:", when);
    for (int i = 1; i <= 64; i++) {
        struct sigaction now;
        memset(&now, 0x55, sizeof now);
        if (sigaction(i, NULL, &now)) {
            printf(" %d:%d", i, errno);
            continue;
        }
        if (now.sa_handler == SIG_DFL && now.sa_flags == 0 && sigisemptyset(&now.sa_mask))
            continue;
        const char *name = now.sa_handler == SIG_DFL ? "default"
            : now.sa_handler == SIG_IGN              ? "ignored"
            : now.sa_handler == handler              ? "own"
                                                     : "other";
        printf(" %d=%s/%x/", i, name, now.sa_flags);
        for (int j = 1; j <= 64; j++)
            if (sigismember(&now.sa_mask, j) > 0)
                printf("%d,", j);
    }
    puts("");
    fflush(stdout);
}

static void status(const char *key)
{
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            printf("%s", line);
    fclose(file);
    fflush(stdout);
}

static void spawn(char **argv, posix_spawnattr_t *attributes)
{
    char *words[] = {argv[0], "child", NULL};
    pid_t child;
    int result = 0;
    fflush(stdout);
    if (posix_spawn(&child, argv[0], NULL, attributes, words, environ))
        puts("no child");
    else
        waitpid(child, &result, 0);
    printf("child %x\n", result);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "child")) {
        show("child");
        status("SigIgn");
        return 0;
    }
    if (!strcmp(what, "start")) {
        show("start");
        status("SigIgn");
        return 0;
    }
    show("start");
    printf("%d\n", signal(SIGTERM, handler) == SIG_DFL);
    printf("%d\n", signal(SIGTERM, SIG_IGN) == handler);
    printf("%d\n", signal(SIGTERM, SIG_DFL) == SIG_IGN);
    printf("%d\n", signal(SIGTERM, SIG_DFL) == SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER};
    struct sigaction old;
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, NULL);
    // A default action has flags and a mask, too.
    action.sa_handler = SIG_DFL;
    sigaction(SIGINT, &action, NULL);
    show("changed");
    memset(&old, 1, sizeof old);
    printf("%d\n", sigaction(SIGINT, &action, &old));
    printf("%d %x\n", old.sa_handler == SIG_DFL, old.sa_flags);
    action.sa_flags = SA_RESETHAND;
    action.sa_handler = handler;
    sigaction(SIGQUIT, &action, NULL);
    raise(SIGQUIT);
    show("reset");
    // Mistakes.
    printf("%ld %d\n", syscall(SYS_rt_sigaction, SIGTERM, (void *)1, NULL, 8), errno);
    printf("%ld %d\n", syscall(SYS_rt_sigaction, SIGTERM, NULL, (void *)1, 8), errno);
    printf("%ld %d\n", syscall(SYS_rt_sigaction, SIGTERM, NULL, NULL, 4), errno);
    printf("%ld %d\n", syscall(SYS_rt_sigaction, SIGKILL, &action, NULL, 8), errno);
    printf("%ld\n", syscall(SYS_rt_sigaction, SIGTERM, NULL, "constant text that is read-only", 8));
    // The old action may lie where the new one is.
    long words[4] = {(long)handler, 0x04000000, 0, 0};
    printf("%ld\n", syscall(SYS_rt_sigaction, SIGUSR2, words, words, 8));
    printf("%d\n", words[0] == (long)SIG_DFL);
    show("own");
    spawn(argv, NULL);
    posix_spawnattr_t attributes;
    sigset_t set;
    sigfillset(&set);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &set);
    spawn(argv, &attributes);
    show("after");
    if (!fork()) {
        show("fork");
        _exit(0);
    }
    wait(NULL);
    printf("%d\n", WIFSIGNALED(system("kill -TERM $$")));
    show("end");
    return 0;
}
