// Sections that exceptions leave: by scope, by procedure, and a loop that catches.
#include <cstdio>
#include <stdexcept>
#include "ato.h"

static volatile int sum;

__attribute__((noinline)) int scoped(int n)
{
    ATO_KERNEL_SCOPE(scoped);
    if (n % 4 == 1)
        throw std::runtime_error("scoped");
    sum = sum + n;
    return n;
}

__attribute__((noinline)) int thrower(int n)
{
    sum = sum + scoped(n);
    if (n % 4 == 2)
        throw n;
    return n * 2;
}

__attribute__((noinline)) int catcher(int n)
{
    int caught = 0;
    int i = 0;
ato_profile_catching:
    for (; i < n; ++i) {
        try {
            sum = sum + thrower(i);
        } catch (int) {
            caught += 100;
        }
    }
    return caught;
}

int main()
{
    int caught = 0;
    for (int turn = 0; turn < 3; ++turn) {
        try {
            caught += catcher(turn == 1 ? 1 : 9);
        } catch (const std::exception &) {
            caught += 1;
        }
    }
    std::printf("%d %d\n", sum, caught);
    return 0;
}
