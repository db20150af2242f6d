// References that fault at the end of the address space, and instructions whose number of repetitions
// (rcx = 2^64 - 1, as of a memset with a negative size) leaves the mapped memory. The program recovers from each fault.
// variants: gcc-O1 gcc-O2 gcc-O2-static clang-O2
// counts: no
// stdout: faults 22 left fffffffffffd27f4 at 4bff8
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, PAGES = 10, WAYS = 11 };
static sigjmp_buf back;
static char *memory;
static volatile uint64_t left, at;
static volatile uint64_t most = -1;

static void on_fault(int number, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    left = user->uc_mcontext.gregs[REG_RCX];
    at = user->uc_mcontext.gregs[REG_RDI] - (uint64_t)memory;
    siglongjmp(back, 1);
}

static void refer(int way)
{
    uint64_t count = most;
    char *to = memory + PAGE, *from = memory + 2 * PAGE;
    switch (way) {
    case 0: (void)*(volatile char *)-1; break;
    case 1: *(volatile uint64_t *)-8 = 1; break;
    case 2: __asm__ volatile("movdqu -9, %%xmm0" ::: "xmm0"); break;
    case 3: __asm__ volatile("lock incl -4" ::: "memory", "cc"); break;
    case 4: __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory"); break;
    case 5: __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) :: "memory"); break;
    case 6: __asm__ volatile("std; rep stosl; cld" : "+D"(to), "+c"(count) : "a"(0) : "memory"); break;
    case 7: __asm__ volatile("repe cmpsb" : "+D"(to), "+S"(from), "+c"(count) :: "memory", "cc"); break;
    case 8: __asm__ volatile("repne scasw" : "+D"(to), "+c"(count) : "a"(1) : "cc"); break;
    case 9: __asm__ volatile("rep lodsb" : "+S"(to), "+c"(count) :: "rax", "memory"); break;
    case 10: memset(to, 0, count); break;
    }
}

int main(void)
{
    /* Nothing is mapped directly below and above. */
    memory = mmap(0, (PAGES + 2) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory, PAGE);
    memory += PAGE;
    munmap(memory + PAGES * PAGE, PAGE);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    volatile int faults = 0;
    volatile uint64_t all_left = 0, all_at = 0;
    for (volatile int way = 0; way < WAYS; way++)
        for (volatile int again = 0; again < 2; again++) {
            if (sigsetjmp(back, 1) == 0) {
                refer(way);
                continue;
            }
            faults++;
            if (4 <= way && way <= 8) {
                all_left += left;
                all_at += at;
            }
        }
    printf("faults %d left %lx at %lx\n", faults, (long)all_left, (long)all_at);
    return 0;
}
