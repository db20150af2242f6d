// fork, vfork and exec, posix_spawn, a clone with its own stack; children that
// end by return, exit and _exit; output buffered before a fork.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie-strip
// counts: no
// stdout: child exit 4
// stdout: spawned
// stdout: executed
// stdout: statuses 3 4 5 6 0 0 9
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static int in_clone(void *p) { *(int *)p = 9; return 6; }
static int wait_for(pid_t p) { int s = 0; waitpid(p, &s, 0); return WIFEXITED(s) ? WEXITSTATUS(s) : 100 + WTERMSIG(s); }
int main(void)
{
    int st[7] = { 0 };
    pid_t p = fork();
    if (p == 0) _exit(3);
    st[0] = wait_for(p);
    p = fork();
    if (p == 0) { printf("child exit 4\n"); exit(4); }
    st[1] = wait_for(p);
    p = fork();
    if (p == 0) return 5;
    st[2] = wait_for(p);
    static char stack[65536] __attribute__((aligned(16)));
    int shared = 0;
    p = clone(in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, &shared);
    st[3] = wait_for(p);
    st[6] = shared;
    char *args[] = { "echo", "spawned", NULL };
    if (posix_spawnp(&p, "echo", NULL, NULL, args, environ)) return 8;
    st[4] = wait_for(p);
    p = vfork();
    if (p == 0) { execlp("echo", "echo", "executed", (char *)NULL); _exit(1); }
    st[5] = wait_for(p);
    printf("statuses %d %d %d %d %d %d %d\n", st[0], st[1], st[2], st[3], st[4], st[5], st[6]);
    return 0;
}
