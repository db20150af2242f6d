// Prints addresses of its memory, and what it knows of children.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "ato.h"

static volatile int sum;

static void *thread(void *unused)
{
    (void)unused;
    printf("stack %p\n", (void *)&unused);
    ATO_KERNEL_BEGIN(item);
    ++sum;
    ATO_KERNEL_END(item);
    return malloc(10);
}

int main(void)
{
    int status, child = wait(&status), no_child = errno == ECHILD;
    void *small = malloc(10), *large = malloc(1 << 20), *result;
    void *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t other;
    ATO_PROFILE_BEGIN(all);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, &result);
    ATO_PROFILE_END(all);
    printf("%p %p %p %p %p %p %d %d\n", small, large, pages, result, (void *)&status, (void *)&sum, child, no_child);
    return 0;
}
