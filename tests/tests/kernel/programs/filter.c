// Smooths a few small images, first along lines, then along columns.
// Kernels are the loops over one line; the loops over one image are profiled.
#include <stdio.h>

enum { WIDTH = 40, HEIGHT = 25, IMAGES = 3 };

typedef signed char image[HEIGHT][WIDTH];

static unsigned state = 12345;

static void input(image to)
{
    for (int y = 0; y < HEIGHT; ++y)
        for (int x = 0; x < WIDTH; ++x) {
            state = state * 1103515245u + 12345u;
            to[y][x] = (signed char)(state >> 18 & 63);
        }
}

static void output(const image from)
{
    unsigned sum = 0;
    for (int y = 0; y < HEIGHT; ++y)
        for (int x = 0; x < WIDTH; ++x)
            sum = sum * 31 + (unsigned)from[y][x];
    printf("%08x\n", sum);
}

static void filter_lines(const image from, image to)
{
    int x, y;
ato_profile_lines:
    for (y = 0; y < HEIGHT; ++y) {
ato_kernel_line:
        for (x = 0; x < WIDTH; ++x) {
            int left = x > 0 ? from[y][x - 1] : from[y][x];
            int middle = from[y][x];
            int right = x < WIDTH - 1 ? from[y][x + 1] : from[y][x];
            to[y][x] = (signed char)((left + 2 * middle + right) / 4);
        }
    }
}

static void filter_columns(const image from, image to)
{
    int x, y;
ato_profile_columns:
    for (y = 0; y < HEIGHT; ++y) {
ato_kernel_column:
        for (x = 0; x < WIDTH; ++x) {
            int above = y > 0 ? from[y - 1][x] : from[y][x];
            int middle = from[y][x];
            int below = y < HEIGHT - 1 ? from[y + 1][x] : from[y][x];
            to[y][x] = (signed char)((above + 2 * middle + below) / 4);
        }
    }
}

int main(void)
{
    static image a, b, c;
    for (int t = 0; t < IMAGES; ++t) {
        input(a);
        filter_lines(a, b);
        filter_columns(b, c);
        output(c);
    }
    return 0;
}
