// Allocations that are known: see the test for their numbers. Names of functions begin with p_.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noclone))

static void *volatile sink;

APART void *p_make(size_t size) { void *made = malloc(size); memset(made, 1, size); return made; }
APART void *p_tail(size_t size) { return malloc(size); }
APART void p_short(int n) { for (int i = 0; i < n; i++) { sink = p_make(100); free(sink); } }
APART void p_leak(int n) { for (int i = 0; i < n; i++) sink = p_make(30); }
APART void p_peak(void) {
  void *all[50];
  for (int i = 0; i < 50; i++) all[i] = p_make(4000);
  for (int i = 0; i < 50; i++) free(all[i]);
}
APART void p_others(void) {
  sink = calloc(7, 11);
  sink = realloc(sink, 500);
  sink = realloc(sink, 100000);
  free(sink);
  sink = memalign(64, 128);
  free(sink);
  sink = aligned_alloc(32, 96);
  free(sink);
  void *block = 0;
  if (posix_memalign(&block, 256, 1000) == 0) free(block);
  sink = reallocarray(0, 3, 40);
  free(sink);
  sink = p_tail(77);
  free(sink);
  free(0);
}
static struct { size_t used; char bytes[1 << 16]; } pool;
APART void *p_pool(int unused, size_t size) { void *at = pool.bytes + pool.used; pool.used += size + 16; return at; }
APART void p_give(void *block) { sink = block; }
APART void *p_thread(void *block) { free(block); sink = p_make(60); return sink; }

int main(int argc, char **argv) {
  p_short(200);
  p_leak(5);
  p_peak();
  p_others();
  for (int i = 0; i < 10; i++) {
    void *block = p_pool(0, 48);
    if (i < 7) p_give(block);
    if (i == 3) p_give(block);
  }
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, p_thread, malloc(40));
    pthread_join(thread, &result);
    free(result);
  }
  return 0;
}
