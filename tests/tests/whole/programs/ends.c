// Ends in the way that its argument names.
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int zero;

static void *raises(void *what)
{
    if (what)
        abort();
    pthread_kill(pthread_self(), SIGTERM);
    return NULL;
}

static void handler(int signal)
{
    (void)!write(1, "handler\n", 8);
}

static int deep(volatile char *before)
{
    volatile char room[4096];
    room[0] = 1;
    return deep(room) + room[0] + before[0];
}

int main(int argc, char **argv)
{
    const char *way = argv[1];
    pthread_t thread;
    alarm(20);
#define WAY(name) if (!strcmp(way, name))
    WAY("abort") abort();
    WAY("null") *(volatile int *)(long)zero = 1;
    WAY("jump") ((void (*)(void))(long)zero)();
    WAY("term") kill(getpid(), SIGTERM);
    WAY("int") raise(SIGINT);
    WAY("hup") raise(SIGHUP);
    WAY("usr1") raise(SIGUSR1);
    WAY("kill") raise(SIGKILL);
    WAY("rt") raise(SIGRTMIN + 3);
    WAY("exit") _exit(7);
    WAY("quick") quick_exit(8);
    WAY("assert") assert(zero);
    WAY("alarm") { alarm(1); for (;;) pause(); }
    WAY("pipe") {
        int ends[2];
        if (pipe(ends)) return 1;
        close(ends[0]);
        (void)!write(ends[1], "x", 1);
    }
    WAY("divide") return argc / zero;
    WAY("trap") __builtin_trap();
    WAY("int3") __asm__ volatile("int3");
    WAY("bus") {
        int file = open("/proc/self/exe", O_RDONLY);
        char *map = mmap(NULL, 1 << 28, PROT_READ, MAP_PRIVATE, file, 0);
        return map[(1 << 28) - 1];
    }
    WAY("thread-abort") pthread_create(&thread, NULL, raises, argv), pause();
    WAY("thread-term") pthread_create(&thread, NULL, raises, NULL), pause();
    WAY("blocked") {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        abort();
    }
    WAY("blocked-null") {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        *(volatile int *)(long)zero = 1;
    }
    WAY("reset") {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESETHAND};
        sigaction(SIGTERM, &action, NULL);
        raise(SIGTERM);
        puts("once");
        fflush(stdout);
        raise(SIGTERM);
    }
    WAY("again") {
        signal(SIGSEGV, handler);
        signal(SIGSEGV, SIG_DFL);
        *(volatile int *)(long)zero = 1;
    }
    WAY("handled-abort") { signal(SIGABRT, handler); abort(); }
    WAY("ignored-null") { signal(SIGSEGV, SIG_IGN); *(volatile int *)(long)zero = 1; }
    WAY("overflow") return deep(argv[1]);
    WAY("altstack") {
        static char space[1 << 16];
        stack_t stack = {.ss_sp = space, .ss_size = sizeof space};
        struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_ONSTACK};
        sigaltstack(&stack, NULL);
        sigaction(SIGSEGV, &action, NULL);
        return deep(argv[1]);
    }
    WAY("cpu") {
        struct rlimit limit = {1, 1000};
        setrlimit(RLIMIT_CPU, &limit);
        for (;;) zero = 0;
    }
    WAY("sys") syscall(SYS_kill, getpid(), SIGSYS);
    WAY("prof") raise(SIGPROF);
    WAY("poll") raise(SIGPOLL);
    WAY("queue") sigqueue(getpid(), SIGQUIT, (union sigval){.sival_int = 5});
    WAY("return") return 9;
    return 99;
}
