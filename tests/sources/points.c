// What the points of procedures, blocks and calls mean: tail calls, calls that
// do not return, longjmp out of depth, a second return of setjmp, recursion.
// variants: gcc-O1 gcc-O1-nopie gcc-O1-static
// cflags: -foptimize-sibling-calls
// stdout: sum 66 caught 3 deep 5
// points NAME before after, calls that came back:
// point: leaf 6 6 0
// point: tail 3 3 0
// point: jumper 1 0 0
// point: middle 1 0 0
// point: deep 6 6 5
// point: last 1 0 0
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf env;
static volatile int zero;
__attribute__((noipa)) int leaf(int n) { return n + zero; }
// Ends in a jump to leaf: left once each time, by that jump.
__attribute__((noipa)) int tail(int n) { return leaf(2 * n); }
// Never returns, so there is no point after it, nor after the calls that lead here.
__attribute__((noipa)) void jumper(int n) { longjmp(env, n); }
__attribute__((noipa)) int middle(int n)
{
    jumper(n);
    return zero;
}
__attribute__((noipa)) int deep(int n)
{
    if (n == zero) return 0;
    volatile int below = deep(n - 1);
    return 1 + below;
}
__attribute__((noipa)) void last(int n) { exit(n); }
int main(void)
{
    int sum = 0;
    for (int i = 1; i <= 3; i++) sum += tail(i) + leaf(10 + i + 1 + zero);
    int caught = setjmp(env);
    if (caught == 0) sum += middle(3);
    printf("sum %d caught %d deep %d\n", sum + 15, caught, deep(5));
    last(0);
    return 1;
}
