// Executes programs in the way that its first argument names. The working folder has `callee`, and files
// that cannot be executed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *const PLAIN[] = {"A=1", "ODD", "A=2", "=x", 0};

static char **words(char *first, char *second)
{
    char **all = calloc(3, sizeof *all);
    all[0] = first;
    all[1] = second;
    return all;
}

static void say_end(int pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    printf("status %x\n", status);
    fflush(stdout);
}

static void handle(int signal) { (void)signal; }

static void fails(const char *what, const char *path, char **argv, char **envp)
{
    errno = 0;
    int answer = execve(path, argv, envp);
    printf("%s: %d, error %d\n", what, answer, errno);
    fflush(stdout);
}

static void errors(void)
{
    char *long_path = malloc(5000), *huge = malloc(200000);
    memset(long_path, 'x', 4999);
    memset(huge, 'y', 199999);
    long_path[4999] = huge[199999] = 0;
    char **plain = words("callee", 0);
    fails("no file", "./no-such-file", plain, environ);
    fails("no folder", "./no-such-folder/x", plain, environ);
    fails("file as folder", "./callee/x", plain, environ);
    fails("folder", ".", plain, environ);
    fails("not executable", "./not-executable", plain, environ);
    fails("text", "./text", plain, environ);
    fails("empty", "./empty", plain, environ);
    fails("cut", "./cut", plain, environ);
    fails("no interpreter", "./no-interpreter", plain, environ);
    fails("no loader", "./no-loader", plain, environ);
    fails("circle", "./circle", plain, environ);
    fails("scripts in a circle", "./script-circle", plain, environ);
    fails("long path", long_path, plain, environ);
    fails("huge argument", "./callee", words("callee", huge), environ);
    fails("bad path", (char *)8, plain, environ);
    fails("bad arguments", "./callee", (char **)8, environ);
    fails("bad argument", "./callee", words("callee", (char *)8), environ);
    fails("bad environment", "./callee", plain, (char **)8);
    fails("no path", "", plain, environ);
    int busy = open("./busy", O_WRONLY);
    fails("busy", "./busy", plain, environ);
    close(busy);
    errno = 0;
    int answer = execvp("no-such-command", plain);
    printf("by name: %d, error %d\n", answer, errno);
    pid_t pid;
    printf("spawn: %d\n", posix_spawn(&pid, "./no-such-file", 0, 0, plain, environ));
}

static void many(void)
{
    char **argv = calloc(4002, sizeof *argv), **envp = calloc(1002, sizeof *envp);
    argv[0] = "many";
    for (int i = 1; i < 4000; i++)
        asprintf(&argv[i], "argument-%d-%0*d", i, 20 + i % 40, i);
    for (int i = 0; i < 1000; i++)
        asprintf(&envp[i], "VARIABLE_%d=%0*d", i, i % 90, i);
    for (int i = 0; i < 3; i++) {
        pid_t pid;
        if (posix_spawn(&pid, "./callee", 0, 0, argv, envp) == 0)
            say_end(pid);
    }
    execve("./callee", argv, envp);
}

static void surroundings(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGUSR2, handle);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_SETMASK, &mask, 0);
    umask(0027);
    setpriority(PRIO_PROCESS, 0, 5);
    struct rlimit limit = {500, 600};
    setrlimit(RLIMIT_NOFILE, &limit);
    struct itimerval timer = {{0, 0}, {1000, 0}};
    setitimer(ITIMER_REAL, &timer, 0);
    open("callee", O_RDONLY);
    open("callee", O_RDONLY | O_CLOEXEC);
    dup2(1, 40);
    chdir("folder");
    execve("../callee", words("any name", "fail"), PLAIN);
}

static void *executes(void *path)
{
    execl(path, "from a thread", (char *)0);
    return 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    volatile int failure = 0;
    pid_t pid;
    if (!strcmp(way, "errors")) {
        errors();
    } else if (!strcmp(way, "spawn")) {
        for (int i = 0; i < 3; i++)
            if (posix_spawnp(&pid, "./callee", 0, 0, words("spawned", "fail"), PLAIN) == 0)
                say_end(pid);
    } else if (!strcmp(way, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            execve("./no-such-file", words("x", 0), environ);
            failure = errno;
            execve("./not-executable", words("x", 0), environ);
            failure = failure * 1000 + errno;
            execve("./callee", words("after vfork", 0), PLAIN);
            _exit(99);
        }
        say_end(pid);
        printf("failure %d\n", failure);
    } else if (!strcmp(way, "fork")) {
        pid = fork();
        if (pid == 0) {
            execl("./callee", "after fork", "fail", (char *)0);
            _exit(99);
        }
        say_end(pid);
    } else if (!strcmp(way, "traced")) {
        // As a debugger starts a program: its child stops at the first instruction, and nowhere else.
        int status, stops = 0;
        pid = fork();
        if (pid == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            execl("./callee", "traced", (char *)0);
            _exit(99);
        }
        while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
            printf("stop %d by %d\n", ++stops, WSTOPSIG(status));
            ptrace(PTRACE_CONT, pid, 0, 0);
        }
        printf("status %x\n", status);
    } else if (!strcmp(way, "scripts")) {
        for (int i = 0; i < 2; i++) {
            char *script = i ? "./script-in-script" : "./script";
            if (posix_spawn(&pid, script, 0, 0, words("zero", "one"), PLAIN) == 0)
                say_end(pid);
        }
    } else if (!strcmp(way, "closed")) {
        dup2(1, 20);
        close(0), close(1), close(2);
        execve("./callee", words("closed", 0), (char *[]){"CALLEE_TO=20", 0});
    } else if (!strcmp(way, "no-environment")) {
        execve("./callee", words("bare", 0), 0);
    } else if (!strcmp(way, "no-arguments")) {
        execve("./callee", 0, PLAIN);
    } else if (!strcmp(way, "many")) {
        many();
    } else if (!strcmp(way, "surroundings")) {
        surroundings();
    } else if (!strcmp(way, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, executes, "./callee");
        pthread_join(thread, 0);
    } else if (!strcmp(way, "descriptor")) {
        fexecve(open("./callee", O_RDONLY | O_CLOEXEC), words("by descriptor", 0), PLAIN);
    } else if (!strcmp(way, "at-folder")) {
        syscall(SYS_execveat, AT_FDCWD, "./callee", words("at folder", 0), PLAIN, 0);
    } else if (!strcmp(way, "itself")) {
        if (argc == 2)
            execl("/proc/self/exe", "again", "itself", "twice", (char *)0);
        printf("again as %s with %d\n", argv[0], argc);
    } else if (!strcmp(way, "chain")) {
        // A process that executes the same program again and again.
        int left = argc > 2 ? atoi(argv[2]) : 3;
        char text[12];
        sprintf(text, "%d", left - 1);
        printf("%d left\n", left);
        fflush(stdout);
        if (left)
            execl(argv[0], argv[0], "chain", text, (char *)0);
    } else {
        execv(argv[1], argv + 1);
        perror(argv[1]);
    }
    fflush(stdout);
    return 3;
}
