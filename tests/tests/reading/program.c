/* Calls `look` with addresses of which some cannot be read, and prints how many bytes there are and their sum. The arguments
 * say what the process forbids itself: k kills at process_vm_readv, e answers an error. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

__attribute__((noipa)) void look(const void *address, long size) {}

static void expect(const void *address, long size, long there) {
    long sum = 0;
    for (long i = 0; i < there; i++)
        sum += ((const unsigned char *)address)[i];
    printf("%ld %ld\n", there, sum);
    fflush(stdout);
    errno = 77;
    look(address, size);
    if (errno != 77)
        printf("errno is %d\n", errno);
}

static char *pages;

static void *all(void *unused) {
    expect(NULL, 8, 0);
    expect((void *)8, 8, 0);
    expect((void *)-8, 8, 0);
    expect((void *)(1UL << 63), 8, 0);
    expect(pages, 100, 100);
    expect(pages + PAGE - 50, 100, 100);
    expect(pages + 2 * PAGE - 5, 100, 5);
    expect(pages + 2 * PAGE, 100, 0);
    /* Pages that must not be read, and those after the end of their file. */
    expect(pages + 3 * PAGE, 8, 0);
    expect(pages + 5 * PAGE - 6, 100, 6);
    expect((void *)look, 4, 4);
    expect("a string", 9, 9);
    return unused;
}

static void forbid(unsigned what) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, what),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}

int main(int argc, char **argv) {
    pages = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2 * PAGE; i++)
        pages[i] = (char)(i * 7);
    munmap(pages + 2 * PAGE, PAGE);
    mprotect(pages + 3 * PAGE, PAGE, PROT_NONE);
    int file = memfd_create("file", 0);
    if (ftruncate(file, PAGE))
        abort();
    mmap(pages + 4 * PAGE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
    if (argc > 1)
        forbid(*argv[1] == 'k' ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EACCES);
    all(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, all, NULL);
    pthread_join(thread, NULL);
    if (fork() == 0)
        return all(NULL) != NULL;
    wait(NULL);
    return 0;
}
