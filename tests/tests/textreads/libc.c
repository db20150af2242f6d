// The routines of glibc that it chooses by the processor.
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
static char a[5000], b[5000];
int main(void)
{
    size_t sum = 0;
    for (int n = 1; n < 2000; n = n * 4 / 3 + 1) {
        for (int shift = 0; shift < 3; shift++) {
            memset(a, 'a' + n % 20, n + 70);
            a[n + shift] = 0;
            memcpy(b + shift, a, n + shift + 1);
            memmove(b, b + shift, n + 1);
            sum += strlen(a) + strnlen(b, n) + memcmp(a, b, n) + strcmp(a, b) + strncmp(a, b, n);
            sum += (memchr(a, 'z', n) ? 1 : 0) + (strchr(a, 'b') ? 1 : 0) + (strrchr(a, 'c') ? 1 : 0);
            strcpy(b, a);
            strcat(b, "xyz");
            sum += strstr(b, "xyz") - b + strcspn(b, "xy") + strspn(b, "abc") + strcasecmp(a, b);
            sum += strpbrk(b, "z") - b + ((char *)rawmemchr(b, 'z') - b);
            wchar_t *w = (wchar_t *)b;
            wmemset(w, L'q', n / 4);
            w[n / 4] = 0;
            sum += wcslen(w) + (wcschr(w, L'q') ? 1 : 0) + wcsnlen(w, n / 4);
        }
    }
    double x = 0;
    for (int i = 1; i < 200; i++) x += sin(i) + cos(i * 1e5) + exp(i / 9.0) + log(i) + pow(i, 1.3) + atan2(i, 3) + tan(i) + floor(i / 7.0) + rint(i / 3.0);
    for (float i = 1; i < 50; i++) x += sinf(i) + expf(i / 9) + powf(i, 1.3f) + logf(i);
    printf("%zu %.12g %d\n", sum % 1000007, x, abs(atoi("-12")));
    return 0;
}
