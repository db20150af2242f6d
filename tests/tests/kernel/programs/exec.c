// Calls exec in vain in the middle of a section, several times, and last with success if asked to.
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ato.h"

static volatile int sum;

__attribute__((noinline)) static void work(int n)
{
    for (int i = 0; i < n; ++i) {
        ATO_KERNEL_BEGIN(item);
        sum += i;
        ATO_KERNEL_END(item);
    }
}

/* A folder may be searched, but not executed. */
__attribute__((noinline)) static int fail(void)
{
    char *words[] = {"/", NULL};
    return execv("/", words);
}

int main(int count, char **words)
{
    int failed = 0;
    ATO_PROFILE_BEGIN(all);
    for (int i = 0; i < 4; ++i) {
        ATO_PROFILE_BEGIN(turn);
        work(100);
        failed -= fail();
        failed -= fail();
        work(50);
        ATO_PROFILE_END(turn);
    }
    if (count > 1 && !strcmp(words[1], "exec"))
        execl("/bin/echo", "echo", "another", (char *)NULL);
    work(7);
    ATO_PROFILE_END(all);
    printf("%d %d\n", sum, failed);
    return 3;
}
