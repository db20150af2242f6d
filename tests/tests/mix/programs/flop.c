/* Floating-point operations of all kinds, as many as the test knows. */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#define N 1000
#define NOINLINE __attribute__((noinline))
#define TARGET(features) __attribute__((noinline, target(features)))

static float a[N + 16], b[N + 16];
static double x[N + 16], y[N + 16];

NOINLINE void saxpy_scalar(float k) {
    for (int i = 0; i < N; i++) {
        a[i] = a[i] * k + b[i];
        __asm__ volatile("" ::: "memory");
    }
}

NOINLINE void sse(void) {
    for (int i = 0; i < N; i += 4)
        _mm_storeu_ps(a + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
}

TARGET("avx2") void avx(void) {
    for (int i = 0; i < N; i += 4)
        _mm256_storeu_pd(x + i, _mm256_mul_pd(_mm256_loadu_pd(x + i), _mm256_loadu_pd(y + i)));
}

TARGET("avx2,fma") void fma_(void) {
    for (int i = 0; i < N; i += 8) {
        __m256 more = _mm256_loadu_ps(b + i);
        _mm256_storeu_ps(a + i, _mm256_fmadd_ps(_mm256_loadu_ps(a + i), more, more));
    }
}

TARGET("avx512f") void masked(void) {
    __mmask8 four = 0x2d;
    for (int i = 0; i < N; i += 8) {
        __m512d old = _mm512_loadu_pd(x + i);
        _mm512_storeu_pd(x + i, _mm512_mask_add_pd(old, four, old, _mm512_loadu_pd(y + i)));
    }
}

NOINLINE long double x87(void) {
    long double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (long double)x[i];
    return sum;
}

/* Copies 256 bytes one by one, and compares until the first difference, at the 50th byte. */
NOINLINE unsigned long strings(void) {
    static char one[300], two[300];
    memset(two, 1, sizeof two);
    void *to = one, *from = two;
    unsigned long count = 256;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = one;
    from = two;
    count = 100;
    one[49] = 7;
    __asm__ volatile("repe cmpsb" : "+D"(to), "+S"(from), "+c"(count)::"memory", "cc");
    return count;
}

int main(void) {
    saxpy_scalar(2);
    sse();
    avx();
    fma_();
    if (__builtin_cpu_supports("avx512f"))
        masked();
    volatile long double sum = x87();
    printf("%d %lu\n", sum == 0, strings());
    return 0;
}
