// gcc's nested functions: trampolines on an executable stack, static chains,
// and a non-local goto out of one.
// variants: gcc-O0 gcc-O2 gcc-O2-static gcc-O2-nopie
// cflags: -Wl,-z,execstack -Wno-trampolines
// counts: no
// stdout: sum 45 found 7 jumped 3
#include <stdio.h>
__attribute__((noinline)) static int each(int n, int (*f)(int)) { int r = 0; for (int i = 0; i < n; i++) r += f(i); return r; }
int main(void)
{
    int total = 0, found = -1, jumped = 0;
    int add(int x) { total += x; return 0; }
    each(10, add);
    int find(int x) { if (x == 7) found = x; return x; }
    each(20, find);
    {
        __label__ out;
        int leave(int x) { if (x == 3) { jumped = x; goto out; } return 0; }
        each(10, leave);
        return 1;
    out:;
    }
    printf("sum %d found %d jumped %d\n", total, found, jumped);
    return 0;
}
