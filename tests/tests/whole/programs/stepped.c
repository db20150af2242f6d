/* A program that single-steps itself: a handler writes down where it is before each instruction, and ends the steps at
   an address. The end is the target of a pointer, and starts a block; no block starts after the `popf`, see docs/limits.md. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

enum { TRAP_FLAG = 0x100, MOST = 1000 };
extern const char begin[], end[];
static volatile int steps, elsewhere, ended;

static void on_step(int signal, siginfo_t *information, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const char *address = (const char *)registers[REG_RIP];
    (void)signal, (void)information;
    if (++steps == MOST || address == end)
        registers[REG_EFL] &= ~TRAP_FLAG;
    ended += address == end;
    elsewhere += address < begin || address > end;
}

__attribute__((noinline)) static long run(long n)
{
    long sum = 0;
    __asm__ volatile("begin: pushfq\n\t"
                     "orq %2, (%%rsp)\n\t"
                     "popfq\n\t"
                     "xorl %k0, %k0\n"
                     "1: addq %1, %0\n\t"
                     "decq %1\n\t"
                     "jnz 1b\n"
                     "end: nop"
                     : "+r"(sum), "+r"(n)
                     : "i"(TRAP_FLAG)
                     : "memory", "cc");
    return sum;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    long sum = run(10);
    sum += run(20);
    /* Each run is one step, and three for each round. */
    printf("sum %ld, steps %d, elsewhere %d, ended %d\n", sum, steps, elsewhere, ended);
}
