// rsp as a pointer to data: arrays are read by `pop` and filled by `push`, in two threads at once. Nothing around the
// arrays may change, and nothing below the first of a page need exist. A switch between two stacks looks the same.
// counts: no
// variants: gcc-O0 gcc-O2 gcc-O2-nofp clang-O2 gcc-O2-static gcc-O2-nopie-strip
// cflags: -pthread
// stdout: sum 32000 fill 36 copy 36 first 7 left 9 carry 7 last 3 0 kept 0 0 switched 5050
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#define FUNCTION(name, body) \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n" body \
            "\n.cfi_endproc\n.size " #name ",.-" #name)
/* Adds up n words. The frame is found by r8 meanwhile. */
FUNCTION(sum, "mov %rsp,%r8\n.cfi_def_cfa_register %r8\nmov %rdi,%rsp\nxor %eax,%eax\n"
    "1: pop %rdx\nadd %rdx,%rax\ntest $1,%al\njz 2f\nadd $3,%rax\nsub $3,%rax\n2: dec %rsi\njnz 1b\n"
    "mov %r8,%rsp\n.cfi_def_cfa_register %rsp\nret");
/* Fills n words in front of an address with n, n - 1, ... 1, by exchanges of rsp. */
FUNCTION(fill, "xchg %rsp,%rdi\n1: push %rsi\nsub $1,%rsi\njnz 1b\nxchg %rdi,%rsp\nret");
/* Copies n words. The stack pointer is saved in memory. */
FUNCTION(copy, "push %rbx\n.cfi_adjust_cfa_offset 8\nmov %rsp,-8(%rcx)\nmov %rsi,%rsp\n"
    "1: pop %rbx\nmov %rbx,(%rdi)\nlea 8(%rdi),%rdi\nlea -1(%rdx),%rdx\ntest %rdx,%rdx\njne 1b\n"
    "mov -8(%rcx),%rsp\npop %rbx\n.cfi_adjust_cfa_offset -8\nret");
/* The second word, by `pop` of the address into rsp. */
FUNCTION(first, "mov %rsp,%r8\npush %rdi\npop %rsp\npop %rax\ntest %rax,%rax\njz 1f\nadd (%rsp),%rax\n1: mov %r8,%rsp\nret");
/* The second word; `leave` puts the address into rsp, and the first word into rbp. */
FUNCTION(left, "push %rbp\nmov %rsp,%r8\nmov %rdi,%rbp\nleave\ntest %rbp,%rbp\njnz 1f\npop %rax\n1: mov %r8,%rsp\npop %rbp\nret");
/* Adds n words with carries from one word to the next: all flags stay as they are at each `pop`. */
FUNCTION(carry, "mov %rsp,%r9\nlea (%rdi),%rsp\nxor %eax,%eax\n1: pop %rdx\nadc %rdx,%rax\njnc 2f\nlea 1(%rcx),%rcx\n"
    "2: dec %rsi\njnz 1b\nadc $0,%rax\nmov %r9,%rsp\nret");
/* All registers are in use; the address comes by a conditional move and from memory. */
FUNCTION(last, "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp,%rax\n"
    "mov %edi,%edi\nmov $1,%ebx\nmov $2,%ecx\nmov $3,%edx\nmov $4,%ebp\nmov $5,%r8d\nmov $6,%r9d\nmov $7,%r10d\n"
    "mov $8,%r11d\nmov $9,%r12d\nmov $10,%r13d\nmov $11,%r14d\nmov $12,%r15d\n"
    "cmp %rdi,%rdi\ncmove (%rsi),%rsp\npop %rsi\njne 1f\npop %rdi\n1: pushfq\npop (%rsp)\n"
    "add %rbx,%rsi\nadd %rcx,%rsi\nadd %rdx,%rsi\nadd %rbp,%rsi\nadd %r8,%rsi\nadd %r9,%rsi\nadd %r10,%rsi\nadd %r11,%rsi\n"
    "add %r12,%rsi\nadd %r13,%rsi\nadd %r14,%rsi\nadd %r15,%rsi\n"
    "mov %rax,%rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nlea -78(%rsi),%rax\nret");
