// Functions called through pointers whose conventions the System V ABI does not know: results in rdi and rsi, a
// result in the carry flag, an argument in xmm9, registers that are left alone or restored. What the callers rely on
// stays alive at the returns.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie gcc-O2-static gcc-O2-nopie-strip clang-O2
// missed: two odd from_xmm9 restores
// stdout: 69012
// count: two 200
// count: odd 200
#include <stdio.h>
asm(".text\n"
    ".type two,@function\n"
    "two: lea 3(%rdi),%rdi\n lea 1(%rdi,%rdi),%rsi\n ret\n .size two,.-two\n"
    ".type odd,@function\n"
    "odd: mov %edi,%eax\n and $1,%eax\n cmp $1,%eax\n cmc\n ret\n .size odd,.-odd\n"
    ".type from_xmm9,@function\n"
    "from_xmm9: movq %xmm9,%rax\n ret\n .size from_xmm9,.-from_xmm9\n"
    ".type restores,@function\n"
    "restores: push %rcx\n push %r8\n mov $1,%ecx\n lea (%rcx,%rcx),%r8\n lea (%r8,%rdi),%rax\n pop %r8\n pop %rcx\n ret\n"
    ".size restores,.-restores\n");
extern void two(void), odd(void), from_xmm9(void), restores(void);
static void (*volatile called[])(void) = { two, odd, from_xmm9, restores };
#define CLOBBERED "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc"
__attribute__((noinline)) static long pair_of(long x)
{
    long first = x, second;
    asm volatile("call *%2" : "+D"(first), "=S"(second) : "r"(called[0]) : "rax", CLOBBERED);
    return first ^ second;
}
__attribute__((noinline)) static long is_odd(long x)
{
    long carry = 0;
    asm volatile("call *%2\n adc $0,%0" : "+r"(carry), "+D"(x) : "r"(called[1]) : "rax", "rsi", CLOBBERED);
    return carry;
}
__attribute__((noinline)) static long through_xmm9(long x)
{
    long result;
    asm volatile("movq %1,%%xmm9\n call *%2" : "=&a"(result) : "r"(x), "r"(called[2]) : "xmm9", "rsi", "rdi", CLOBBERED);
    return result;
}
__attribute__((noinline)) static long kept(long x)
{
    register long a asm("rcx") = x + 1;
    register long b asm("r8") = x + 2;
    register long c asm("r9") = x + 3;
    long result;
    asm volatile("call *%5" : "=a"(result), "+r"(a), "+r"(b), "+r"(c), "+D"(x) : "r"(called[3]) : "rdx", "rsi", "r10", "r11", "memory", "cc");
    return result + a + b + c;
}
int main(void)
{
    long sum = 0;
    for (long i = 0; i < 200; i++)
        sum += pair_of(i) + is_odd(i) + through_xmm9(i) + kept(i) % 5;
    printf("%ld\n", sum);
    return 0;
}
