// Handlers that interrupt analysis routines which hold a lock, in several threads.
// variants: gcc-O2 gcc-O2-static
// cflags: -pthread
// lock: yes
// stdout: done
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile long sink, handled;
__attribute__((noinline)) void work(long i) { sink = i; }
__attribute__((noinline)) void handler(int s) { work(s); __sync_fetch_and_add(&handled, 1); }
static void *busy(void *p) { while (handled < 2000) work(1); return p; }
int main(void)
{
    pthread_t t[3];
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, busy, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    busy(NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    puts("done");
    return 0;
}
