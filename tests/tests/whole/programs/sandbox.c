/* A process that forbids itself system calls: `sandbox WAY` itself, `sandbox WAY child` in a forked child. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/audit.h>
#define ALLOW(n) BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, n, 0, 1), BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW)
/* Installs a filter: 0 and 2 forbid nearly everything, 1 forbids one call, 3 is the strict mode. */
static void shut(int way) {
    struct sock_filter tight[] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_KILL_PROCESS) };
    struct sock_filter loose[] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_ptrace, 0, 1), BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog p = { sizeof tight / sizeof *tight, tight };
    if (way == 1) { p.len = sizeof loose / sizeof *loose; p.filter = loose; }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int r = way == 2 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) : way == 3 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
        : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p);
    if (r) _exit(9);
    write(1, "shut\n", 5);
}
__attribute__((noinline)) void loop_body(void) { __asm__ volatile(""); }

/* As libseccomp asks the kernel what it can do: with filters that are not there. */
static void probe(void) {
    struct sock_fprog far = {.len = 4, .filter = (struct sock_filter *)8};
    long found[] = {
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), errno,
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 2, (void *)8), errno,
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), errno,
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &far), errno};
    for (int i = 0; i < 8; i++)
        printf("%ld ", found[i]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int way = atoi(argv[1]);
    probe();
    for (int i = 0; i < 7; i++)
        loop_body();
    if (argc > 2) {
        pid_t child = fork();
        if (!child) { shut(way); if (way == 3) syscall(SYS_exit, 5); _exit(5); }
        int status; waitpid(child, &status, 0);
        printf("status %x\n", status);
        return 0;
    }
    shut(way);
    if (way == 3) syscall(SYS_exit, 5);
    _exit(5);
}
