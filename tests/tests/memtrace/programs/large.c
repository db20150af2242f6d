// A string instruction with a large number of repetitions, and loops whose trace has several parts.
#include <stdlib.h>

enum { SIZE = 3000000 };

int main(void) {
  char *block = malloc(SIZE);
  char *to = block;
  unsigned long count = SIZE;
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(1) : "memory");
  volatile unsigned random = 1;
  for (int i = 0; i < 300000; i++) {
    random = random * 1664525 + 1013904223;
    block[random % SIZE]++;
  }
  return block[0] == 0;
}
