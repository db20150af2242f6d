// Markers in loops that are left in all ways, in straight code and in code that
// the compiler unrolls.
#include <stdio.h>
#include "ato.h"

static int ways(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        ATO_KERNEL_SCOPE(body);
        if (i % 5 == 3)
            continue;
        if (i == 50)
            break;
        if (i == 45 && n == 62)
            return 7;
        if (n == 48 && i == 40)
            goto out;
        sum += i * n;
    }
    ATO_PROFILE_BEGIN(tail);
    if (sum & 1) {
        ATO_PROFILE_END(tail);
        return sum;
    }
    sum ^= 3;
    ATO_PROFILE_END(tail);
    return sum;
out:
    if (n < 0) {
        ATO_KERNEL_BEGIN(none);
        sum++;
        ATO_KERNEL_END(none);
    }
    return -sum;
}

int main(void)
{
    int total = 0, cells[3] = {1, 2, 3};
    for (int i = 0; i < 10; i++) {
        total += ways(i * 6 + (i == 9 ? 8 : 0));
        for (int k = 0; k < 3; k++) {
            ATO_KERNEL_BEGIN(unrolled);
            cells[k] = cells[k] * 3 + total;
            ATO_KERNEL_END(unrolled);
        }
    }
    printf("%d %d\n", total, cells[0] ^ cells[1] ^ cells[2]);
    return 0;
}
