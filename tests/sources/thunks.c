// A non-local `goto` whose jump goes by a thunk: the thunk finds an rsp that its caller has loaded from memory.
// variants: gcc-O0 gcc-O2 gcc-O2-static
// cflags: -mindirect-branch=thunk -fcf-protection=none -z execstack
// stdout: sum 15
// missed: main
#include <stdio.h>
static int depth(int n, void (*out)(int))
{
    if (n == 0) {
        out(3);
        return 1;
    }
    return depth(n - 1, out) + 1;
}
int main(void)
{
    __label__ away;
    volatile int sum = 0, i = 0;
    void jump(int by)
    {
        sum += by;
        goto away;
    }
again:
    if (i == 5) {
        printf("sum %d\n", sum);
        return 0;
    }
    sum += depth(i, jump);
away:
    i++;
    goto again;
}
