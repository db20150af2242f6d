// The ways to end: by argument. Each passes through handlers as C says.
// variants: gcc-O0 gcc-O2-static gcc-O2 clang-O2-strip
// run: return -> exit 7 stdout body atexit2 atexit1 destructor
// run: exit -> exit 8 stdout body atexit2 atexit1 destructor
// run: _exit -> exit 9 stdout body
// run: quick -> exit 10 stdout body quick
// run: abort -> signal 6 stdout body
// run: kill -> signal 15 stdout body
// run: fault -> signal 11 stdout body
// run: trap -> signal 4 stdout body
// run: thread -> exit 0 stdout body thread atexit2 atexit1 destructor
// cflags: -pthread
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void say(const char *s) { if (write(1, s, strlen(s)) < 0) _exit(99); if (write(1, "\n", 1) < 0) _exit(99); }
static void one(void) { say("atexit1"); }
static void two(void) { say("atexit2"); }
static void quick(void) { say("quick"); }
static __attribute__((destructor)) void last(void) { say("destructor"); }
static void *later(void *p) { pthread_join(*(pthread_t *)p, NULL); say("thread"); return NULL; }
static pthread_t first;
int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    atexit(one);
    atexit(two);
    at_quick_exit(quick);
    say("body");
    if (!strcmp(how, "exit")) exit(8);
    if (!strcmp(how, "_exit")) _exit(9);
    if (!strcmp(how, "quick")) quick_exit(10);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) { kill(getpid(), SIGTERM); pause(); }
    if (!strcmp(how, "fault")) *(volatile int *)16 = 1;
    if (!strcmp(how, "trap")) __builtin_trap();
    if (!strcmp(how, "thread")) {
        pthread_t t;
        first = pthread_self();
        pthread_create(&t, NULL, later, &first);
        pthread_exit(NULL);
    }
    return 7;
}
