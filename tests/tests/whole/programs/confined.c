/* Works under the strict mode of seccomp, in which a process may read, write, return from handlers and end: references to
   memory and calls that fill the buffers of tools, and many different call paths. */
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile unsigned words[1 << 16];
__attribute__((noinline)) static unsigned leaf(unsigned i) { return words[i % (1 << 16)] += i; }
__attribute__((noinline)) static unsigned right(unsigned i, int depth);
__attribute__((noinline)) static unsigned left(unsigned i, int depth)
{
    return depth == 0 ? leaf(i) : i & 1 ? left(i >> 1, depth - 1) + 1 : right(i >> 1, depth - 1) + 2;
}
__attribute__((noinline)) static unsigned right(unsigned i, int depth)
{
    return depth == 0 ? leaf(i) : i & 1 ? right(i >> 1, depth - 1) + 3 : left(i >> 1, depth - 1) + 4;
}
int main(void)
{
    char text[] = "sum 00000000\n";
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        return 9;
    unsigned sum = 0;
    for (unsigned i = 0; i < 40000; i++)
        sum += left(i, 14);
    for (int i = 0; i < 8; i++)
        text[4 + i] = "0123456789abcdef"[sum >> (28 - 4 * i) & 15];
    write(1, text, sizeof text - 1);
    syscall(SYS_exit, 5);
}
