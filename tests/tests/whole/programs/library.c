// A library that is built several times, with another NAME each time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

__thread int in_thread = 3;
static __thread char own_in_thread[100] = "own";
static int begun;

__attribute__((constructor)) static void begin(void)
{
    begun = 1;
    printf("begin %s\n", TEXT(NAME));
}

__attribute__((destructor)) static void end(void) { printf("end %s\n", TEXT(NAME)); }

int value(int n)
{
    in_thread += n;
    own_in_thread[0]++;
    return in_thread * 100 + own_in_thread[0] + begun;
}

static int one(int n) { return n + 1; }
static int two(int n) { return n + 2; }
static int (*choose(void))(int) { return getenv("CHOOSE") ? two : one; }
int chosen(int n) __attribute__((ifunc("choose")));

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int sorted(void)
{
    int numbers[] = {5, 3, 9, 1, 7, 2};
    qsort(numbers, 6, sizeof *numbers, compare);
    return numbers[0] * 10 + numbers[5];
}

// Executes the loop's body N times.
__attribute__((noinline)) long loop(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        __asm__ volatile(".globl loop_body_" TEXT(NAME) "\nloop_body_" TEXT(NAME) ": add $3, %0" : "+r"(sum));
    return sum;
}

const char *where(void)
{
    static char text[4096];
    Dl_info info;
    if (!dladdr((void *)loop, &info))
        return "nowhere";
    snprintf(text, sizeof text, "%s %s", info.dli_fname, info.dli_sname);
    return text;
}
