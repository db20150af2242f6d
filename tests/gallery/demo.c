#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static unsigned hash(const char *s, int n) {
    unsigned h = 5381;
    for (int i = 0; i < n; i++)
        h = h * 33 ^ (unsigned char)s[i];
    return h;
}
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static long matrix(int n) {
    static int m[64][64];
    long sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            m[j][i] += i * j;
            if ((m[j][i] * 7 + j) % 3 == 0)
                sum += m[j][i];
        }
    return sum;
}
int main(void) {
    int list[1000];
    unsigned x = 1;
    for (int i = 0; i < 1000; i++) {
        x = x * 1103515245 + 12345;
        list[i] = x >> 16;
    }
    qsort(list, 1000, sizeof *list, cmp);
    char text[4096];
    memset(text, 'x', sizeof text);
    printf("%u %d %ld %d\n", hash(text, sizeof text), fib(15), matrix(64), list[500]);
    return 0;
}
