// The processor checks alignment (the flag AC) while the program's own aligned code runs, which reads and writes memory
// of all sizes, calls and branches. Routines of tools do not keep to that.
// Prints: sum 26372164800, checked 1
#include <stdio.h>

static struct { char byte; short half; int word; long twice; } things[16];

__attribute__((noinline)) static long add(int at)
{
    things[at].byte++, things[at].half += 3, things[at].word += things[at].half, things[at].twice += things[at].word;
    return things[at].byte & 1 ? things[at].word : things[at].twice;
}

__attribute__((noinline)) static long all(int count)
{
    long sum = 0;
    for (int i = 0; i < count; i++)
        sum += add(i % 16);
    return sum;
}

int main(void)
{
    long sum = 0, flags;
    __asm__ volatile("pushfq\norl $0x40000,(%%rsp)\npopfq" ::: "memory", "cc");
    for (int i = 0; i < 40; i++)
        sum += all(160);
    __asm__ volatile("pushfq\npop %0\npushfq\nandl $~0x40000,(%%rsp)\npopfq" : "=r"(flags) : : "memory", "cc");
    printf("sum %ld, checked %ld\n", sum, flags >> 18 & 1);
    return 0;
}
