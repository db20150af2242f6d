// Calls of mcount and __fentry__ at the starts of procedures keep all registers for arguments, those that the procedure
// only passes on included. The program ends without exit(), so that no profile is written.
// The report is made before the loader binds _exit, so the PLT runs once more than it counts.
// variants: gcc-O2-pg gcc-O2-pg-nopie gcc-O2-fentry clang-O2-pg
// counts-not: gcc-O2-pg gcc-O2-pg-nopie clang-O2-pg
// stdout: 1008000 2300.0
// count: pass 1000
// count: weigh 1000
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline, noclone)) static long weigh(long a, long b, long c, long d, long e, long f)
{
    return a + 2 * b - 2 * c + d - e + f;
}
__attribute__((noinline, noclone)) static long pass(long a, long b, long c, long d, long e, long f)
{
    return weigh(f, e, d, c, b, a) + 1;
}
__attribute__((noinline, noclone)) static double sum(double a, double b, double c, double d, double e, double f, double g, double h)
{
    return a - b + c - d + e - f + g * h;
}
int main(void)
{
    long total = 0;
    double real = 0;
    for (long i = 0; i < 1000; i++) {
        total += pass(i, i + 1, i + 2, i + 3, i + 4, i + 5);
        real += sum(1, i, i + 0.3, 2, i, i, 1, 3);
    }
    printf("%ld %.1f\n", total, real);
    fflush(stdout);
    _exit(0);
}
