// Stereo matching, of heavier actors, 94 executions a frame: two images are made, turned
// to grey and described by a census transform; for each of twenty disparities the cost of matching is
// computed, and aggregated in three rounds with weights by similarity; the best disparity is
// selected in four bands and smoothed by a median.
//
// Usage: stereo FRAMES; prints the processor time of a frame in microseconds, and a sum.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 450, HEIGHT = 375, DISPARITIES = 20, ROUNDS = 3, BANDS = 4 };
#define ACTOR __attribute__((noinline, noclone))

typedef float Plane[HEIGHT][WIDTH];
static uint8_t rgb[2][HEIGHT][WIDTH][3];
static Plane grey[2], weight[ROUNDS][4], cost[DISPARITIES], scratch;
static uint32_t census[2][HEIGHT][WIDTH];
static uint8_t disparity[HEIGHT][WIDTH], smooth[HEIGHT][WIDTH];
static uint64_t shown;

ACTOR void actor_read(int side, unsigned frame) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int at = x + side * (4 + y * 12 / HEIGHT);
            for (int c = 0; c < 3; c++)
                rgb[side][y][x][c] = (uint8_t)((at * (7 + c)) ^ (y * 3 + frame) ^ (at * at >> 5));
        }
}

ACTOR void actor_grey(int side) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            uint8_t *p = rgb[side][y][x];
            grey[side][y][x] = (0.2989f * p[0] + 0.587f * p[1] + 0.114f * p[2]) / 255;
        }
}

ACTOR void actor_census(int side) {
    for (int y = 2; y < HEIGHT - 2; y++)
        for (int x = 2; x < WIDTH - 2; x++) {
            uint32_t bits = 0;
            float here = grey[side][y][x];
            for (int j = -2; j <= 2; j++)
                for (int i = -2; i <= 2; i++) bits = bits << 1 | (grey[side][y + j][x + i] > here);
            census[side][y][x] = bits;
        }
}

ACTOR void actor_weights(int round) {
    int step = 1 << (round * 2);
    for (int k = 0; k < 4; k++) {
        int dx = k < 2 ? (k ? step : -step) : 0, dy = k < 2 ? 0 : (k == 2 ? -step : step);
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) {
                int u = x + dx, v = y + dy;
                u = u < 0 ? 0 : u >= WIDTH ? WIDTH - 1 : u;
                v = v < 0 ? 0 : v >= HEIGHT ? HEIGHT - 1 : v;
                float d = grey[0][y][x] - grey[0][v][u];
                weight[round][k][y][x] = 1 / (1 + 30 * d * d);
            }
    }
}

ACTOR void actor_cost(int d) {
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int u = x + d < WIDTH ? x + d : WIDTH - 1;
            uint32_t differ = census[0][y][x] ^ census[1][y][u];
            differ = differ - (differ >> 1 & 0x55555555);
            differ = (differ & 0x33333333) + (differ >> 2 & 0x33333333);
            differ = (differ + (differ >> 4)) & 0x0f0f0f0f;
            float shade = grey[0][y][x] - grey[1][y][u];
            cost[d][y][x] = (float)(differ * 0x01010101 >> 24) / 24 + (shade < 0 ? -shade : shade);
        }
}

ACTOR void actor_aggregate(int d, int round) {
    int step = 1 << (round * 2);
    Plane *w = weight[round];
    for (int y = 0; y < HEIGHT; y++) {
        int up = y - step < 0 ? 0 : y - step, down = y + step >= HEIGHT ? HEIGHT - 1 : y + step;
        for (int x = 0; x < WIDTH; x++) {
            int left = x - step < 0 ? 0 : x - step, right = x + step >= WIDTH ? WIDTH - 1 : x + step;
            float sum = cost[d][y][x] + w[0][y][x] * cost[d][y][left] + w[1][y][x] * cost[d][y][right]
                      + w[2][y][x] * cost[d][up][x] + w[3][y][x] * cost[d][down][x];
            scratch[y][x] = sum / (1 + w[0][y][x] + w[1][y][x] + w[2][y][x] + w[3][y][x]);
        }
    }
    memcpy(cost[d], scratch, sizeof scratch);
}

ACTOR void actor_select(int band) {
    for (int y = band * HEIGHT / BANDS; y < (band + 1) * HEIGHT / BANDS; y++)
        for (int x = 0; x < WIDTH; x++) {
            int best = 0;
            for (int d = 1; d < DISPARITIES; d++)
                if (cost[d][y][x] < cost[best][y][x]) best = d;
            disparity[y][x] = (uint8_t)best;
        }
}

ACTOR void actor_median(void) {
    for (int y = 1; y < HEIGHT - 1; y++)
        for (int x = 1; x < WIDTH - 1; x++) {
            uint8_t v[9], n = 0;
            for (int j = -1; j <= 1; j++)
                for (int i = -1; i <= 1; i++) {
                    uint8_t value = disparity[y + j][x + i], at = n++;
                    for (; at > 0 && v[at - 1] > value; at--) v[at] = v[at - 1];
                    v[at] = value;
                }
            smooth[y][x] = v[4];
            shown += v[4];
        }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    unsigned frames = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    double start = now();
    for (unsigned f = 0; f < frames; f++) {
        for (int side = 0; side < 2; side++) {
            actor_read(side, f);
            actor_grey(side);
            actor_census(side);
        }
        for (int r = 0; r < ROUNDS; r++) actor_weights(r);
        for (int d = 0; d < DISPARITIES; d++) actor_cost(d);
        for (int r = 0; r < ROUNDS; r++)
            for (int d = 0; d < DISPARITIES; d++) actor_aggregate(d, r);
        for (int b = 0; b < BANDS; b++) actor_select(b);
        actor_median();
    }
    printf("%.3f\n%llu\n", (now() - start) / frames, (unsigned long long)shown);
}
