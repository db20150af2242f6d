// Kernels that are left by longjmp, by exit, and in a forked child.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ato.h"

static jmp_buf back;
static volatile int sum;

__attribute__((noinline)) void deep(int n)
{
    ATO_KERNEL_BEGIN(deep);
    sum += n;
    if (n % 3 == 1)
        longjmp(back, n);
    ATO_KERNEL_END(deep);
}

__attribute__((noinline)) void middle(int n)
{
    ATO_PROFILE_BEGIN(middle);
    deep(n);
    ATO_PROFILE_END(middle);
}

__attribute__((noinline)) int same(int n)
{
    volatile int times = 0;
    jmp_buf here;
    setjmp(here);
    ATO_PROFILE_BEGIN(same);
    if (++times < n)
        longjmp(here, 1);
    ATO_PROFILE_END(same);
    return times;
}

int main(int count, char **words)
{
    for (volatile int i = 0; i < 12; ++i) {
        ATO_PROFILE_BEGIN(turn);
        if (setjmp(back) == 0)
            middle(i);
        ATO_PROFILE_END(turn);
    }
    int times = same(5);
    if (count > 1 && !strcmp(words[1], "fork")) {
        fflush(stdout);
        ATO_PROFILE_BEGIN(around);
        pid_t child = fork();
        for (int i = 0; i < (child ? 4 : 2); ++i) {
            ATO_KERNEL_BEGIN(after);
            sum += i;
            ATO_KERNEL_END(after);
        }
        ATO_PROFILE_END(around);
        if (!child)
            _exit(3);
        int status;
        waitpid(child, &status, 0);
        times += WEXITSTATUS(status);
    }
    printf("%d %d\n", sum, times);
    ATO_KERNEL_BEGIN(last);
    exit(0);
    ATO_KERNEL_END(last);
}
