// C++ objects in threads that are cancelled wherever they are: the unwinder starts at any
// instruction of `spin` or `mix`, which have nothing to destroy, and finds their caller's object.
// variants: gcc-O0 gcc-O2 clang-O2 gcc-O2-static
// cflags: -pthread -fasynchronous-unwind-tables -fno-optimize-sibling-calls
// counts: no
// stdout: cancelled 40 destroyed 40
#include <cstdio>
#include <ctime>
#include <pthread.h>

static int destroyed;
static volatile unsigned sink;

struct Object {
    unsigned check;
    explicit Object(unsigned n) : check(n) {}
    __attribute__((noinline)) ~Object() { destroyed += check == 12345; }
};

__attribute__((noinline)) static unsigned mix(unsigned n, unsigned x)
{
    for (unsigned i = 0; i < n; ++i)
        x = x * 1664525 + 1013904223 + i;
    return x;
}

__attribute__((noinline)) static unsigned spin(int *started, unsigned x)
{
    __atomic_store_n(started, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        x = mix(50 + (x & 3), x);
        if (!x)
            return 1;
        sink = x | 1;
    }
}

/* For all that the compiler knows it may throw. */
static unsigned (*volatile spins)(int *, unsigned) = spin;

__attribute__((noinline)) static unsigned holds(int *started)
{
    Object object(12345);
    unsigned x = spins(started, 1);
    return x + object.check;
}

static void *thread(void *started)
{
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    sink = holds(static_cast<int *>(started));
    return nullptr;
}

int main()
{
    int cancelled = 0;
    for (int i = 0; i < 40; ++i) {
        pthread_t t;
        int started = 0;
        void *result;
        pthread_create(&t, nullptr, thread, &started);
        while (!__atomic_load_n(&started, __ATOMIC_SEQ_CST))
            ;
        timespec pause = {0, 50000 + 7919 * i};
        nanosleep(&pause, nullptr);
        pthread_cancel(t);
        pthread_join(t, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    std::printf("cancelled %d destroyed %d\n", cancelled, destroyed);
    return 0;
}
