/* Tasks in one memory with one thread pointer, which run at the same time: what LeakSanitizer's tracer is. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 3, ROUNDS = 200000, STACK = 1 << 17 };
static volatile int started;

__attribute__((noinline, noclone)) unsigned step(unsigned x) { return x * 1664525u + 1013904223u; }

__attribute__((noinline, noclone)) unsigned work(unsigned x) {
  for (int i = 0; i < ROUNDS; i++) x = step(x);
  return x;
}

static unsigned results[TASKS];

static int task(void *number) {
  __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
  while (started < TASKS + 1) {
  }
  results[(long)number] = work((unsigned)(long)number);
  return 0;
}

int main(void) {
  int pids[TASKS];
  for (long i = 0; i < TASKS; i++) {
    char *stack = malloc(STACK);
    pids[i] = clone(task, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, (void *)i);
    if (pids[i] < 0) return perror("clone"), 1;
  }
  __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
  unsigned own = work(99);
  for (int i = 0; i < TASKS; i++) waitpid(pids[i], 0, 0);
  printf("%u %u %u %u\n", own, results[0], results[1], results[2]);
  return 0;
}
