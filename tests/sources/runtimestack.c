// Compiled code of a language's runtime has a stack of some words; the assembly that leads to it and back has no frame
// descriptions. Nothing below the words that the program pushes may change.
// counts: no
// variants: gcc-O0 gcc-O2 clang-O2 gcc-O2-static gcc-O2-nopie-strip
// stdout: sum 5250 caught 100 changed 0
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define FUNCTION(name, body) \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" body "\n.size " #name ",.-" #name)
/* Saves the C stack and goes to the other one, whose topmost word says where. */
FUNCTION(enter, "push %rbp\nmov %rdi,%rbp\nmov %rsp,0x10(%rbp)\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov 8(%rbp),%rsp\nmov (%rbp),%rax\nmov $1,%ebx\nmov $2,%ecx\nmov $3,%edx\nmov $4,%esi\nmov $5,%edi\nmov $6,%r8d\n"
    "mov $7,%r9d\nmov $8,%r10d\nmov $9,%r11d\nmov $10,%r12d\nmov $11,%r13d\nmov $12,%r14d\nmov $13,%r15d\nret\n"
    "back: mov %rax,(%rbp)\nmov %rsp,8(%rbp)\nmov 0x10(%rbp),%rsp\nsub $0x28,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret");
/* The first entry: the closure and its argument are on the stack. */
FUNCTION(begin, "pop %rdx\npop %rax\njmp *(%rdx)");
/* What compiled code calls: back to C, with the reason. */
FUNCTION(pause, "push %rcx\nmovb $1,0x18(%rbp)\npop %rcx\ncmp $2,%ecx\njne 1f\njmp back\n1: ud2");
FUNCTION(raise, "mov 0x30(%rbp),%rcx\njmp *(%rcx)");
FUNCTION(handle, "push %rcx\nmovb $2,0x18(%rbp)\npop %rcx\njmp back");
struct state { long result; long *top, *c; char reason; void (*pause)(void), (*raise)(void), (**handler)(void); };
void enter(struct state *), begin(void), pause(void), raise(void), handle(void);
enum { SIZE = 600, USED = 12 };
int main(void)
{
    /* 1: add $1,%rax; mov $2,%ecx; call *0x20(%rbp); test $3,%al; jnz 1b; call *0x28(%rbp); jmp 1b */
    static const unsigned char text[] = {0x48, 0x83, 0xc0, 1, 0xb9, 2, 0, 0, 0, 0xff, 0x55, 0x20, 0xa8, 3, 0x75, 0xf0,
        0xff, 0x55, 0x28, 0xeb, 0xeb};
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, text, sizeof text);
    static long words[SIZE];
    static void (*handler)(void) = handle;
    long sum = 0, caught = 0, changed = 0;
    for (long round = 0; round < 25; round++) {
        for (int i = 0; i < SIZE; i++)
            words[i] = -i;
        void *closure = code;
        struct state s = {0, words + SIZE - 4, 0, 0, pause, raise, &handler};
        s.top[0] = (long)begin;
        s.top[1] = (long)&closure;
        s.top[2] = 0;
        for (int i = 0; i < 24; i++) {
            enter(&s);
            if (s.reason == 2)
                caught++, s.top++; /* The call of `raise` does not return. */
            else
                sum += s.result;
            if (s.reason == 2)
                *--s.top = (long)code;
        }
        for (int i = 0; i < SIZE - USED; i++)
            changed += words[i] != -i;
    }
    printf("sum %ld caught %ld changed %ld\n", sum, caught, changed);
    return 0;
}
