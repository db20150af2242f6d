/* Aligned loads that are partly outside of a block. */
#include <emmintrin.h>
#include <stdlib.h>

int main(void) {
    char *twelve = calloc(12, 1), *six = calloc(6, 1);
    volatile long word = *(long *)(twelve + 8);
    volatile int half = *(int *)(six + 4);
    volatile __m128i vector = _mm_load_si128((__m128i *)twelve);
    volatile long outside = *(long *)(twelve + 16);
    free(twelve);
    free(six);
    return (int)word + half + (int)outside + vector[0] != 0;
}
