// A kernel that does next to nothing, many times, within a section.
#include <stdio.h>
#include "ato.h"

static volatile int sum;

int main(void)
{
    ATO_PROFILE_BEGIN(all);
    for (int i = 0; i < 20000; ++i) {
        ATO_KERNEL_BEGIN(nothing);
        sum += i & 1;
        ATO_KERNEL_END(nothing);
    }
    ATO_PROFILE_END(all);
    printf("%d\n", sum);
    return 0;
}
