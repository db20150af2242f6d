/* Sections that are described, before and after the start. */
#include "clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] == 'b')
        arp_set_output_file_format(arp_binary);
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_describe_section(1, 1, "inner loop", "named.c", 12, 18);
    arp_start(1, 2, arp_record_all, 0, 0, 0, 0, 0);
    arp_describe_section(2, 0, "main", 0, 0, 0);
    arp_enter(1, 2, 0);
    arp_enter_kernel(1, 1, 0);
    arp_leave_kernel(1, 1);
    arp_leave(1, 2);
    arp_finish();
    arp_load_data("data.arp", 0, 0);
    if (strcmp(arp_get_section_name(1), "inner loop") || strcmp(arp_get_section_name(2), "main"))
        abort();
    if (arp_get_section_name(3))
        abort();
    arp_free_data();
    puts("ok");
    return 0;
}
