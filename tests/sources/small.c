// Procedures of one to three bytes side by side, reached through pointers
// only: no room for a pad, and their neighbours are entries too.
// missed: f0 f1 f4 f6 f7
// variants: gcc-Os-align1 gcc-O2-align1 clang-Oz gcc-Os-align1-static gcc-Os-align1-nopie-strip gcc-O2-cet
// stdout: 24 600 0
#include <stdio.h>
static void f0(void) {}
static void f1(void) {}
static int f2(void) { return 0; }
static int f3(int x) { return x; }
static void f4(void) {}
static int f5(int x) { return x + 1; }
static void f6(void) {}
static void f7(void) {}
static void (*volatile voids[])(void) = { f0, f1, f4, f6, f7 };
static int (*volatile unary[])(int) = { f3, f5, f3, f5 };
static int (*volatile nullary[])(void) = { f2, f2 };
int main(void)
{
    int n = 0, s = 0;
    for (int r = 0; r < 100; r++) {
        for (int i = 0; i < 5; i++) { voids[i](); n = (n + 1) % 119; }
        for (int i = 0; i < 4; i++) s += unary[i](1);
        for (int i = 0; i < 2; i++) s += nullary[i]();
    }
    printf("%d %d %d\n", n, s, f2());
    return 0;
}
