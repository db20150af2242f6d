// A library with a sandbox: the start of its memory is the base of gs, which it sets and
// leaves set, and expects to be kept while it calls back.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
long boxed(long n, void (*back)(long))
{
    static __thread long memory[2];
    long wrong = 0;
    for (long i = 0; i < n; i++) {
        memory[1] = i;
#ifdef BY_CALL
        extern int arch_prctl(int, unsigned long);
        if (arch_prctl(0x1001, (unsigned long)memory)) return -1;
#else
        __asm__ volatile("wrgsbase %0" : : "r"(memory));
#endif
        back(i);
        long seen;
        __asm__ volatile("movq %%gs:8, %0" : "=r"(seen));
        wrong += seen != i;
    }
    return wrong;
}
