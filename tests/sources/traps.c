// Handlers that go on behind the instruction that raised their signal: traps of several kinds
// and lengths, a load from nowhere and a division by zero, alone, in a loop, one behind the
// other, in a part of its own and behind calls that return. What compilers put behind calls
// that do not return is there as well.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie-strip gcc-O2-static-strip gcc-Os-align1
// stdout: plain 11 behind 4 loop 40 chain 5 shared 12 rare 2 loads 4 divided 5 kept 42 signals 32 ended 7
// count: plain 1
// count: loop 1
// count: shared 6
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define NOINLINE __attribute__((noinline, noclone))
static volatile int a[16];
static volatile int signals, ended;
static sigjmp_buf env;
static void on_trap(int s, siginfo_t *info, void *c)
{
    greg_t *g = ((ucontext_t *)c)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)g[REG_RIP];
    (void)info;
    signals++;
    // int3 and int1 leave the address of the next instruction.
    if (s == SIGTRAP) return;
    if (at[0] == 0xf4) g[REG_RIP] += 1;
    else if (at[0] == 0x0f && at[1] == 0x0b) g[REG_RIP] += 2;
    else if (at[0] == 0x0f && (at[1] == 0xb9 || at[1] == 0xff)) g[REG_RIP] += 3;
    else if (at[0] == 0x8b && at[1] == 0x08) g[REG_RIP] += 2;
    else if (at[0] == 0xf7 && at[1] == 0xf1) g[REG_RIP] += 2;
    else { ended = -1; siglongjmp(env, 1); }
}
NOINLINE void plain(void)
{
    a[0]++;
    __asm__ volatile("ud2" ::: "memory");
    a[0]++;
    __asm__ volatile("int3" ::: "memory");
    a[0] += 2;
    __asm__ volatile(".byte 0x0f, 0xb9, 0xc0" ::: "memory"); // ud1
    a[0] += 3;
    __asm__ volatile(".byte 0x0f, 0xff, 0xc1" ::: "memory"); // ud0
    a[0]++;
    __asm__ volatile("hlt" ::: "memory");
    a[0] += 3;
}
// A call that returns stands before the trap.
NOINLINE static void behind(int (*f)(int))
{
    a[1] = abs(a[1]);
    int n = f(1);
    __asm__ volatile("ud2" ::: "memory");
    a[1] += n;
    puts("" + (plain == NULL));
    __asm__ volatile("ud2" ::: "memory");
    a[1] += 2;
}
NOINLINE static int next(int n) { a[1]++; return n; }
NOINLINE int loop(int n)
{
    for (int i = 0; i < n; i++) {
        a[2]++;
        if (i & 1) __asm__ volatile("ud2" ::: "memory");
        else __asm__ volatile("int3" ::: "memory");
        a[2] += 3;
    }
    return a[2];
}
// One trap behind the other, and one at the very end of a way.
NOINLINE static void chain(void)
{
    __asm__ volatile("ud2\n\tud2\n\tint3\n\tint3\n\tud2" ::: "memory");
    a[3] += 5;
}
// Several ways lead to one trap.
NOINLINE int shared(int n)
{
    int more = 0;
    if (n < 2 || n > 3) { __asm__ volatile("ud2" ::: "memory"); more = 1; }
    a[4] += 1 + more;
    if (n == 3) a[4] += 2;
    return a[4];
}
__attribute__((cold, noinline)) static void seldom(void)
{
    __asm__ volatile("ud2" ::: "memory");
    a[5]++;
}
NOINLINE static void rare(int n)
{
    if (__builtin_expect(n > 2, 0)) { seldom(); __asm__ volatile("hlt" ::: "memory"); a[5]++; }
    a[5] += 0;
}
NOINLINE static void load(void)
{
    for (int i = 0; i < 2; i++) {
        a[6]++;
        // What the register holds that it would have loaded is not looked at.
        __asm__ volatile("xor %%eax,%%eax\n\tmov (%%rax),%%ecx" : : : "rax", "rcx", "memory", "cc");
        a[6] += 1;
    }
}
NOINLINE static void divide(void)
{
    unsigned low = 4;
    __asm__ volatile("xor %%ecx,%%ecx\n\txor %%edx,%%edx\n\tdiv %%ecx" : "+a"(low) : : "rcx", "rdx", "cc");
    a[7] += 1 + low;
}
// Registers and flags stay as they are across the trap.
NOINLINE static int keep(int n)
{
    int r;
    __asm__ volatile("mov %1,%%eax\n\tmov $2,%%ecx\n\tmov $3,%%edx\n\tmov $5,%%esi\n\tmov $7,%%r8d\n\tmov $11,%%r11d\n\t"
                     "cmp %%eax,%%eax\n\tud2\n\tsete %%al\n\tmovzx %%al,%%eax\n\timul $13,%%eax,%%eax\n\t"
                     "add %%ecx,%%eax\n\tadd %%edx,%%eax\n\tadd %%esi,%%eax\n\tadd %%r8d,%%eax\n\tadd %%r11d,%%eax\n\tinc %%eax\n\tmov %%eax,%0"
                     : "=r"(r) : "r"(n) : "rax", "rcx", "rdx", "rsi", "r8", "r11", "cc", "memory");
    return r;
}
__attribute__((noreturn)) NOINLINE static void leave(void) { ended += 7; siglongjmp(env, 1); }
NOINLINE static int end(int n)
{
    if (n > 5) { leave(); }
    if (n > 4) { __builtin_trap(); }
    return n;
}
int main(void)
{
    // Not blocked meanwhile: the kernel takes the handler of a blocked SIGTRAP away when it is stepped.
    struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER };
    int all[] = { SIGILL, SIGTRAP, SIGSEGV, SIGFPE, SIGBUS };
    for (int i = 0; i < 5; i++) sigaction(all[i], &sa, NULL);
    plain();
    behind(next);
    loop(10);
    chain();
    for (int i = 0; i < 6; i++) shared(i);
    for (int i = 0; i < 4; i++) rare(i);
    rare(0);
    load();
    divide();
    int kept = keep(9);
    if (sigsetjmp(env, 1) == 0) end(6);
    printf("plain %d behind %d loop %d chain %d shared %d rare %d loads %d divided %d kept %d signals %d ended %d\n",
           a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], kept, signals, ended);
    return 0;
}
