// Threads by the program's own system call: with a thread pointer of their own, and
// with their parent's. They use no libc.
// variants: gcc-O2 gcc-O2-static gcc-O2-nopie
// count: counted 1200000
// count: quick 800
// stdout: done
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile long sink;
static int left;
__attribute__((noinline)) void counted(long i) { sink = i; }
__attribute__((noinline)) void quick(void) { sink = 1; }
static void many(void) { for (long i = 0; i < 300000; i++) counted(i); }
static void few(void) { quick(); }
// The child starts on its own stack, where the function to run stands.
__attribute__((noinline)) static void start(void (*f)(void), void *tls)
{
    long *stack = (long *)((char *)aligned_alloc(4096, 65536) + 65536) - 2;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | (tls ? CLONE_SETTLS : 0);
    register long r10 __asm__("r10") = 0;
    register void *r8 __asm__("r8") = tls;
    long result;
    stack[0] = (long)f;
    __atomic_add_fetch(&left, 1, __ATOMIC_SEQ_CST);
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "pop %%rax\n\t"
                     "call *%%rax\n\t"
                     "lock decl %[left]\n\t"
                     "mov $60, %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n\t"
                     "1:"
                     : "=a"(result)
                     : "a"((long)SYS_clone), "D"(flags), "S"(stack), "d"(0L), "r"(r10), "r"(r8), [left] "m"(left)
                     : "rcx", "r11", "memory");
    if (result < 0) _exit(9);
}
static void wait_all(void) { while (__atomic_load_n(&left, __ATOMIC_SEQ_CST)) sched_yield(); }
int main(void)
{
    // A thread pointer points to itself, as the ABI says.
    static void *blocks[2][512];
    for (int i = 0; i < 2; i++) blocks[i][0] = blocks[i];
    start(many, blocks[0]);
    start(many, blocks[1]);
    start(many, NULL);
    many();
    wait_all();
    for (int i = 0; i < 400; i++) {
        start(few, NULL);
        start(few, blocks[0]);
        wait_all();
    }
    puts("done");
    return 0;
}
