/* Every misuse, one for each name. With a second argument there is no error
 * callback; else one prints the sort of each problem and its text, and the program goes on. */
#include "clock.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kinds[] = { "warning", "fatal", "non-fatal", "syntax", "io" };
static int handled;
static int with_handler = 1;

static void on_error(const arp_error_t kind, const char *text, void *context)
{
    *(int *)context += 1;
    printf("%s: %s\n", kinds[kind], text);
    fflush(stdout);
}

static void start(arp_mode mode)
{
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_start(4, 9, mode, with_handler ? on_error : 0, &handled, 0, 0, 0);
}

static void kernel(arp_tid tid, arp_sid sid)
{
    arp_enter_kernel(tid, sid, 0);
    ++ticks;
    arp_leave_kernel(tid, sid);
}

static jmp_buf back;

/* Enters sections and jumps out of them. */
__attribute__((noinline)) static void jump(int depth)
{
    volatile char room[200];
    memset((char *)room, depth, sizeof room);
    arp_enter(1, 5, 0);
    arp_enter_kernel(1, 1, 0);
    if (depth == 0)
        longjmp(back, 1);
    arp_leave_kernel(1, 1);
    arp_leave(1, 5);
}

static void reenter(const arp_sid sid, void *data, void *context)
{
    (void)data;
    (void)context;
    arp_enter(1, 7, 0);
    arp_leave(1, 7);
    (void)sid;
}

static int ready[2];

static void *wait_in_section(void *argument)
{
    arp_tid tid = (arp_tid)(size_t)argument;
    arp_enter(tid, 6, 0);
    kernel(tid, 1);
    arp_enter_kernel(tid, 2, 0);
    if (write(ready[1], "x", 1) != 1)
        abort();
    for (;;)
        pause();
    return 0;
}

static void *use_number(void *argument)
{
    kernel((arp_tid)(size_t)argument, 3);
    return 0;
}

static pthread_t begin(void *(*what)(void *), arp_tid tid)
{
    pthread_t thread;
    if (pthread_create(&thread, 0, what, (void *)(size_t)tid))
        abort();
    return thread;
}

static void wait_ready(void)
{
    char c;
    if (read(ready[0], &c, 1) != 1)
        abort();
}

static void recurse(int depth)
{
    arp_enter_profiled(1, 3, 0);
    ++ticks;
    if (depth > 0)
        recurse(depth - 1);
    arp_leave_profiled(1, 3);
}

/* A callback that waits for ever in one case. */
static void block_in_callback(const arp_sid sid, void *data, void *context)
{
    enter_clock(sid, data, context);
    if (sid == 2) {
        if (write(ready[1], "x", 1) != 1)
            abort();
        for (;;)
            pause();
    }
}

static pthread_t main_thread;

/* Works after the main thread has ended. */
static void *outlive(void *argument)
{
    arp_tid tid = (arp_tid)(size_t)argument;
    if (with_handler == 2)
        pthread_cancel(main_thread);
    pthread_join(main_thread, 0);
    kernel(tid, 3);
    arp_join(tid);
    return 0;
}

static int descend(int depth)
{
    int sum;
    arp_enter(1, 3, 0);
    sum = depth > 1 ? descend(depth - 1) + 1 : 0;
    arp_leave(1, 3);
    return sum;
}

