// Threads that are cancelled while they wait in system calls, or compute: the C library's handler asks whether the
// interrupted address is one of its own stub for system calls, and unwinds from there.
// Prints: waiting 24 cancelled 24, computing 24 cancelled 24
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static int pipes[2];
static sem_t never;
static volatile int cleaned;
static volatile unsigned words[64];

static void clean(void *what)
{
    (void)what;
    __sync_fetch_and_add(&cleaned, 1);
}

static void *reads(void *unused)
{
    char byte;
    pthread_cleanup_push(clean, unused);
    while (read(pipes[0], &byte, 1) < 0 && errno == EINTR) {}
    pthread_cleanup_pop(0);
    return unused;
}

static void *sleeps(void *unused)
{
    pthread_cleanup_push(clean, unused);
    for (;;)
        sleep(1000);
    pthread_cleanup_pop(0);
    return unused;
}

static void *waits(void *unused)
{
    pthread_cleanup_push(clean, unused);
    while (sem_wait(&never)) {}
    pthread_cleanup_pop(0);
    return unused;
}

static void *computes(void *unused)
{
    int before;
    pthread_cleanup_push(clean, unused);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (unsigned i = 0;; i++)
        words[i % 64] += i * 2654435761u;
    pthread_cleanup_pop(0);
    return unused;
}

static int cancelled(void *(*const work[])(void *), int kinds, int many, int delay)
{
    int ended = 0;
    cleaned = 0;
    for (int i = 0; i < many; i++) {
        pthread_t thread;
        void *result = NULL;
        pthread_create(&thread, NULL, work[i % kinds], NULL);
        if (i >= kinds)
            usleep(i % 2 ? delay : delay / 10);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        ended += result == PTHREAD_CANCELED;
    }
    return cleaned <= many ? ended : -1;
}

int main(void)
{
    void *(*const waiting[])(void *) = {reads, sleeps, waits};
    void *(*const computing[])(void *) = {computes};
    if (pipe(pipes) || sem_init(&never, 0, 0))
        return 1;
    int first = cancelled(waiting, 3, 24, 2000);
    int second = cancelled(computing, 1, 24, 700);
    printf("waiting 24 cancelled %d, computing 24 cancelled %d\n", first, second);
    return 0;
}
