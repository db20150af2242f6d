// Procedures that an exception leaves: what comes after a procedure belongs to its
// own returns and tail calls, and an exception passes none; one that catches it returns as ever.
// variants: gcc-O0 gcc-O2 clang-O2 gcc-O2-static
// stdout: caught 5 cleaned 18 passed 10 nested 3
// counts-not: gcc-O2-static
// How often each is entered, and how often what comes after it is executed.
// after: thrower 18 10
// after: passes 18 10
// after: cleans 18 10
// after: catches 12 12
// after: again 6 3
// after: outer 6 6
#include <cstdio>

#define NOINLINE __attribute__((noinline))

static volatile int sink;

struct Guard {
    int *count;
    __attribute__((always_inline)) ~Guard() { ++*count; }
};

extern "C" {
static int cleaned, passed, caught, nested;

NOINLINE int thrower(int n);
NOINLINE int passes(int n);
NOINLINE int cleans(int n);
NOINLINE int catches(int n);
NOINLINE int again(int n);
NOINLINE int outer(int n);
}

NOINLINE int thrower(int n)
{
    if (n % 5 == 0 || n % 5 == 3)
        throw n;
    sink = n;
    return n;
}

NOINLINE int passes(int n)
{
    int result = thrower(n);
    ++passed;
    return result + 1;
}

NOINLINE int cleans(int n)
{
    Guard guard{&cleaned};
    return passes(n) * 2;
}

NOINLINE int catches(int n)
{
    try {
        return cleans(n) + 1;
    } catch (int e) {
        ++caught;
        return e;
    }
}

NOINLINE int again(int n)
{
    try {
        return cleans(n) + 2;
    } catch (...) {
        ++nested;
        throw;
    }
}

NOINLINE int outer(int n)
{
    try {
        return again(n) + 3;
    } catch (int e) {
        return e;
    }
}

int main()
{
    int sum = 0;
    for (int n = 0; n < 12; ++n)
        sum += catches(n);
    for (int n = 0; n < 6; ++n)
        sum += outer(n);
    sink = sum;
    std::printf("caught %d cleaned %d passed %d nested %d\n", caught, cleaned, passed, nested);
    return 0;
}
