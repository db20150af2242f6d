// Control that comes to instructions in ways that no edge shows, at places that are always the
// same: handlers of signals that a system call sends, which return or jump away, and calls back
// from a library.
// variants: gcc-O0 gcc-O1 gcc-O2 clang-O2
// stdout: sent 16 jumped 4 compared 336
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 12, SIZE = 4096 };
static volatile int sent, jumped, compared;
static volatile unsigned char *pages;
static unsigned sum;
static sigjmp_buf away;

/* Pages one after the other, so that what is used last counts. */
static void use(int first, int many)
{
    for (int i = first; i < first + many; i++)
        sum += pages[i % PAGES * SIZE + 64]++;
}

static void on_usr(int signal)
{
    (void)signal;
    sent++;
    use(sent + 5, 2);
}

static void on_away(int signal)
{
    jumped++;
    use(2, jumped);
    siglongjmp(away, signal);
}

static long pid;
/* In the middle of a block. What sum is then is not certain. */
#define SEND(signal)                                                                          \
    do {                                                                                      \
        long result;                                                                          \
        __asm__ volatile("syscall" : "=a"(result)                                             \
                         : "a"(SYS_kill), "D"(pid), "S"(signal) : "rcx", "r11", "memory");    \
        (void)result;                                                                         \
    } while (0)

__attribute__((noinline)) static void between(volatile unsigned char *a, volatile unsigned char *b)
{
    sum += a[0]++;
    sum += b[0]++;
    SEND(SIGUSR1);
    sum += a[8]++;
    SEND(SIGUSR1);
    sum += b[8]++;
    sum += a[16]++;
}

__attribute__((noinline)) static int leaving(int n)
{
    int code = sigsetjmp(away, 1);
    sum += pages[n * SIZE + 128]++;
    if (code)
        return code;
    sum += pages[(n + 1) * SIZE + 128]++;
    SEND(SIGUSR2);
    return sum += pages[(n + 2) * SIZE + 128]++;
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    compared++;
    sum += pages[(x + y) % PAGES * SIZE + 512]++;
    return (x > y) - (x < y);
}

int main(void)
{
    pid = getpid();
    pages = mmap(0, PAGES * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, on_usr);
    signal(SIGUSR2, on_away);
    for (int i = 0; i < 8; i++) {
        between(pages + i * SIZE, pages + (i + 3) % PAGES * SIZE);
        use(i, i);
    }
    for (int i = 0; i < 4; i++) {
        leaving(i);
        use(i, 5);
    }
    int list[16];
    for (int i = 0; i < 16; i++)
        list[i] = i * 7 % 16;
    for (int i = 0; i < 10; i++) {
        list[i % 16] ^= 1;
        qsort(list, 16, sizeof *list, compare);
    }
    printf("sent %d jumped %d compared %d\n", sent, jumped, compared);
    return 0;
}
