// A caller that keeps values in caller-saved registers over a local call
// (gcc -fipa-ra at -O2 and above): nothing the callee leaves alone may change.
// variants: gcc-O0 gcc-O2 gcc-O2-large gcc-O2-large-nopie gcc-O3 gcc-O2-static gcc-O2-nopie-strip clang-O2
// stdout: 1436 11997 1000
// count: step 50
// count: leaf 1000
#include <stdio.h>
static volatile long sink;
static volatile long hits;
__attribute__((noinline, noclone)) static long leaf(long x) { hits = hits + 1; return x + 1; }
__attribute__((noinline, noclone)) static void step(void) { sink = sink + 1; }
__attribute__((noinline)) static long many(long a, long b, long c, long d, long e, long f)
{
    long s = 0;
    for (int i = 0; i < 50; i++) {
        long r = a * i, t = b + i, u = c ^ i, v = d - i, w = e | 1, x = f & i;
        step();
        s += r + t - u + v - w + x;
    }
    return s;
}
int main(void)
{
    long n = 0;
    for (int i = 0; i < 1000; i++) {
        long k = i % 7, m = i % 11;
        n += leaf(k) * (m + 1) + leaf(0) * 0;
        i += 1;
    }
    printf("%ld %ld %ld\n", many(2, 3, 4, 5, 6, 7), n, hits);
    return 0;
}
