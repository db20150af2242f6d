// Detached threads, one after the other and several at once. A C library may let such a thread unmap its own stack.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static volatile int begun;

static void *begin(void *unused)
{
    char room[2000];
    for (unsigned i = 0; i < sizeof room; i++) room[i] = (char)i;
    __sync_fetch_and_add(&begun, 1 + 0 * room[begun % 2000]);
    return unused;
}

/* Threads of this process that the kernel knows. */
static int running(void)
{
    int threads = 0;
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &threads);
    fclose(status);
    return threads;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &attributes, begin, NULL)) sched_yield();
        while (i % 2 && begun <= i) sched_yield();
    }
    for (int i = 0; i < 5000 && running() > 1; i++) usleep(1000);
    printf("begun %d, running %d\n", begun, running());
    return 0;
}
