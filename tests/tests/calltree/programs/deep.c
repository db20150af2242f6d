// A recursion of a depth that the first argument gives. Each level jumps to a procedure when it enters, calls one, and
// jumps to one when it returns.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noclone))

static volatile long sink;
static long depth;

APART long p_last(long n) { sink += n; return n & 7; }
APART long p_called(long n) { return sink + n; }
APART long p_enter(long n);
APART long p_level(long n) {
  sink = p_called(n);
  long r = n == 0 ? 0 : p_enter(n - 1);
  return p_last(r);
}
APART long p_enter(long n) { sink--; return p_level(n); }
APART void *p_run(void *unused) { printf("%ld\n", p_enter(depth)); return unused; }

int main(int argc, char **argv) {
  depth = argc > 1 ? atol(argv[1]) : 100000;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 28);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, p_run, NULL) != 0) return 1;
  return pthread_join(thread, NULL);
}
