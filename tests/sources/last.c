// What is still done at each way to end is seen by the calls at the end: in handlers, in
// destructors, in other threads. Each way ends the process once.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie gcc-O2-static clang-O2 musl-O1-static
// cflags: -pthread
// counts: no
// run: return -> exit 7 stdout body handler2 handler1 destructor
// run: exit -> exit 8 stdout body handler2 handler1 destructor
// run: deep -> exit 8 stdout body handler2 handler1 destructor
// run: _exit -> exit 9 stdout body
// run: _Exit -> exit 9 stdout body
// run: syscall -> exit 15 stdout body
// run: quick -> exit 10 stdout body quick
// run: abort -> signal 6 stdout body
// run: thread -> exit 11 stdout body handler2 handler1 destructor
// run: alone -> exit 0 stdout body handler2 handler1 destructor
// run: signal -> exit 12 stdout body handler2 handler1 destructor
// run: handler -> exit 13 stdout body handler2
// run: destructor -> exit 14 stdout body handler2 handler1 destructor
// run: child -> exit 7 stdout body handler2 handler1 destructor handler2 handler1 destructor
// How often each procedure was entered; `quick` is not seen in dynamic programs.
// ends: return work 3 handler 2 destroy 1
// ends: exit work 3 handler 2 destroy 1
// ends: deep work 3 handler 2 destroy 1 deep 6
// ends: _exit work 3 handler 0 destroy 0
// ends: _Exit work 3 handler 0 destroy 0
// ends: syscall work 3 handler 0 destroy 0
// ends: quick work 3 handler 0 destroy 0
// ends: abort work 3 handler 0 destroy 0
// ends: thread work 4 handler 2 destroy 1
// ends: alone work 4 handler 2 destroy 1
// ends: signal work 4 handler 2 destroy 1
// ends: handler work 3 handler 1 destroy 0
// ends: destructor work 3 handler 2 destroy 1
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static const char *how = "return";
static volatile int done;

static int is(const char *word) { return !strcmp(how, word); }

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0 || write(1, "\n", 1) < 0)
        _exit(99);
}

NOINLINE void work(void) { ++done; }

NOINLINE void handler(int n)
{
    say(n == 1 ? "handler1" : "handler2");
    if (is("handler"))
        _exit(13);
}

static void first(void) { handler(1); }
static void second(void) { handler(2); }

NOINLINE void quick(void) { say("quick"); }

__attribute__((destructor)) NOINLINE void destroy(void)
{
    say("destructor");
    if (is("destructor"))
        _exit(14);
}

NOINLINE int deep(int n)
{
    if (n == 0)
        exit(8);
    return deep(n - 1) + done;
}

static void *exits(void *unused)
{
    work();
    exit(11);
    return unused;
}

static pthread_t main_thread;

static void *remains(void *unused)
{
    pthread_join(main_thread, NULL);
    work();
    return unused;
}

static void on_signal(int number)
{
    work();
    exit(number == SIGUSR1 ? 12 : 98);
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count > 1)
        how = words[1];
    say("body");
    atexit(first);
    atexit(second);
    at_quick_exit(quick);
    for (int i = 0; i < 3; ++i)
        work();
    if (is("exit"))
        exit(8);
    if (is("deep"))
        return deep(5);
    if (is("_exit"))
        _exit(9);
    if (is("_Exit"))
        _Exit(9);
    if (is("syscall"))
        syscall(SYS_exit_group, 15);
    if (is("quick"))
        quick_exit(10);
    if (is("abort"))
        abort();
    if (is("thread")) {
        pthread_create(&thread, NULL, exits, NULL);
        for (;;)
            pause();
    }
    if (is("alone")) {
        main_thread = pthread_self();
        pthread_create(&thread, NULL, remains, NULL);
        pthread_exit(NULL);
    }
    if (is("signal")) {
        signal(SIGUSR1, on_signal);
        raise(SIGUSR1);
    }
    if (is("child")) {
        pid_t child = fork();
        int status;
        if (child == 0)
            exit(5);
        waitpid(child, &status, 0);
    }
    return 7;
}