/* Goes to another stack: from, to. */
#define PUSH(name) "push %" name "\n.cfi_adjust_cfa_offset 8\n"
#define POP(name) "pop %" name "\n.cfi_adjust_cfa_offset -8\n"
FUNCTION(change, PUSH("rbx") PUSH("r12") PUSH("r13") PUSH("r14") PUSH("r15") PUSH("rbp")
    "mov %rsp,(%rdi)\nmov (%rsi),%rsp\n" POP("rbp") "test %rbp,%rbp\njz 1f\nnop\n1: "
    POP("r15") POP("r14") POP("r13") POP("r12") POP("rbx") "ret");
long sum(long *, long), first(long *), left(long *), carry(long *, long), last(long, long **);
void fill(long *, long), copy(long *, long *, long, long **);
void change(void **, void **);
enum { SIZE = 64, AT = 24 };
struct result { long sum, fill, copy, first, left, carry, last[2], changed, page; };
/* Guards on both sides of the words that are used. */
static int guard(long *words, int from, int to)
{
    int bad = 0;
    for (int i = 0; i < SIZE; i++)
        bad += (i < from || i >= to) && words[i] != -i;
    return bad;
}
static void reset(long *words)
{
    for (int i = 0; i < SIZE; i++)
        words[i] = -i;
}
static void *work(void *given)
{
    struct result *r = given;
    long words[SIZE], others[SIZE], *saved[2];
    char *page = mmap(0, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 4096, 8192, PROT_READ | PROT_WRITE);
    for (int round = 0; round < 200; round++) {
        reset(words);
        for (int i = 0; i < 8; i++)
            words[AT + i] = 20;
        r->sum += sum(words + AT, 8);
        r->changed += guard(words, AT, AT + 8);
        reset(words);
        fill(words + AT, 8);
        r->fill = sum(words + AT - 8, 8);
        r->changed += guard(words, AT - 8, AT);
        reset(others);
        copy(others + AT, words + AT - 8, 8, saved + 1);
        r->copy = sum(others + AT, 8);
        r->changed += guard(others, AT, AT + 8) + guard(words, AT - 8, AT);
        reset(words);
        words[AT] = 3, words[AT + 1] = 4;
        r->first = first(words + AT);
        words[AT] = 0, words[AT + 1] = 9;
        r->left = left(words + AT);
        r->changed += guard(words, AT, AT + 2);
        words[AT] = words[AT + 1] = words[AT + 2] = -1, words[AT + 3] = 7;
        r->carry = carry(words + AT, 4);
        r->changed += guard(words, AT, AT + 4);
        words[AT] = 3, words[AT + 1] = 1, words[AT + 2] = 0;
        long *address = words + AT;
        r->last[0] = last(1, &address);
        r->last[1] = words[AT + 3] != 7;
        words[AT + 1] = -AT - 1, words[AT + 2] = -AT - 2, words[AT + 3] = -AT - 3;
        r->changed += guard(words, AT, AT + 1);
        r->page += sum((long *)(page + 4096), 100);
    }
    return 0;
}
static void *stacks[2];
static long total;
static long other[4096];
static void second(void)
{
    for (long i = 1;; i++) {
        total += i;
        change(&stacks[1], &stacks[0]);
    }
}
int main(void)
{
    struct result r[2] = {0};
    pthread_t thread;
    pthread_create(&thread, 0, work, &r[1]);
    work(&r[0]);
    pthread_join(thread, 0);
    long *top = other + 4000;
    *--top = 0;
    *--top = (long)second;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    stacks[1] = top;
    for (int i = 0; i < 100; i++)
        change(&stacks[0], &stacks[1]);
    printf("sum %ld fill %ld copy %ld first %ld left %ld carry %ld last %ld %ld kept %ld %ld switched %ld\n", r[0].sum,
        r[1].fill, r[0].copy, r[1].first, r[0].left, r[1].carry, r[0].last[0], r[1].last[1], r[0].changed + r[1].changed,
        r[0].page + r[1].page, total);
    return r[0].sum != r[1].sum || r[0].carry != r[1].carry;
}
