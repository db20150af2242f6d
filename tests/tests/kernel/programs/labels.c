// Labels before all kinds of statement. How often each is executed stands below;
// what no label can tell of is refused.
//
// kernel: ato_kernel_for 7
// kernel: ato_kernel_while 5
// kernel: ato_kernel_do 9
// kernel: ato_kernel_do_nested 4
// kernel: ato_kernel_in_do 12
// kernel: ato_kernel_inlined 11
// kernel: ato_kernel_goto 6
// kernel: ato_kernel_switch 8
// kernel: ato_kernel_early 10
// kernel: ato_kernel_spread 3
// kernel: ato_kernel_macro 5
// refused: ato_kernel_block
// refused: ato_kernel_statement
#include <stdio.h>

#define EACH(i, n) for (int i = 0; i < n; ++i)

static unsigned state = 1;
static unsigned cells[64];

static __attribute__((noinline)) unsigned next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

static __attribute__((noinline)) void loops(int n)
{
    int i;
ato_kernel_for:
    for (i = 0; i < n; ++i)
        cells[i & 63] += next();
}

static __attribute__((noinline)) unsigned whiles(unsigned n)
{
    unsigned sum = 0;
ato_kernel_while:
    while (n > 3) {
        sum += n ^ next();
        n -= n / 3;
    }
    return sum;
}

static __attribute__((noinline)) unsigned dos(unsigned n)
{
    unsigned sum = n;
ato_kernel_do:
    do {
        sum = sum * 3 + next();
        n /= 2;
    } while (n);
    return sum;
}

static __attribute__((noinline)) unsigned nested(unsigned n)
{
    unsigned sum = n;
ato_kernel_do_nested:
    do {
        for (unsigned i = 0; i < n; ++i)
            sum += cells[i & 63] ^ next();
        n -= 2;
    } while (n > 2);
    return sum;
}

static __attribute__((noinline)) unsigned inner(unsigned n)
{
    unsigned sum = n;
    do {
ato_kernel_in_do:
        for (unsigned i = 0; i < n; ++i)
            sum += cells[i & 63] ^ next();
        n -= 2;
    } while (n > 2);
    return sum;
}

static inline __attribute__((always_inline)) unsigned inlined(unsigned from, unsigned n)
{
    unsigned sum = from, i;
ato_kernel_inlined:
    for (i = from; i < n; ++i)
        sum = sum * 5 + cells[i & 63] + next();
    return sum;
}

static __attribute__((noinline)) unsigned inliner(unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n; ++i)
        sum += inlined(i, n + 3);
    return sum + inlined(2, n + 9);
}

static __attribute__((noinline)) unsigned gotos(unsigned n)
{
    unsigned i;
ato_kernel_goto:
    for (i = 0; i < 1000; ++i) {
        if ((next() & 63) == n)
            goto out;
        cells[i & 63] ^= i;
    }
    return 0;
out:
    return i;
}

static __attribute__((noinline)) unsigned switches(unsigned n)
{
    unsigned sum = 0, i;
ato_kernel_switch:
    for (i = 0; i < 50; ++i)
        switch (next() % 9) {
        case 0: sum += 3; break;
        case 1: sum ^= n; break;
        case 2: sum *= 5; continue;
        case 3: cells[i] += sum; break;
        case 4: return sum + next();
        case 5: sum -= cells[n]; break;
        case 6: sum += next(); break;
        default: sum = ~sum;
        }
    return sum;
}

static __attribute__((noinline)) unsigned early(unsigned n)
{
    unsigned i;
ato_kernel_early:
    for (i = 0; i < 100; ++i) {
        unsigned now = next() & 31;
        if (now == n)
            return i;
        if (now == n + 1)
            break;
        cells[i & 63] += now;
    }
    return next();
}

static __attribute__((noinline)) unsigned spread(unsigned n)
{
    unsigned sum = 0;
ato_kernel_spread:
    for (unsigned i = 0;
         i < n;
         ++i) {
        sum += next();
    }
    return sum;
}

static __attribute__((noinline)) void macros(int n)
{
ato_kernel_macro:
    EACH (i, n)
        cells[i & 63] ^= next();
}

static __attribute__((noinline)) unsigned others(unsigned n)
{
ato_kernel_block: {
    n += next();
    n *= 7;
    for (unsigned i = 0; i < 3; ++i)
        n += next();
}
ato_kernel_statement:
    n ^= next();
    return n;
}

int main(void)
{
    unsigned sum = 0;
    for (int i = 0; i < 7; ++i)
        loops(10 + i);
    for (unsigned i = 0; i < 5; ++i)
        sum += whiles(50 + i);
    for (unsigned i = 0; i < 9; ++i)
        sum += dos(i + 100);
    for (unsigned i = 0; i < 4; ++i)
        sum += nested(7);
    for (unsigned i = 0; i < 4; ++i)
        sum += inner(7);
    sum += inliner(10);
    for (unsigned i = 0; i < 6; ++i)
        sum += gotos(i);
    for (unsigned i = 0; i < 8; ++i)
        sum += switches(i);
    for (unsigned i = 0; i < 10; ++i)
        sum += early(i);
    for (unsigned i = 0; i < 3; ++i)
        sum += spread(i + 4);
    for (unsigned i = 0; i < 5; ++i)
        macros(i + 2);
    sum += others(sum);
    for (int i = 0; i < 64; ++i)
        sum = sum * 31 + cells[i];
    printf("%08x\n", sum);
    return 0;
}
