// Calls of all kinds, for the judge of call paths. Names of functions below begin with p_.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static volatile long sink;
static jmp_buf back;

APART void p_leaf(int n) { for (int i = 0; i < n; i++) sink += i; }
APART void p_tail(int n) { sink = 7; p_leaf(n); }
APART void p_twice(int n) { p_leaf(n); sink++; p_tail(n); sink++; }
APART long p_deep(int n) { if (n == 0) return 1; long r = p_deep(n - 1); sink = r; return r + n; }
APART int p_odd(int n);
APART int p_even(int n) { if (n == 0) return 1; int r = p_odd(n - 1); sink = r; return r; }
APART int p_odd(int n) { if (n == 0) return 0; int r = p_even(n - 1); sink++; return r; }
APART int p_ping(int n);
APART int p_pong(int n) { sink++; return n == 0 ? 0 : p_ping(n - 1); }
APART int p_ping(int n) { sink--; return n == 0 ? 1 : p_pong(n - 1); }
APART int p_compare(const void *a, const void *b) { p_leaf(2); return *(const int *)a - *(const int *)b; }
APART void p_sort(int n) {
  int all[64];
  for (int i = 0; i < n; i++) all[i] = (i * 37) % 61;
  qsort(all, n, sizeof *all, p_compare);
  sink += all[3];
}
APART void p_throw(int n) { p_leaf(1); if (n == 0) longjmp(back, 1); p_throw(n - 1); sink++; }
APART void p_catch(int n) {
  if (setjmp(back) == 0) p_throw(n);
  sink++;
  p_leaf(3);
}
APART void p_handler(int number) { p_leaf(number); sink++; }
APART void p_raise(void) { raise(SIGUSR1); sink++; }
APART void p_switch(int n) {
  switch (n % 6) {
    case 0: sink++; break;
    case 1: p_leaf(1); break;
    case 2: sink -= 2; p_leaf(2); break;
    case 3: sink *= 3; break;
    case 4: p_tail(1); break;
    default: sink = 5;
  }
}
static void (*volatile choice)(int);
APART void p_indirect(int n) { choice = n & 1 ? p_leaf : p_twice; choice(n); sink++; }
APART void *p_thread(void *n) { p_twice((int)(long)n); p_deep(5); return 0; }

static sigjmp_buf escape;
APART void p_leaver(int number) { p_leaf(number); siglongjmp(escape, 1); }
APART void p_escape(int n) { if (n == 0) raise(SIGUSR2); p_escape(n - 1); sink++; }
APART void *p_escaping(void *unused) {
  static char stack[1 << 16];
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&other, 0);
  struct sigaction action = {.sa_handler = p_leaver, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR2, &action, 0);
  for (volatile int i = 0; i < 3; i++) {
    if (sigsetjmp(escape, 1) == 0) p_escape(i + 2);
    p_twice(2);
  }
  return unused;
}

int main(void) {
  static char stack[1 << 16];
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&other, 0);
  struct sigaction action = {.sa_handler = p_handler, .sa_flags = SA_ONSTACK};
  for (int i = 0; i < 20; i++) p_twice(i);
  for (int i = 0; i < 5; i++) p_deep(i);
  p_even(9);
  p_odd(4);
  for (int i = 0; i < 7; i++) p_ping(i);
  p_sort(40);
  for (int i = 0; i < 6; i++) p_catch(i);
  sigaction(SIGUSR1, &action, 0);
  p_raise();
  action.sa_flags = 0;
  sigaction(SIGUSR1, &action, 0);
  p_raise();
  for (int i = 0; i < 30; i++) p_switch(i);
  for (int i = 0; i < 10; i++) p_indirect(i);
#ifndef ALONE
  for (long i = 0; i < 3; i++) {
    pthread_t thread;
    pthread_create(&thread, 0, p_thread, (void *)i);
    pthread_join(thread, 0);
  }
  pthread_t thread;
  pthread_create(&thread, 0, p_escaping, 0);
  pthread_join(thread, 0);
#endif
  return 0;
}
