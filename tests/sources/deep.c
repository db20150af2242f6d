// Deep recursion, mutual recursion and tail calls, alloca and variable frames,
// frames with realigned stacks, with and without frame pointers.
// variants: gcc-O0 gcc-O2 gcc-O2-fp gcc-O2-nofp gcc-O2-static clang-O2 clang-O2-nopie gcc-O3-strip
// stdout: fib 377 depth 1000 even 1 vla 4900 aligned 0 ack 61 sum 5050
// count-O0: fib 753
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) int fib(int n) { return n < 3 ? 1 : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) static int depth(int n) { volatile char pad[64]; pad[n % 64] = 1; return n ? depth(n - 1) + pad[n % 64] : 0; }
static int odd(unsigned n);
__attribute__((noinline)) static int even(unsigned n) { return n == 0 ? 1 : odd(n - 1); }
__attribute__((noinline)) static int odd(unsigned n) { return n == 0 ? 0 : even(n - 1); }
__attribute__((noinline)) static int vla(int n)
{
    int a[n], *b = alloca(n * sizeof *b), s = 0;
    for (int i = 0; i < n; i++) a[i] = b[n - 1 - i] = i;
    for (int i = 0; i < n; i++) s += (a[i] + b[i]) / 2 + (a[i] + b[i]) % 2 * 0;
    return s;
}
__attribute__((noinline)) static long aligned(int n)
{
    _Alignas(64) volatile char block[64];
    memset((void *)block, n, sizeof block);
    return (uintptr_t)block % 64 + block[5] - n;
}
__attribute__((noinline)) static int ack(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1)); }
__attribute__((noinline)) static int sum(int n, int acc) { return n ? sum(n - 1, acc + n) : acc; }
int main(void)
{
    printf("fib %d depth %d even %d vla %d aligned %ld ack %d sum %d\n", fib(14), depth(1000), even(300), vla(100), aligned(3), ack(3, 3), sum(100, 0));
    return 0;
}
