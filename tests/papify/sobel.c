// A filter of small actors, twelve executions a frame: an image is read, split into
// eight slices, each slice is filtered for edges, the slices are merged and shown.
//
// Usage: sobel FRAMES; prints the processor time of a frame in microseconds, and a sum.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 352, HEIGHT = 288, SLICES = 8, ROWS = HEIGHT / SLICES + 2 };
#define ACTOR __attribute__((noinline, noclone))

static uint8_t image[HEIGHT][WIDTH], edges[HEIGHT][WIDTH];
static uint8_t in[SLICES][ROWS][WIDTH], out[SLICES][ROWS][WIDTH];
static uint64_t shown;

ACTOR void actor_read(unsigned frame) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) image[y][x] = (uint8_t)((x * 3 + frame) ^ (y * 5));
}

ACTOR void actor_split(void) {
    for (int s = 0; s < SLICES; s++)
        for (int y = 0; y < ROWS; y++) {
            int from = s * (HEIGHT / SLICES) + y - 1;
            from = from < 0 ? 0 : from >= HEIGHT ? HEIGHT - 1 : from;
            memcpy(in[s][y], image[from], WIDTH);
        }
}

ACTOR void actor_sobel(uint8_t from[ROWS][WIDTH], uint8_t to[ROWS][WIDTH]) {
    for (int y = 1; y < ROWS - 1; y++)
        for (int x = 1; x < WIDTH - 1; x++) {
            int gx = from[y - 1][x + 1] + 2 * from[y][x + 1] + from[y + 1][x + 1]
                   - from[y - 1][x - 1] - 2 * from[y][x - 1] - from[y + 1][x - 1];
            int gy = from[y + 1][x - 1] + 2 * from[y + 1][x] + from[y + 1][x + 1]
                   - from[y - 1][x - 1] - 2 * from[y - 1][x] - from[y - 1][x + 1];
            int g = (abs(gx) + abs(gy)) / 8;
            to[y][x] = (uint8_t)(g > 255 ? 255 : g);
        }
}

ACTOR void actor_merge(void) {
    for (int s = 0; s < SLICES; s++)
        for (int y = 1; y < ROWS - 1; y++)
            memcpy(edges[s * (HEIGHT / SLICES) + y - 1], out[s][y], WIDTH);
}

ACTOR void actor_display(void) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) shown += edges[y][x];
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    unsigned frames = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    double start = now();
    for (unsigned f = 0; f < frames; f++) {
        actor_read(f);
        actor_split();
        for (int s = 0; s < SLICES; s++) actor_sobel(in[s], out[s]);
        actor_merge();
        actor_display();
    }
    printf("%.3f\n%llu\n", (now() - start) / frames, (unsigned long long)shown);
}
