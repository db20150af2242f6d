// Hardened against speculation: after a call the caller compares the return address, which still lies below
// its stack, with what it should have been.
// missed: main work twice
// variants: clang-O0 clang-O2 clang-O2-static
// cflags: -mspeculative-load-hardening
// stdout: 4950 done
#include <stdio.h>
static int table[100];
__attribute__((noinline)) int twice(int i) { return table[i % 100] * 2; }
__attribute__((noinline)) int work(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += twice(i) / 2;
    return sum;
}
int main(void)
{
    for (int i = 0; i < 100; i++) table[i] = i;
    printf("%d done\n", work(100));
    return 0;
}
