// Blocks and variables come and go in eight threads and in a forked child, all at once.
//
// variants: gcc-O1 gcc-O1-static
// cflags: -g -pthread
// counts: no
// stdout: 16000 0
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static long table[64];
static volatile long sum;
__attribute__((noinline)) static void *work(void *arg) {
    long n = (long)arg; volatile long local[8];
    for (int r = 0; r < 2000; r++) {
        volatile int *b = malloc(64);
        for (int i = 0; i < 16; i++) b[i] = i;
        volatile long *t = table;
        for (int i = 0; i < 8; i++) { t[n * 8 + i] += 1; local[i] = t[n * 8 + i]; }
        free((void *)b);
        b = malloc(40); b[3] = 1; free((void*)b);
    }
    return (void *)local[7];
}
int main(void) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < 8; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
    if (fork() == 0) { work((void *)3); _exit(0); }
    int s; wait(&s);
    printf("%ld %d\n", sum, s);
    return 0;
}
