// Loads a library by name and lets threads call it, which calls back.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static volatile long sink;
static long (*boxed)(long, void (*)(long));
__attribute__((noinline)) void work(long i) { sink = i; }
static void *busy(void *p) { *(long *)p = boxed(5000, work); return p; }
int main(void)
{
    void *library = dlopen("libsandbox.so", RTLD_NOW);
    pthread_t t[4];
    long wrong[5], sum = 0;
    if (!library || !(boxed = (long (*)(long, void (*)(long)))dlsym(library, "boxed"))) return 90;
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, busy, &wrong[i]);
    busy(&wrong[4]);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 5; i++) sum += wrong[i];
    printf("%ld wrong\n", sum);
    return 0;
}
