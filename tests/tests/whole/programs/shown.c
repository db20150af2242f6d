// Handlers look at everything that signals show: address, registers, flags and stack of the interrupted code, at
// any of its instructions, and at its faults; and they ask to continue elsewhere.
//
// `walk` has the same values in all registers at each of its instructions, but for rbx, which counts, and rsp. Its
// table says for each instruction where it is, how far rbx has counted and how many words are pushed. The table
// has distances, not addresses, so nothing tells that signals lead to these instructions. No register is dead
// anywhere: an instruction that sets one reads it, too.
// Prints: walk 0 wrong, faults 0 wrong, frames 0 wrong
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unwind.h>

#ifndef ENOUGH
#define ENOUGH 300
#endif

// Registers in the order of their numbers in encodings. rsp is noted when all others are set.
static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
enum { RBX = 3, RSP = 4, R12 = 12, R14 = 14 };
// Carry, adjust, sign and overflow are set, parity and zero are clear.
enum { FLAGS = 0x891, ALL_FLAGS = 0x8d5 };

struct memory {
    uint64_t registers[16];
    uint64_t flags;
    uint64_t after[16];
    uint64_t flags_after;
    uint64_t scratch[2];
} walk_memory;
typedef char xmm[16];
xmm walk_vectors[16];

struct place {
    int32_t at;
    int16_t counted, pushed;
    int16_t is_count, is_anywhere;
};
extern const struct place walk_table[], walk_table_end[];
void walk(void);
uint64_t probe_load(void), probe_trap(void);
extern const int32_t probe_facts[4];

__asm__(
    ".set counted, 0\n.set pushed, 0\n"
    ".macro place count=0 any=0\n"
    "77:\n"
    ".pushsection .rodata.walk,\"a\",@progbits\n"
    ".long 77b - walk\n.short counted, pushed, \\count, \\any\n"
    ".popsection\n"
    ".endm\n"
    ".pushsection .rodata.walk,\"a\",@progbits\n.balign 4\n.globl walk_table\nwalk_table:\n.popsection\n"
    ".text\n.globl walk\n.type walk,@function\nwalk:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "lea walk_vectors(%rip), %rax\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovdqu \\n*16(%rax), %xmm\\n\n.endr\n"
    "lea walk_memory(%rip), %r14\n"
    "mov %rsp, 32(%r14)\n"
    "pushq 128(%r14)\npopfq\n"
    "mov 0(%r14), %rax\nmov 8(%r14), %rcx\nmov 16(%r14), %rdx\nmov 24(%r14), %rbx\nmov 40(%r14), %rbp\n"
    "mov 48(%r14), %rsi\nmov 56(%r14), %rdi\nmov 64(%r14), %r8\nmov 72(%r14), %r9\nmov 80(%r14), %r10\n"
    "mov 88(%r14), %r11\nmov 96(%r14), %r12\nmov 104(%r14), %r13\nmov 120(%r14), %r15\n"
    ".rept 24\n"
    "place 1\nlea 1(%rbx), %rbx\n.set counted, counted + 1\n"
    "place\nmov %rbx, 272(%r14)\n"
    "place\nxchg %rcx, 8(%r14)\n"
    "place\njnc 78f\n"
    "place\njs 79f\n"
    "78: ud2\n"
    "79: place\npush %rbx\n.set pushed, pushed + 1\n"
    "place\ncall walk_leaf\n"
    "place 1\nlea 1(%rbx), %rbx\n.set counted, counted + 1\n"
    "place\nmov %rdx, -8(%rsp)\n"
    "place\nlea 8(%rsp), %rsp\n.set pushed, pushed - 1\n"
    "place\nxchg %rsi, -8(%r14,%rdi,8)\n"
    "place\njmp 78f\n"
    "ud2\n"
    "78: place\nmovdqu %xmm3, %xmm3\n"
    ".endr\n"
    "place\n"
    "mov %rax, 136(%r14)\nmov %rcx, 144(%r14)\nmov %rdx, 152(%r14)\nmov %rbx, 160(%r14)\nmov %rsp, 168(%r14)\n"
    "mov %rbp, 176(%r14)\nmov %rsi, 184(%r14)\nmov %rdi, 192(%r14)\nmov %r8, 200(%r14)\nmov %r9, 208(%r14)\n"
    "mov %r10, 216(%r14)\nmov %r11, 224(%r14)\nmov %r12, 232(%r14)\nmov %r13, 240(%r14)\nmov %r14, 248(%r14)\n"
    "mov %r15, 256(%r14)\npushfq\npopq 264(%r14)\n"
    "lea walk_vectors(%rip), %rax\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovdqu %xmm\\n, \\n*16(%rax)\n.endr\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
    ".size walk, . - walk\n"
    ".type walk_leaf,@function\nwalk_leaf:\n"
    ".set pushed, 2\n"
    "place 0 1\nxchg %rdx, 16(%r14)\n"
    "place 0 1\nret\n"
    ".size walk_leaf, . - walk_leaf\n"
    ".pushsection .rodata.walk,\"a\",@progbits\n.globl walk_table_end\nwalk_table_end:\n.popsection\n"

    // A load from nowhere and a trap, whose handlers continue at places that only distances name.
    ".globl probe_load\n.type probe_load,@function\nprobe_load:\n"
    "mov $11, %eax\nmov $8, %ecx\ntest %ecx, %ecx\njz 80f\n"
    "nopl 0(%rax)\n"
    "81: mov (%rcx), %rdx\n"
    "80: inc %rax\nret\n"
    "ud2\n"
    "82: add $31, %rax\nret\n"
    ".size probe_load, . - probe_load\n"
    ".globl probe_trap\n.type probe_trap,@function\nprobe_trap:\n"
    "mov $5, %eax\nnopl 0(%rax)\nnopl 0(%rax)\n"
    "83: ud2\n"
    "inc %rax\nret\n"
    "84: add $6, %rax\nret\n"
    ".size probe_trap, . - probe_trap\n"
    ".pushsection .rodata.walk,\"a\",@progbits\n.globl probe_facts\n"
    "probe_facts: .long 81b - probe_load, 82b - probe_load, 83b - probe_trap, 84b - probe_trap\n.popsection\n");

