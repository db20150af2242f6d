// Inline assembly that pushes and pops, moves rsp, saves flags, calls a local
// procedure, swaps stacks, and uses rbp as a plain register.
// variants: gcc-O0 gcc-O2 gcc-O2-nofp clang-O2 gcc-O2-static gcc-O2-nopie-strip
// cflags: -mno-red-zone
// stdout: swap 2 1 flags 1 0 call 15 stack 99 rbp 1234 enter 8 xchg 5 kept 19
#include <stdio.h>
static long scratch[8] = {1, 2, 3, 4, 5, 6, 7, 8};
long target(long x) { return x * 3; }
int main(void)
{
    long a = 1, b = 2, f0, f1, r, s, t, e = 8, x = 5;
    __asm__ volatile("push %0\n push %1\n pop %0\n pop %1" : "+r"(a), "+r"(b));
    __asm__ volatile("stc\n pushfq\n clc\n pushfq\n pop %0\n and $1, %0\n pop %1\n and $1, %1" : "=r"(f0), "=r"(f1) : : "cc");
    __asm__ volatile("mov %%rsp, %%rbx\n and $-16, %%rsp\n call target\n mov %%rbx, %%rsp" : "=a"(r) : "D"(5L)
        : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    __asm__ volatile("mov %%rsp, %%rbx\n mov %1, %%rsp\n push $99\n pop %0\n mov %%rbx, %%rsp" : "=&r"(s) : "r"(scratch + 4) : "rbx", "memory");
    __asm__ volatile("push %%rbp\n mov $1234, %%ebp\n jmp 1f\n1: test %%ebp, %%ebp\n jz 2f\n mov %%rbp, %0\n2: pop %%rbp" : "=r"(t) : : "cc");
    __asm__ volatile("enter $16, $0\n leave" : "+r"(e) : : "memory");
    __asm__ volatile("xchg %%rsp, %0\n xchg %%rsp, %0" : "+r"(x) : : "memory");
    printf("swap %ld %ld flags %ld %ld call %ld stack %ld rbp %ld enter %ld xchg %ld kept %ld\n", a, b, f1, f0, r, s, t, e, x,
        scratch[0] + scratch[1] + scratch[2] + scratch[4] + scratch[7]);
    return 0;
}
