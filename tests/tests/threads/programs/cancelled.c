// Threads that are cancelled while they wait or test for it, and the clean-up handlers
// that run then, beside a thread that goes on. (In a static program the C library can be
// cancelled between two calls at one point, of which one then counts less.)
// variants: gcc-O2 gcc-O2-nopie
// cflags: -pthread
// lock: yes
// count: cleaned 200
// stdout: done 200
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static volatile long sink, on = 1;
__attribute__((noinline)) void work(long i) { sink = i; }
__attribute__((noinline)) void cleaned(void *p) { sink = *(long *)p; }
static void *endless(void *p)
{
    long mine = 3;
    pthread_cleanup_push(cleaned, &mine);
    *(volatile int *)p = 1;
    for (long i = 0;; i++) {
        work(1);
        if (i % 2) usleep(1);
        else pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return p;
}
static void *busy(void *p) { while (on) work(2); return p; }
int main(void)
{
    pthread_t b, t;
    int cancelled = 0;
    pthread_create(&b, NULL, busy, NULL);
    for (int i = 0; i < 200; i++) {
        void *r;
        volatile int ready = 0;
        pthread_create(&t, NULL, endless, (void *)&ready);
        while (!ready) usleep(i % 10 * 10);
        pthread_cancel(t);
        pthread_join(t, &r);
        cancelled += r == PTHREAD_CANCELED;
    }
    on = 0;
    pthread_join(b, NULL);
    printf("done %d\n", cancelled);
    return 0;
}
