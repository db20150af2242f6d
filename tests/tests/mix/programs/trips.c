/* Loops whose trip counts follow from the source. Each `do` is a loop whose header runs once for each iteration. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP() __asm__ volatile("" ::: "memory")

NOINLINE void p_plain(int n) {
    do {
        KEEP();
    } while (--n);
}

/* A call of depth d runs d + 1 iterations, and calls itself in each with a depth less by one. */
NOINLINE void p_tree(int depth) {
    int i = 0;
    do {
        if (depth)
            p_tree(depth - 1);
        KEEP();
    } while (++i <= depth);
}

/* Leaves by a return in the middle, in the iteration `at`. */
NOINLINE int p_middle(int n, int at) {
    int i = 0;
    do {
        if (++i == at)
            return i;
        KEEP();
    } while (i < n);
    KEEP();
    return -i;
}

static jmp_buf place;

NOINLINE void p_throw(void) {
    longjmp(place, 1);
}

/* Leaves by longjmp, in the iteration `at`. */
NOINLINE void p_jump(int n, int at) {
    do {
        if (--at == 0)
            p_throw();
        KEEP();
    } while (--n);
}

/* Raises a signal in the iteration `at`; the handler runs the same loop. */
NOINLINE void p_signal(int n, int at) {
    do {
        if (--at == 0)
            raise(SIGUSR1);
        KEEP();
    } while (--n);
}

static void handler(int number) {
    (void)number;
    p_signal(3, 0);
    p_plain(2);
}

/* The child goes on with the loop. */
NOINLINE pid_t p_fork(int n, int at) {
    pid_t child = -1;
    do {
        if (--at == 0)
            child = fork();
        KEEP();
    } while (--n);
    return child;
}

/* rsp is lower in each iteration. */
NOINLINE void p_alloca(int n) {
    char *last = 0;
    do {
        char *more = alloca(32 + n);
        memcpy(more, &last, sizeof last);
        last = more;
        __asm__ volatile("" ::"r"(more) : "memory");
    } while (--n);
}

/* Inner loops of 1, 2, 3 and so on iterations. */
NOINLINE void p_nest(int n) {
    int i = 0;
    do {
        int j = 0;
        do {
            KEEP();
        } while (j++ < i);
    } while (++i < n);
}

static void *thread(void *n) {
    p_plain((int)(long)n);
    p_tree(3);
    return 0;
}

int main(int argc, char **argv) {
    p_plain(1);
    p_plain(100);
    p_plain(127);
    p_plain(128);
    p_tree(6);
    p_middle(10, 20);
    p_middle(10, 4);
    if (!setjmp(place))
        p_jump(50, 5);
    signal(SIGUSR1, handler);
    p_signal(40, 20);
    p_alloca(9);
    p_nest(5);
    if (argc > 1 && !strcmp(argv[1], "steps"))
        return 0;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], 0, thread, (void *)(500 + 600 * i));
        pthread_join(threads[i], 0);
    }
    pid_t child = p_fork(30, 10);
    if (child == 0) {
        p_plain(9);
        return 0;
    }
    waitpid(child, 0, 0);
    p_plain(10);
    return 0;
}
