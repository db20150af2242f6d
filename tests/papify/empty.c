// An actor that does nothing: what a start and a stop cost.
//
// Usage: empty CALLS; prints the processor time of a call in microseconds, and a sum.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned done;

__attribute__((noinline, noclone)) void actor_empty(unsigned i) { done = i; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    unsigned calls = argc > 1 ? (unsigned)atoi(argv[1]) : 1000000;
    double start = now();
    for (unsigned i = 0; i < calls; i++) actor_empty(i);
    printf("%.6f\n%u\n", (now() - start) / calls, done);
}
