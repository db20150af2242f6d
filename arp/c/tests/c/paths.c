/* One function with a kernel, called from three places: the paths to the kernel tell them apart. */
#include "clock.h"

#ifndef MODE
#define MODE arp_record_all
#endif

static void lines(int start, int stop)
{
    int y;
    arp_enter(1, 2, 0);
    for (y = start; y < stop; ++y) {
        arp_enter_kernel(1, 1, 0);
        ticks += (unsigned)y;
        arp_leave_kernel(1, 1);
    }
    arp_leave(1, 2);
}

int main(int argc, char **argv)
{
    int t;
    (void)argv;
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_start(1, 6, MODE, 0, 0, 0, 0, 0);
    for (t = 0; t < 2; ++t) {
        arp_enter(1, 5, 0);
        arp_enter(1, 3, 0);
        lines(0, 3);
        arp_leave(1, 3);
        arp_enter(1, 4, 0);
        lines(3, 5);
        arp_leave(1, 4);
        arp_leave(1, 5);
    }
    if (argc == 1) {
        arp_enter(1, 6, 0);
        lines(0, 2);
        arp_leave(1, 6);
    }
    arp_finish();
    return 0;
}
