/* Images are filtered line by line, first along lines, then across them. Profiled
 * sections 2 and 5 are the filters, kernels 1 and 4 a line of each; 3 and 6 are the calls, 7 is the
 * loop over images and 8 is main. A line costs its width in ticks. */
#include "clock.h"

enum { Width = 12, Height = 5, Images = 3 };

static void line(int vertical, unsigned char in[Height][Width], unsigned char out[Height][Width], int y)
{
    int x;
    for (x = 0; x < Width; ++x) {
        int before, after;
        if (vertical) {
            before = in[y > 0 ? y - 1 : y][x];
            after = in[y < Height - 1 ? y + 1 : y][x];
        } else {
            before = in[y][x > 0 ? x - 1 : x];
            after = in[y][x < Width - 1 ? x + 1 : x];
        }
        out[y][x] = (unsigned char)((before + 2 * in[y][x] + after) / 4);
        ++ticks;
    }
}

static void along(unsigned char in[Height][Width], unsigned char out[Height][Width])
{
    int y;
    arp_enter_profiled(1, 2, 0);
    for (y = 0; y < Height; ++y) {
        arp_enter_kernel(1, 1, 0);
        line(0, in, out, y);
        arp_leave_kernel(1, 1);
    }
    arp_leave_profiled(1, 2);
}

static void across(unsigned char in[Height][Width], unsigned char out[Height][Width])
{
    int y;
    arp_enter_profiled(1, 5, 0);
    for (y = 0; y < Height; ++y) {
        arp_enter_kernel(1, 4, 0);
        line(1, in, out, y);
        ticks += (unsigned)y;
        arp_leave_kernel(1, 4);
    }
    arp_leave_profiled(1, 5);
}

#ifndef MODE
#define MODE arp_record_all
#endif

int main(int argc, char **argv)
{
    static unsigned char a[Height][Width], b[Height][Width], c[Height][Width];
    int t;

    if (argc > 1)
        arp_set_file_name(argv[1]);
    if (argc > 2)
        arp_set_output_file_format(arp_binary);
    arp_add_callbacks(arp_uint, enter_clock, leave_clock, 0, 0, 0);
    arp_start(1, 8, MODE, 0, 0, 0, 0, 0);
    arp_enter(1, 8, 0);
    for (t = 0; t < Images; ++t) {
        arp_enter(1, 7, 0);
        a[0][0] = (unsigned char)t;
        arp_enter(1, 3, 0);
        along(a, b);
        arp_leave(1, 3);
        arp_enter(1, 6, 0);
        across(b, c);
        arp_leave(1, 6);
        arp_leave(1, 7);
    }
    arp_leave(1, 8);
    arp_finish();
    return 0;
}
