// A restorer of the program's own that does more than its system call: it counts, and keeps what the handler left in
// registers. The handler also lets the interrupted code continue elsewhere.
// variants: gcc-O0-static gcc-O2-static gcc-O2-static-strip
// cflags: -fno-stack-protector
// counts: no
// stdout: restored 12 rax 12 rbx 12 skipped 1
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#define SA_RESTORER 0x04000000
struct action { void *handler; unsigned long flags; void *restorer; unsigned long mask; };
long restored, of_rax, of_rbx;
static volatile int skipped;
void restore(void);
__asm__(".text\n.globl restore\n.type restore,@function\nrestore: incq restored(%rip)\n"
        "cmpq $77,%rax\njne 1f\nincq of_rax(%rip)\n1: cmpq $78,%rbx\njne 2f\nincq of_rbx(%rip)\n"
        "2: xorl %ebx,%ebx\nmovl $15,%eax\nsyscall\n.size restore,.-restore\n");
/* Leaves 77 in rax and 78 in rbx, which the frame brings back. */
void handle(int, siginfo_t *, void *);
__asm__(".text\n.globl handle\n.type handle,@function\nhandle: subq $8,%rsp\ncall handled\naddq $8,%rsp\n"
        "movl $77,%eax\nmovl $78,%ebx\nret\n.size handle,.-handle\n");
extern char fault[], after[];
void handled(int signal, siginfo_t *info, void *context)
{
    if (signal == SIGSEGV)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)after;
    (void)info;
}
/* 1 if the handler has skipped the rest. */
int faulting(void);
__asm__(".text\n.globl faulting, fault, after\n.type faulting,@function\nfaulting: xorl %eax,%eax\nincl %eax\n"
        "fault: movl 0,%ecx\ndecl %eax\nnop\nnop\nafter: ret\n.size faulting,.-faulting\n");
int main(void)
{
    struct action action = { (void *)handle, SA_SIGINFO | SA_RESTORER, (void *)restore, 0 };
    syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8);
    syscall(SYS_rt_sigaction, SIGSEGV, &action, NULL, 8);
    for (int i = 0; i < 11; i++)
        raise(SIGUSR1);
    skipped += faulting();
    printf("restored %ld rax %ld rbx %ld skipped %d\n", restored, of_rax, of_rbx, skipped);
    return 0;
}
