// A process with several threads forks in one of them, within a section; and recursion.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ato.h"

static volatile int stop, started;
static volatile long sum;

__attribute__((noinline)) static void kernel(int n)
{
    ATO_KERNEL_BEGIN(item);
    sum += n;
    ATO_KERNEL_END(item);
}

// Records all the time, so that a fork finds it at work.
static void *busy(void *unused)
{
    __sync_fetch_and_add(&started, 1);
    while (!stop)
        kernel(1);
    return unused;
}

static void *forks(void *status)
{
    ATO_PROFILE_BEGIN(around);
    for (int i = 0; i < 3; ++i) {
        pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 100 + i; ++k) {
                ATO_KERNEL_BEGIN(child);
                sum += k;
                ATO_KERNEL_END(child);
            }
            _exit(10 + i);
        }
        int result;
        waitpid(child, &result, 0);
        *(int *)status += WEXITSTATUS(result);
    }
    ATO_PROFILE_END(around);
    return NULL;
}

__attribute__((noinline)) static int depth(int n)
{
    int result = 0;
    ATO_PROFILE_BEGIN(level);
    if (n > 0)
        result = 1 + depth(n - 1);
    ATO_PROFILE_END(level);
    return result;
}

int main(void)
{
    pthread_t threads[3], forking;
    int status = 0;
    for (int i = 0; i < 3; ++i)
        pthread_create(&threads[i], NULL, busy, NULL);
    while (started < 3)
        usleep(1000);
    pthread_create(&forking, NULL, forks, &status);
    pthread_join(forking, NULL);
    stop = 1;
    for (int i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    printf("%d %d\n", status, depth(5) + depth(2));
    return 0;
}
