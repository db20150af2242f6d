// The allocator's procedures have second names, which are shorter.
#include <stddef.h>
#include <stdlib.h>

static struct { size_t used; char bytes[1 << 16]; } pool;

void *m(size_t size) { void *at = pool.bytes + pool.used; pool.used += (size + 15) & ~15ul; return at; }
void *c(size_t n, size_t size) { return m(n * size); }
void *r(void *block, size_t size) { (void)block; return m(size); }
void f(void *block) { (void)block; }
void *malloc(size_t size) __attribute__((alias("m")));
void *calloc(size_t n, size_t size) __attribute__((alias("c")));
void *realloc(void *block, size_t size) __attribute__((alias("r")));
void free(void *block) __attribute__((alias("f")));

void *o(size_t size) { return m(size); }
void *own(size_t size) __attribute__((alias("o")));

int main(void) {
  for (int i = 0; i < 5; i++) {
    void *volatile block = malloc(100);
    block = realloc(block, 200);
    free(block);
  }
  void *volatile block = calloc(3, 7);
  free(block);
  block = own(1000);
  return 0;
}