static volatile int seen, wrong, faults, faults_wrong, frames_wrong, samples, active;
static unsigned noise = 12345;

static void complain(const char *what, long at, long found, long expected)
{
    if (wrong++ < 5)
        fprintf(stderr, "%s at %ld: %lx for %lx\n", what, at, found, expected);
}

static void next_signal(void)
{
    noise = noise * 1103515245 + 12345;
    struct itimerval t = {{0, 0}, {0, 30 + (noise >> 16) % 200}};
    setitimer(ITIMER_REAL, &t, 0);
}

static void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ucontext_t *u = context;
    greg_t *g = u->uc_mcontext.gregs;
    long at = g[REG_RIP] - (greg_t)walk;
    next_signal();
    if (at < walk_table->at || at > walk_table_end[-1].at)
        return;
    const struct place *place = walk_table;
    while (place < walk_table_end && place->at != at)
        place++;
    if (place == walk_table_end) {
        // The last instructions have no places.
        if (at < walk_table_end[-3].at)
            complain("address", at, at, 0);
        return;
    }
    seen++;
    for (int i = 0; i < 16; i++) {
        uint64_t expected = walk_memory.registers[i];
        if (i == RSP)
            expected -= 8 * place->pushed;
        if (i == R14)
            expected = (uint64_t)&walk_memory;
        if (i == RBX) {
            if (place->is_anywhere)
                continue;
            expected += place->counted;
        }
        if ((uint64_t)g[order[i]] != expected)
            complain("register", at * 100 + i, g[order[i]], expected);
    }
    if ((g[REG_EFL] & ALL_FLAGS) != FLAGS)
        complain("flags", at, g[REG_EFL], FLAGS);
    for (int i = 0; i < 16; i++)
        if (memcmp(&u->uc_mcontext.fpregs->_xmm[i], walk_vectors[i], 16))
            complain("vector", at * 100 + i, 0, 0);
    // What the handler changes comes to the program: a register, and the place.
    g[REG_R12] = ++walk_memory.registers[R12];
    if (place->is_count && seen % 2) {
        g[REG_RBX]++;
        g[REG_RIP] = (greg_t)walk + place[1].at;
    }
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    greg_t start = (greg_t)(signal == SIGSEGV ? probe_load : probe_trap);
    const int32_t *facts = probe_facts + (signal == SIGSEGV ? 0 : 2);
    greg_t fault = signal == SIGSEGV ? 8 : start + facts[0];
    faults++;
    if (g[REG_RIP] != start + facts[0] || (greg_t)info->si_addr != fault ||
        g[REG_RAX] != (signal == SIGSEGV ? 11 : 5))
        faults_wrong++;
    g[REG_RIP] = start + facts[1];
}

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *depth)
{
    (void)context;
    ++*(int *)depth;
    return _URC_NO_REASON;
}

static void on_sample(int signal)
{
    int depth = 0;
    (void)signal;
    if (!active)
        return;
    _Unwind_Backtrace(count, &depth);
    samples++;
    frames_wrong += depth < 20;
}

static unsigned table[1024];

__attribute__((noinline)) static unsigned deep(unsigned n, int depth)
{
    if (depth) {
        n = deep(n, depth - 1);
        __asm__ volatile("" ::: "memory");
        return n + depth;
    }
    active = 1;
    for (int i = 0; i < 20000; i++) {
        n = n * 1664525 + 1013904223;
        table[n >> 22] += n;
    }
    active = 0;
    return n;
}

int main(void)
{
    for (int i = 0; i < 16; i++) {
        walk_memory.registers[i] = 0x0101010101010101 * (i + 1) + (uint64_t)i * 0x1000000;
        memset(walk_vectors[i], 'a' + i, 16);
    }
    // The index by which rsi is loaded: its own place is the seventh word.
    walk_memory.registers[7] = 7;
    walk_memory.flags = FLAGS | 0x202;
    struct sigaction a = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &a, 0);
    uint64_t counted = walk_table_end[-3].counted;
    next_signal();
    while (seen < ENOUGH) {
        walk();
        for (int i = 0; i < 16; i++) {
            uint64_t expected = walk_memory.registers[i] + (i == RBX ? counted : 0);
            // r12 may have changed since it was stored.
            if (i == R14 || i == R12)
                continue;
            if (walk_memory.after[i] != expected)
                complain("result", i, walk_memory.after[i], expected);
        }
        if ((walk_memory.flags_after & ALL_FLAGS) != FLAGS)
            complain("result flags", 0, walk_memory.flags_after, FLAGS);
    }
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, 0);

    a.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &a, 0);
    sigaction(SIGILL, &a, 0);
    for (int i = 0; i < 10; i++)
        if (probe_load() != 42 || probe_trap() != 11)
            faults_wrong++;
    faults_wrong += faults != 20;

    struct sigaction s = {.sa_handler = on_sample, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &s, 0);
    struct itimerval t = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &t, 0);
    unsigned n = 1;
    while (samples < 50)
        n = deep(n, 20);
    setitimer(ITIMER_PROF, &off, 0);
    printf("walk %d wrong, faults %d wrong, frames %d wrong%s\n", wrong, faults_wrong, frames_wrong, n ? "" : "!");
    return 0;
}
