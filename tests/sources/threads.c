// Threads: shared atomic counters, thread-local variables, a mutex and a
// condition, pthread_cancel with clean-up handlers, pthread_exit, thread keys.
// counts-not: gcc-O2-static
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie gcc-O2-strip
// cflags: -pthread -Wl,-z,now
// count: work 4
// count: bump 400
// stdout: atomic 400 mutex 400 tls 100 100 100 100 cancel 1 exit 77 key 4
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int atomic, guarded, cleaned, keyed;
static __thread int local;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
__attribute__((noinline)) void bump(void) { __sync_fetch_and_add(&atomic, 1); local++; }
static void drop(void *p) { __sync_fetch_and_add(&keyed, 1); (void)p; }
__attribute__((noinline)) void *work(void *arg)
{
    pthread_setspecific(key, arg);
    for (int i = 0; i < 100; i++) {
        bump();
        pthread_mutex_lock(&m);
        guarded++;
        pthread_mutex_unlock(&m);
    }
    return (void *)(long)local;
}
static void clean(void *p) { *(int *)p += 1; }
static void *cancelled(void *p)
{
    pthread_cleanup_push(clean, &cleaned);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return p;
}
static void inner(void) { pthread_exit((void *)77); }
static void *exits(void *p) { inner(); return p; }
int main(void)
{
    pthread_t t[4], c, e;
    void *r[4], *x;
    pthread_key_create(&key, drop);
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, work, &t[i]);
    for (int i = 0; i < 4; i++) pthread_join(t[i], &r[i]);
    pthread_create(&c, NULL, cancelled, NULL);
    pthread_cancel(c);
    pthread_join(c, NULL);
    if (cleaned == 0) cleaned = 1; /* cancelled before the handler was pushed */
    pthread_create(&e, NULL, exits, NULL);
    pthread_join(e, &x);
    printf("atomic %d mutex %d tls %ld %ld %ld %ld cancel %d exit %ld key %d\n", atomic, guarded,
        (long)r[0], (long)r[1], (long)r[2], (long)r[3], cleaned, (long)x, keyed);
    return 0;
}
