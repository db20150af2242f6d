// Calls that do not come back, and code that nothing calls: exceptions, longjmp, coroutines, signal handlers, a fork.
// Each procedure allocates blocks of a size of its own.
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>

#define PROCEDURE __attribute__((noinline, noclone)) static
#define NO_TAIL_CALL asm volatile("")

static thread_local void *volatile block;
static jmp_buf back;
static sigjmp_buf signal_back;
static ucontext_t main_context, coroutine;

PROCEDURE void take(size_t size) {
    block = malloc(size);
    free(block);
    NO_TAIL_CALL;
}

PROCEDURE void w_after() { take(13); NO_TAIL_CALL; }

PROCEDURE void w_thrower(int more) {
    take(11);
    if (more == 0) throw 1;
    w_thrower(more - 1);
    NO_TAIL_CALL;
}

PROCEDURE void w_catcher() {
    try { w_thrower(5); } catch (int) { w_after(); }
    w_after();
    NO_TAIL_CALL;
}

PROCEDURE void w_jumper(int more) {
    take(17);
    if (more == 0) longjmp(back, 1);
    w_jumper(more - 1);
    NO_TAIL_CALL;
}

PROCEDURE void w_setter() {
    if (setjmp(back) == 0) w_jumper(4);
    w_after();
    NO_TAIL_CALL;
}

PROCEDURE void w_inner() { take(19); NO_TAIL_CALL; }

static void w_coroutine() {
    for (;;) {
        w_inner();
        swapcontext(&coroutine, &main_context);
    }
}

PROCEDURE void w_switcher() {
    static char stack[1 << 16];
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = sizeof stack;
    makecontext(&coroutine, w_coroutine, 0);
    for (int i = 0; i < 10; i++) {
        swapcontext(&main_context, &coroutine);
        w_after();
    }
    NO_TAIL_CALL;
}

static void w_handler(int) { take(23); NO_TAIL_CALL; }

static void w_leaver(int) {
    take(29);
    siglongjmp(signal_back, 1);
}

PROCEDURE void w_signals() {
    signal(SIGUSR1, w_handler);
    signal(SIGUSR2, w_leaver);
    for (int i = 0; i < 20; i++) raise(SIGUSR1);
    if (sigsetjmp(signal_back, 1) == 0) raise(SIGUSR2);
    w_after();
    NO_TAIL_CALL;
}

PROCEDURE void w_thread() {
    for (int i = 0; i < 1000; i++) w_catcher();
}

int main() {
    for (int i = 0; i < 100; i++) {
        w_catcher();
        w_setter();
    }
    w_switcher();
    w_signals();
    std::thread one(w_thread), other(w_thread);
    one.join();
    other.join();
    pid_t child = fork();
    if (child == 0) {
        w_setter();
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    return 0;
}
