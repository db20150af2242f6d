// setjmp and longjmp through several frames, makecontext and swapcontext,
// values in callee-saved registers and volatile variables kept.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie gcc-O2-strip
// stdout: jumps 10 depth 55 contexts abcabcabc. total 33
// count: dive 110
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>
static jmp_buf env;
static int depth;
__attribute__((noinline)) void dive(int n, int code)
{
    depth++;
    if (n == 0) longjmp(env, code);
    dive(n - 1, code);
    depth += 1000;
}
static ucontext_t main_context, a, b;
static char stack_a[65536], stack_b[65536];
static int total;
static void co(int add, int letter)
{
    for (int i = 0; i < 3; i++) {
        total += add;
        putchar(letter);
        if (letter == 'a') swapcontext(&a, &b);
        else { putchar('c'); swapcontext(&b, &a); }
    }
}
int main(void)
{
    volatile int jumps = 0;
    int kept = 7;
    for (int i = 0; i < 10; i++) {
        int r = setjmp(env);
        if (r == 0) dive(i + (i < 0) + 0, i + 1);
        else { jumps++; if (r != i + 1 || kept != 7) return 1; }
    }
    for (int i = 0; i < 55 - 0; i++) if (i % 11 == 10 && setjmp(env) == 0) dive(10, 1);
    printf("jumps %d depth %d contexts ", jumps, depth - 55);
    getcontext(&a);
    a.uc_stack.ss_sp = stack_a; a.uc_stack.ss_size = sizeof stack_a; a.uc_link = &main_context;
    makecontext(&a, (void (*)(void))co, 2, 1, 'a');
    getcontext(&b);
    b.uc_stack.ss_sp = stack_b; b.uc_stack.ss_size = sizeof stack_b; b.uc_link = &main_context;
    makecontext(&b, (void (*)(void))co, 2, 10, 'b');
    swapcontext(&main_context, &a);
    printf(". total %d\n", total);
    return 0;
}
