/* Procedures whose arguments are known, entered by calls from several places, by pointers and by the C library. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noipa)) long none(void) { return 0; }

__attribute__((noipa)) long nine(long a, int b, char *c, long d, long e, long f, long g, short h, long i) {
    return none() + a + b + *c + d + e + f + g + h + i;
}

__attribute__((noipa)) int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

long (*volatile pointer)(long, int, char *, long, long, long, long, short, long) = nine;

static void tell(long a, long b, char *c, long d, long e, long f, long g, long h, long i) {
    printf("%lx %x %lx %lx %lx %lx %lx %hx %lx\n", a, (int)b, (long)c, d, e, f, g, (short)h, i);
}

int main(void) {
    static char text[] = "text";
    long sum = 0;
    for (long n = 0; n < 10; n++) {
        tell(n, -n, text + n % 4, n * n, ~n, n << 40, n - 7, n * 1000, -n * n);
        sum += nine(n, -n, text + n % 4, n * n, ~n, n << 40, n - 7, n * 1000, -n * n);
    }
    tell(1, 2, text, 4, 5, 6, 7, 8, 9);
    sum += pointer(1, 2, text, 4, 5, 6, 7, 8, 9);
    int numbers[] = {5, 3, 9, 1};
    qsort(numbers, 4, sizeof *numbers, compare);
    return sum == 0;
}
