/* A task that traces its parent, whose memory and thread pointer it shares, and looks for pointers as LeakSanitizer does:
   in the registers, and on the stack from rsp on. Values that only registers hold are found at each stop. */
#define _GNU_SOURCE
#include <elf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOPS = 400, STACK = 1 << 17, VALUES = 8, MOST = 1 << 16 };

/* The values are these numbers times this one, which memory does not hold. */
#define FACTOR 0x1357924680acull
static char *volatile end_of_stack;
static pid_t parent;
static volatile int done, begun;
static int lost, elsewhere, failed;
static unsigned long cells[512];

/* The task's calls do not touch errno, which is its parent's. */
static long call(long number, long a, long b, long c, long d) {
  register long r10 __asm__("r10") = d;
  long result = number;
  __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

static void scan(const struct user_regs_struct *registers) {
  char *rsp = (char *)registers->rsp;
  if (rsp > end_of_stack || end_of_stack - rsp > MOST) {
    elsewhere++;
    return;
  }
  for (unsigned long value = 1; value <= VALUES; value++) {
    unsigned long wanted = value * FACTOR, found = 0;
    for (unsigned long *r = (unsigned long *)registers; r < (unsigned long *)(registers + 1); r++) found += *r == wanted;
    /* Below rsp the red zone counts, too: registers are kept there. */
    for (unsigned long *w = (unsigned long *)(rsp - 128); w < (unsigned long *)end_of_stack; w++) found += *w == wanted;
    lost += found == 0;
  }
}

static int trace(void *unused) {
  (void)unused;
  while (!begun) {}
  for (int i = 0; i < STOPS; i++) {
    struct user_regs_struct registers;
    struct iovec piece = {&registers, sizeof registers};
    int status = 0;
    if (call(SYS_ptrace, PTRACE_ATTACH, parent, 0, 0) < 0) { failed++; break; }
    if (call(SYS_wait4, parent, (long)&status, __WALL, 0) != parent) { failed++; break; }
    long answer = i % 2 ? call(SYS_ptrace, PTRACE_GETREGSET, parent, NT_PRSTATUS, (long)&piece)
                        : call(SYS_ptrace, PTRACE_GETREGS, parent, 0, (long)&registers);
    if (answer < 0 || piece.iov_len != sizeof registers) failed++;
    else scan(&registers);
    call(SYS_ptrace, PTRACE_DETACH, parent, 0, 0);
    for (volatile int n = 0; n < 1000 + i * 37 % 1000; n++) {}
  }
  done = 1;
  return 0;
}

__attribute__((noinline)) static void spin(void) {
  end_of_stack = (char *)__builtin_frame_address(0);
  __asm__ volatile(
      "movabs %[factor], %%rax\n\t"
      "mov %%rax, %%rbx\n\t"
      "lea (%%rax,%%rax), %%r12\n\t"
      "lea (%%r12,%%rax), %%r13\n\t"
      "lea (%%r13,%%rax), %%r14\n\t"
      "lea (%%r14,%%rax), %%r15\n\t"
      "lea (%%r15,%%rax), %%r8\n\t"
      "lea (%%r8,%%rax), %%r9\n\t"
      "lea (%%r9,%%rax), %%rdi\n\t"
      "xor %%eax, %%eax\n\t"
      "movl $1, %[begun]\n"
      "1:\n\t"
      "inc %%ecx\n\t"
      "and $511, %%ecx\n\t"
      "incq (%%rsi,%%rcx,8)\n\t"
      "cmpl $0, %[done]\n\t"
      "je 1b\n\t"
      "mov %%rbx, 0(%%rsi)\n\tmov %%r12, 8(%%rsi)\n\tmov %%r13, 16(%%rsi)\n\tmov %%r14, 24(%%rsi)\n\t"
      "mov %%r15, 32(%%rsi)\n\tmov %%r8, 40(%%rsi)\n\tmov %%r9, 48(%%rsi)\n\tmov %%rdi, 56(%%rsi)\n\t"
      : [begun] "=m"(begun), [done] "+m"(done)
      : [factor] "i"(FACTOR), "S"(cells), "c"(0)
      : "rax", "rbx", "rdi", "r8", "r9", "r12", "r13", "r14", "r15", "memory", "cc");
}

int main(void) {
  parent = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  char *stack = malloc(STACK);
  pid_t tracer = clone(trace, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED | SIGCHLD, NULL);
  if (tracer < 0) return perror("clone"), 1;
  spin();
  waitpid(tracer, NULL, 0);
  int right = 0;
  for (unsigned long i = 0; i < VALUES; i++) right += cells[i] == (i + 1) * FACTOR;
  printf("values %d lost %d elsewhere %d failed %d\n", right, lost, elsewhere, failed);
  return 0;
}
