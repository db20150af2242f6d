/* Forks without exec: what runs before the fork, in the child and in the parent. */
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile int calls;

NOINLINE void before(void) {
    calls += 1;
}

NOINLINE void child(void) {
    calls += 2;
}

NOINLINE void parent(void) {
    calls += 3;
}

NOINLINE void never(void) {
    calls += 4;
}

int main(int argc, char **argv) {
    (void)argv;
    before();
    pid_t pid = fork();
    if (pid == 0) {
        child();
        child();
        return 0;
    }
    waitpid(pid, 0, 0);
    parent();
    if (argc > 5)
        never();
    return 0;
}
