// The work of a loop, done by one thread or by two halves of it; in rounds, each within section 2 of the
// parent. The callbacks' context is a clock of each thread, made by the spawn callback.
#include <atomium_rp.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

namespace {

const int rounds = 20, work = 10;
bool playing;

struct Clock {
    long ticks;
    long played;
};

Clock main_clock;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
int locks, spawns, joins;

void enter(const arp_sid, void *data, void *context)
{
    Clock *clock = static_cast<Clock *>(context);
    if (playing)
        clock->played = *static_cast<long *>(data);
    else
        *static_cast<long *>(data) = clock->ticks;
}

void leave(const arp_sid, void *data, void *context)
{
    Clock *clock = static_cast<Clock *>(context);
    long *value = static_cast<long *>(data);
    if (!playing)
        *value = clock->ticks - *value;
}

void spawn(const arp_tid, void **context)
{
    ++spawns;
    if (*context != &main_clock)
        abort();
    *context = new Clock();
}

void join(const arp_tid, void **context)
{
    ++joins;
    delete static_cast<Clock *>(*context);
}

void lock(const void *, void *context)
{
    pthread_mutex_lock(static_cast<pthread_mutex_t *>(context));
    ++locks;
}

void unlock(const void *, void *context)
{
    pthread_mutex_unlock(static_cast<pthread_mutex_t *>(context));
}

// The clock of a thread is the context that its enter callback got last.
__thread Clock *current;
void enter_and_note(const arp_sid sid, void *data, void *context)
{
    current = static_cast<Clock *>(context);
    enter(sid, data, context);
}

void spend(long cost)
{
    if (playing && current->played != cost) {
        std::fprintf(stderr, "played %ld for %ld\n", current->played, cost);
        abort();
    }
    current->ticks += cost;
}

void kernels(arp_tid tid, int round, int first, int last)
{
    for (int x = first; x < last; ++x) {
        arp_enter_kernel(tid, 1, first);
        spend(1000 * round + x);
        arp_leave_kernel(tid, 1);
    }
}

struct Half {
    arp_tid tid;
    int round, first, last;
};

void *run(void *argument)
{
    Half *half = static_cast<Half *>(argument);
    arp_spawned(1, half->tid);
    kernels(half->tid, half->round, half->first, half->last);
    arp_join(half->tid);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    bool parallel = argc > 1 && std::strchr(argv[1], 'p');
    playing = argc > 1 && std::strchr(argv[1], 'b');
    arp_add_callbacks(arp_long, enter_and_note, leave, spawn, join, &main_clock);
    arp_start(3, 2, playing ? arp_playback : arp_record_all, 0, 0, lock, unlock, &mutex);
    for (int round = 0; round < rounds; ++round) {
        arp_enter(1, 2, 0);
        if (parallel) {
            Half halves[2] = {{2, round, 0, work / 2}, {3, round, work / 2, work}};
            pthread_t threads[2];
            for (int i = 0; i < 2; ++i)
                pthread_create(&threads[i], 0, run, &halves[i]);
            for (int i = 0; i < 2; ++i)
                pthread_join(threads[i], 0);
        } else {
            kernels(1, round, 0, work);
        }
        arp_leave(1, 2);
    }
    arp_finish();
    if (parallel && (spawns != 2 * rounds || joins != spawns || locks != 2 * spawns))
        abort();
    return 0;
}
