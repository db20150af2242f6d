/* A program that changes its own code, in the ways of hooking and mocking libraries, of static keys and of debuggers.
   Each way prints what the changed code answers, and what it answers when the change is taken back. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, aligned(4096)))
#define PAGE 4096ul
enum { JUMP = 14 };

/* Enough bytes that can be copied anywhere: nothing here is relative to its own address. */
#define ROOM "nopw 0x1234(%rax,%rax,1)\n\tnopw 0x1234(%rax,%rax,1)\n\tnopw 0x1234(%rax,%rax,1)"

APART int first(int x) { __asm__(ROOM); return x * 3 + 1; }
APART int second(int x) { __asm__(ROOM); return x * 5 + 2; }
APART int third(int x) { __asm__(ROOM); return x - 9; }
APART int fourth(int x) { __asm__(ROOM); return x ^ 21; }
APART int fifth(int x) { __asm__(ROOM); return x + 77; }
APART int sixth(int x) { __asm__(ROOM); return x << 2; }
APART int replacement(int x) { return 1000000 + x; }

/* All calls are direct, from code that nobody changes. */
APART int all(int x) {
  int sum = first(x);
  sum = sum * 7 + second(x);
  sum = sum * 7 + third(x);
  sum = sum * 7 + fourth(x);
  sum = sum * 7 + fifth(x);
  return sum * 7 + sixth(x);
}

static void tell(const char *way) {
  printf("%s:", way);
  for (int x = 1; x <= 3; x++) printf(" %d", all(x));
  printf("\n");
}

/* jmp [rip]; address */
static void jump(unsigned char *code, const void *to) {
  static const unsigned char head[6] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(code, head, 6);
  memcpy(code + 6, &to, 8);
}

static void *page(const void *at) { return (void *)((uintptr_t)at & ~(PAGE - 1)); }

static void allow(const void *at, int protection) {
  if (mprotect(page(at), PAGE, protection)) perror("mprotect");
}

/* Saves the beginning first, then makes the page writable, as some mocking libraries do. */
static void mock(void) {
  unsigned char saved[JUMP];
  memcpy(saved, (void *)first, JUMP);
  allow((void *)first, PROT_READ | PROT_WRITE | PROT_EXEC);
  jump((unsigned char *)first, (void *)replacement);
  allow((void *)first, PROT_READ | PROT_EXEC);
  tell("mock");
  allow((void *)first, PROT_READ | PROT_WRITE | PROT_EXEC);
  memcpy((void *)first, saved, JUMP);
  allow((void *)first, PROT_READ | PROT_EXEC);
  tell("mock taken back");
}

/* A trampoline runs the original: its beginning, copied, then a jump to the rest. */
static int (*original)(int);
APART int around(int x) { return original(x) + 500; }
static void hook(int early) {
  unsigned char *copy = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char *at = (unsigned char *)second;
  if (!early) allow(at, PROT_READ | PROT_WRITE | PROT_EXEC);
  /* The first instruction after endbr64, if there is one, has 9 bytes. */
  int skip = at[0] == 0xf3 && at[1] == 0x0f && at[2] == 0x1e ? 4 : 0;
  int length = skip + 18;
  if (!early) {
    memcpy(copy, at, length);
    jump(copy + length, at + length);
    original = (int (*)(int))copy;
  } else {
    original = third;
  }
  if (early) allow(at, PROT_READ | PROT_WRITE | PROT_EXEC);
  unsigned char saved[JUMP];
  memcpy(saved, at, JUMP);
  printf("beginning: %02x %02x\n", saved[skip], saved[skip + 1]);
  jump(at, (void *)around);
  tell("hook");
  memcpy(at, saved, JUMP);
  allow(at, PROT_READ | PROT_EXEC);
  tell("hook taken back");
}

/* By the file of the process's memory: pages stay as they are. */
static void by_file(int seeks) {
  unsigned char saved[JUMP], code[JUMP];
  unsigned char *at = seeks ? (unsigned char *)third : (unsigned char *)fourth;
  int file = open("/proc/self/mem", O_RDWR);
  memcpy(saved, at, JUMP);
  jump(code, (void *)replacement);
  for (int back = 0; back < 2; back++) {
    const void *bytes = back ? saved : code;
    long done;
    if (seeks) {
      lseek(file, (off_t)(uintptr_t)at, SEEK_SET);
      done = write(file, bytes, JUMP);
    } else {
      done = pwrite(file, bytes, JUMP, (off_t)(uintptr_t)at);
    }
    printf("%ld bytes\n", done);
    tell(back ? "file taken back" : "file");
  }
  close(file);
}

/* New memory over the page, with the old contents and a change. */
static void mapped(void) {
  static unsigned char contents[PAGE];
  unsigned char *at = page((void *)fifth);
  memcpy(contents, at, PAGE);
  mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  memcpy(at, contents, PAGE);
  mprotect(at, PAGE, PROT_READ | PROT_EXEC);
  tell("mapped");
  mprotect(at, PAGE, PROT_READ | PROT_WRITE);
  jump((unsigned char *)fifth, (void *)replacement);
  mprotect(at, PAGE, PROT_READ | PROT_EXEC);
  tell("mapped and changed");
}

/* A debugger's breakpoint in a child that asks to be traced. */
static void traced(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    int sum = 0;
    for (int x = 0; x < 5; x++) sum += sixth(x);
    _exit(sum);
  }
  int status, stops = 0;
  waitpid(child, &status, 0);
  long word = ptrace(PTRACE_PEEKTEXT, child, (void *)sixth, 0);
  ptrace(PTRACE_POKETEXT, child, (void *)sixth, (void *)((word & ~0xffl) | 0xcc));
  ptrace(PTRACE_CONT, child, 0, 0);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == SIGTRAP) stops++;
    ptrace(PTRACE_POKETEXT, child, (void *)sixth, (void *)word);
#ifdef __x86_64__
    struct { unsigned long r[27]; } registers;
    ptrace(PTRACE_GETREGS, child, 0, &registers);
    enum { RIP = 16 };
    registers.r[RIP]--;
    ptrace(PTRACE_SETREGS, child, 0, &registers);
#endif
    ptrace(PTRACE_CONT, child, 0, 0);
  }
  printf("traced: %d stops, ends with %d\n", stops, WEXITSTATUS(status));
}

/* A key: five bytes in a loop that become a jump. */
__attribute__((noinline, noclone)) static int key(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    __asm__ goto("1: .byte 0x0f, 0x1f, 0x44, 0, 0\n .pushsection keys, \"aw\"\n .quad 1b, %l0\n .popsection" : : : : on);
    sum += 1;
    continue;
  on:
    sum += 100;
  }
  return sum;
}
extern struct key { unsigned char *at, *to; } __start_keys[], __stop_keys[];
static void turn(int on) {
  for (struct key *k = __start_keys; k < __stop_keys; k++) {
    mprotect(page(k->at), 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    unsigned char code[5] = {0x0f, 0x1f, 0x44, 0, 0};
    int32_t distance = (int32_t)(k->to - k->at - 5);
    if (on) code[0] = 0xe9, memcpy(code + 1, &distance, 4);
    memcpy(k->at, code, 5);
    mprotect(page(k->at), 2 * PAGE, PROT_READ | PROT_EXEC);
  }
}

int main(void) {
  tell("at first");
  mock();
  hook(0);
  hook(1);
  by_file(0);
  by_file(1);
  mapped();
  traced();
  printf("key: %d", key(9));
  turn(1);
  printf(" %d", key(9));
  turn(0);
  printf(" %d\n", key(9));
  return 0;
}
