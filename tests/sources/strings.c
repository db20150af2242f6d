// rep movs/stos/scas/cmps, with counts of zero too; segment-relative operands.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie-strip
// stdout: moved hello zero 0 found 6 equal 5 tls 42 fs 1
#include <stdio.h>
#include <string.h>
static __thread long tls = 41;
static char from[64] = "hello world", to[64];
int main(void)
{
    void *d = to;
    const void *s = from;
    long n = 5;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    n = 0;
    d = to + 5;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"('x') : "memory");
    n = 3;
    d = to + 40;
    __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(0L) : "memory");
    n = 64;
    d = from;
    __asm__ volatile("repne scasb" : "+D"(d), "+c"(n) : "a"(' ') : "memory", "cc");
    long found = (char *)d - from;
    n = 64;
    d = to;
    s = from;
    __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
    long equal = (char *)d - to - 1;
    tls++;
    void *self, *self2 = __builtin_thread_pointer();
    __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
    printf("moved %s zero %ld found %ld equal %ld tls %ld fs %d\n", to, strlen(to) - 5, found, equal, tls, self == self2);
    return 0;
}
