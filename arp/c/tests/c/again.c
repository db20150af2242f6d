/* Three recordings, each with its file. */
#include "clock.h"
#include <stdio.h>

int main(void)
{
    int round;
    for (round = 0; round < 3; ++round) {
        char name[20];
        sprintf(name, "again%d.arp", round);
        arp_set_file_name(name);
        arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
        arp_start(1, 3, arp_record_all, 0, 0, 0, 0, 0);
        arp_enter_kernel(1, 1, 0);
        ticks += (unsigned)round + 1;
        arp_leave_kernel(1, 1);
        arp_finish();
    }
    return 0;
}
