/* Compresses a file at several levels, decompresses it, and compares. */
#include "zstd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    size_t limit = 8 << 20, bound = ZSTD_compressBound(limit);
    char *in = malloc(limit), *packed = malloc(bound), *out = malloc(limit);
    if (!f || !in || !packed || !out) return 2;
    size_t n = fread(in, 1, limit, f);
    static const int levels[] = { 1, 3, 6, 12 };
    for (int i = 0; i < 4; i++) {
        size_t size = ZSTD_compress(packed, bound, in, n, levels[i]);
        if (ZSTD_isError(size)) return 3;
        for (int k = 0; k < 15; k++)
            if (ZSTD_decompress(out, limit, packed, size) != n || memcmp(in, out, n)) return 4;
        printf("level %d: %zu\n", levels[i], size);
    }
    return 0;
}
