/* A thread that is spawned again and again, and announces itself while its parent records. */
#include "clock.h"
#include <pthread.h>
#include <stdlib.h>

enum { Spawns = 300, Kernels = 200000 };

static volatile int stop;

static void *child(void *argument)
{
    int i;
    (void)argument;
    for (i = 0; i < Spawns; ++i) {
        arp_spawned(1, 0);
        arp_enter_kernel(0, 3, i);
        ++ticks;
        arp_leave_kernel(0, 3);
        arp_join(0);
    }
    stop = 1;
    return 0;
}

int main(void)
{
    pthread_t thread;
    int i;
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_set_output_file_format(arp_binary);
    arp_start(1, 3, arp_record_all, 0, 0, 0, 0, 0);
    arp_enter(1, 2, 0);
    if (pthread_create(&thread, 0, child, 0))
        abort();
    for (i = 0; i < Kernels || !stop; ++i) {
        arp_enter_kernel(1, 1, 0);
        ++ticks;
        arp_leave_kernel(1, 1);
    }
    pthread_join(thread, 0);
    arp_leave(1, 2);
    ticks = (unsigned)i;
    arp_enter_kernel(1, 3, 1000000);
    ticks += (unsigned)i;
    arp_leave_kernel(1, 3);
    arp_finish();
    return 0;
}
