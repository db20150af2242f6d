// Jump tables with entries that lead past the procedure's end: clang does not
// compare the value that tells how a scope was left, and puts what cannot happen last.
// variants: clang-O0 clang-O0-nopie clang-O1 gcc-O0 gcc-O2
// stdout: 255 7 73
#include <stdio.h>

static int ended;

static void end(const int *scope)
{
    ended += *scope;
}

static int ways(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int scope __attribute__((cleanup(end))) = 1;
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
    return sum % 7;
out:
    return -sum % 5;
}

static unsigned known(unsigned n)
{
    switch (n & 15) {
    case 1: return 3;
    case 2: return n * 5;
    case 4: return n ^ 77;
    case 5: return n / 3 + 2;
    case 8: return n - 9;
    case 9: return ~n & 7;
    default: __builtin_unreachable();
    }
}

int main(void)
{
    int some = 0;
    unsigned sum = 0;
    for (int i = 0; i < 10; i++)
        some += ways(i * 6 + (i == 9 ? 8 : 0)) != 0;
    static const unsigned values[] = {1, 2, 4, 5, 8, 9, 8, 4, 1};
    for (unsigned i = 0; i < 9; i++)
        sum += known(values[i]) & 15;
    printf("%d %d %u\n", ended, some, sum);
    return 0;
}
