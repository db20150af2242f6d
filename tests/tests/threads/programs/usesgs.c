// A program that uses gs itself: per-thread data is found without it.
// variants: gcc-O2 gcc-O2-static
// cflags: -pthread
// count: work 200000
// stdout: 42 done
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile long sink;
static long mine[4] = {0, 42};
__attribute__((noinline)) void work(long i) { sink = i; }
__attribute__((noinline)) static long through_gs(void)
{
    long v;
    __asm__("movq %%gs:8, %0" : "=r"(v));
    return v;
}
static void *busy(void *p) { for (long i = 0; i < 50000; i++) work(i); return p; }
int main(void)
{
    pthread_t t[4];
    long ok;
    __asm__ volatile("syscall" : "=a"(ok) : "a"((long)SYS_arch_prctl), "D"(0x1001L), "S"(mine) : "rcx", "r11", "memory");
    if (ok) return 1;
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, busy, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    printf("%ld done\n", through_gs());
    return 0;
}
