// Vector and floating-point state across instrumented points: varargs with
// xmm (al), x87, MXCSR rounding, AVX upper halves over calls in a loop.
// variants: gcc-O0 gcc-O2 gcc-O3 gcc-O2-static clang-O2 gcc-O2-nopie-strip
// cflags: -lm
// stdout: 1.5 2.5 7 3.25 | 5.75 x 12.125 | round 2 3 -3 | x87 3.1415926536 | avx 6400 | struct 1.0 2.0 3
#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
typedef double v4 __attribute__((vector_size(32)));
typedef struct { double a, b; } pair;
static volatile int zero;
__attribute__((noinline)) static double sum(int n, ...)
{
    va_list ap;
    double s = 0;
    va_start(ap, n);
    for (int i = 0; i < n; i++) s += i % 2 ? va_arg(ap, int) : va_arg(ap, double);
    va_end(ap);
    return s;
}
__attribute__((noinline)) static pair make(double a, float b) { return (pair){ a, b }; }
__attribute__((noinline)) static int bump(int x) { return x + zero + 1; }
__attribute__((target("avx"), noinline)) static double avx(void)
{
    v4 acc = { 0, 0, 0, 0 }, one = { 1, 2, 3, 4 };
    for (int i = 0; i < 640; i++) {
        if (i % 3 == zero) acc = acc + one; else if (i % 3 == 1) acc = one + acc; else acc += one;
    }
    return acc[0] + acc[1] + acc[2] + acc[3];
}
int main(void)
{
    long double pi = 3.14159265358979323846L;
    int n = 0;
    for (int i = 0; i < 100; i++) { pi = pi * 1.0L; n = bump(n); if (n % 2) pi = -pi; }
    if (pi < 0) pi = -pi;
    printf("%.1f %.1f %d %.2f | ", 1.5, 2.5, 7, 3.25);
    printf("%.2f x %.3f | ", sum(3, 1.5, 2, 2.25), sum(5, 1.0, 2, 3.125, 4, 2.0));
    volatile double two_half = 2.5;
    fesetround(FE_DOWNWARD);
    double lo = __builtin_rint(two_half);
    fesetround(FE_UPWARD);
    bump(1);
    double hi = __builtin_rint(two_half);
    fesetround(FE_DOWNWARD);
    bump(2);
    double neg = __builtin_rint(-two_half);
    fesetround(FE_TONEAREST);
    pair p = make(1, 2);
    __builtin_cpu_init();
    printf("round %.0f %.0f %.0f | x87 %.10Lf | avx %.0f | struct %.1f %.1f %d\n", lo, hi, neg, pi, __builtin_cpu_supports("avx") ? avx() : 6400, p.a, p.b, 3);
    return 0;
}
