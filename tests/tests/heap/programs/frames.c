// Stack frames of several kinds, and recursion. Each procedure allocates blocks of a size of its own.
#include <alloca.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noclone)) static
#define NO_TAIL_CALL asm volatile("")

static void *volatile block;
static char *volatile room;

APART void f_take(size_t size) { block = malloc(size); free(block); NO_TAIL_CALL; }

APART void f_plain(void) { f_take(11); NO_TAIL_CALL; }

APART void f_dynamic(int size) {
  char bytes[size];
  room = bytes;
  f_take(13);
  room = alloca(size);
  f_plain();
}

APART void f_aligned(int size) {
  __attribute__((aligned(64))) char bytes[64];
  room = bytes;
  f_take(17);
  room = alloca(size);
  f_plain();
}

// Keeps a value in each register that it may use, rbp included.
APART long f_full(long a, long b, long c, long d, long e, long f) {
  for (int i = 0; i < 3; i++) { f_take(19); a += b; b += c; c += d; d += e; e += f; f += a; }
  return a ^ b ^ c ^ d ^ e ^ f;
}

APART void f_odd(int more);
APART void f_even(int more) {
  if (more == 0) f_take(23); else f_odd(more - 1);
  NO_TAIL_CALL;
}
APART void f_odd(int more) {
  if (more == 0) f_take(29); else f_even(more - 1);
  NO_TAIL_CALL;
}

APART int f_order(const void *a, const void *b) {
  f_take(31);
  return *(const int *)a - *(const int *)b;
}

APART void f_sort(void) {
  int numbers[2] = {2, 1};
  qsort(numbers, 2, sizeof *numbers, f_order);
}

int main(void) {
  for (int i = 1; i <= 100; i++) {
    f_plain();
    f_dynamic(8 * i);
    f_aligned(24 * i);
    f_full(1, 2, 3, 4, 5, i);
    f_even(i);
    f_sort();
  }
  return 0;
}