static void nowhere(const char *what)
{
    int i;
    if (!strcmp(what, "leave-without-enter")) {
        arp_leave(1, 3);
    } else if (!strcmp(what, "wrong-nesting")) {
        arp_enter(1, 3, 0);
        arp_enter(1, 4, 0);
        arp_leave(1, 3);
        arp_leave(1, 4);
    } else if (!strcmp(what, "nested-kernels")) {
        arp_enter_kernel(1, 3, 0);
        arp_enter_kernel(1, 4, 0);
        kernel(1, 5);
        arp_leave_kernel(1, 4);
        arp_leave_kernel(1, 3);
    } else if (!strcmp(what, "recursion")) {
        arp_enter_profiled(1, 3, 0);
        arp_enter(1, 4, 0);
        arp_enter_profiled(1, 3, 0);
        arp_leave_profiled(1, 3);
        arp_leave(1, 4);
        arp_leave_profiled(1, 3);
    } else if (!strcmp(what, "other-kind")) {
        kernel(1, 3);
        arp_enter_profiled(1, 3, 0);
        arp_leave_profiled(1, 3);
        arp_enter(1, 4, 0);
        arp_leave_kernel(1, 4);
    } else if (!strcmp(what, "unknown-section")) {
        kernel(1, 10);
    } else if (!strcmp(what, "unknown-thread")) {
        kernel(5, 1);
        arp_spawned(1, 9);
        arp_join(9);
    } else if (!strcmp(what, "not-joined")) {
        arp_enter(1, 5, 0);
        arp_spawned(1, 2);
        pthread_join(begin(use_number, 2), 0);
        arp_leave(1, 5);
    } else if (!strcmp(what, "not-spawned")) {
        kernel(1, 1);
        pthread_join(begin(use_number, 2), 0);
    } else if (!strcmp(what, "shared")) {
        kernel(1, 1);
        pthread_join(begin(use_number, 1), 0);
    } else if (!strcmp(what, "spawned-twice")) {
        arp_spawned(1, 2);
        arp_spawned(1, 2);
        arp_join(2);
    } else if (!strcmp(what, "joined-twice")) {
        arp_spawned(1, 2);
        arp_join(2);
        arp_join(2);
        arp_join(3);
    } else if (!strcmp(what, "longjmp")) {
        arp_enter(1, 8, 0);
        for (i = 0; i < 3; ++i) {
            arp_enter(1, 7, 0);
            if (!setjmp(back))
                jump(i);
            arp_leave(1, 7);
        }
        arp_leave(1, 8);
    } else if (!strcmp(what, "longjmp-out")) {
        /* The sections of the outer function are left by the jump as well. */
        for (i = 0; i < 3; ++i) {
            if (!setjmp(back)) {
                arp_enter(1, 7, 0);
                jump(i);
                arp_leave(1, 7);
            }
        }
    } else if (!strcmp(what, "unwind")) {
        for (i = 0; i < 3; ++i) {
            volatile unsigned depth = arp_depth(1);
            if (!setjmp(back)) {
                arp_enter(1, 7, 0);
                jump(i);
                arp_leave(1, 7);
            } else {
                arp_unwind(1, depth);
            }
        }
    } else if (!strcmp(what, "cancel")) {
        pthread_t thread;
        arp_spawned(1, 2);
        thread = begin(wait_in_section, 2);
        wait_ready();
        pthread_cancel(thread);
        pthread_join(thread, 0);
        arp_join(2);
    } else if (!strcmp(what, "main-exits") || !strcmp(what, "main-cancelled")) {
        if (!strcmp(what, "main-cancelled"))
            with_handler = 2;
        kernel(1, 1);
        arp_enter(1, 5, 0);
        arp_spawned(1, 2);
        main_thread = pthread_self();
        begin(outlive, 2);
        if (with_handler == 2)
            for (;;)
                pause();
        pthread_exit(0);
    } else if (!strcmp(what, "running")) {
        arp_spawned(1, 2);
        begin(wait_in_section, 2);
        wait_ready();
    } else if (!strcmp(what, "start-twice")) {
        start(arp_record_all);
        arp_set_file_name("late.arp");
        arp_set_output_file_format(arp_binary);
    } else if (!strcmp(what, "deep")) {
        descend(5000);
    } else if (!strcmp(what, "fork")) {
        arp_enter(1, 3, 0);
        kernel(1, 1);
        if (fork() == 0) {
            kernel(1, 2);
            kernel(1, 1);
            arp_leave(1, 3);
            arp_finish();
            _exit(0);
        }
        wait(0);
        kernel(1, 1);
        arp_leave(1, 3);
    } else if (!strcmp(what, "no-finish")) {
        kernel(1, 1);
        exit(0);
    } else if (!strcmp(what, "killed")) {
        for (i = 0; i < 1000; ++i)
            kernel(1, 1);
        raise(SIGKILL);
    } else if (!strcmp(what, "recursive-function")) {
        recurse(3);
    } else if (strcmp(what, "finish-twice")) {
        abort();
    }
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    if (pipe(ready))
        abort();
    with_handler = argc < 3;
    if (!strcmp(what, "no-start")) {
        kernel(1, 1);
        return 0;
    }
    if (!strcmp(what, "no-callbacks")) {
        arp_start(1, 1, arp_record_all, with_handler ? on_error : 0, &handled, 0, 0, 0);
        return 0;
    }
    if (!strcmp(what, "null-callback")) {
        arp_add_callbacks(arp_int, 0, leave_clock, 0, 0, 0);
        return 0;
    }
    if (!strcmp(what, "no-such-mode")) {
        start((arp_mode)7);
        kernel(1, 1);
        arp_finish();
        return 0;
    }
    if (!strcmp(what, "no-such-folder")) {
        arp_set_file_name("no/such/folder/data.arp");
        start(arp_record_all);
        kernel(1, 1);
        arp_finish();
        return 0;
    }
    if (!strcmp(what, "nothing-to-play")) {
        start(arp_playback);
        return 0;
    }
    if (!strcmp(what, "reenter")) {
        arp_add_callbacks(arp_uint, reenter, leave_clock, 0, 0, 0);
        arp_start(1, 9, arp_record_all, with_handler ? on_error : 0, &handled, 0, 0, 0);
        kernel(1, 1);
        arp_finish();
        return 0;
    }
    if (!strcmp(what, "cancel-in-callback")) {
        arp_add_callbacks(arp_uint, block_in_callback, leave_clock, 0, 0, 0);
        arp_start(4, 9, arp_record_all, on_error, &handled, 0, 0, 0);
        what = "cancel";
    } else {
        start(arp_record_all);
    }
    nowhere(what);
    /* This is recorded in every case. */
    kernel(1, 9);
    arp_finish();
    if (!strcmp(what, "finish-twice"))
        arp_finish();
    return 0;
}
