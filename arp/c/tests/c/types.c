/* One set of callbacks for each data type, with values at the ends of their ranges; records them, asks for
 * them in the file, and plays them back. */
#include <atomium_rp.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Rounds = 3 };
static int round_now;
static int playing;
static int calls;

#define EACH(X)                                                                                    \
    X(0, arp_char, signed char, SCHAR_MIN, SCHAR_MAX, 7)                                           \
    X(1, arp_uchar, unsigned char, UCHAR_MAX, 0, 7)                                                \
    X(2, arp_short, short, SHRT_MIN, SHRT_MAX, 7)                                                  \
    X(3, arp_ushort, unsigned short, USHRT_MAX, 0, 7)                                              \
    X(4, arp_int, int, INT_MIN, INT_MAX, 7)                                                        \
    X(5, arp_uint, unsigned, UINT_MAX, 0, 7)                                                       \
    X(6, arp_long, long, LONG_MIN, LONG_MAX, 7)                                                    \
    X(7, arp_ulong, unsigned long, ULONG_MAX, 0, 7)                                                \
    X(8, arp_llong, long long, LLONG_MIN, LLONG_MAX, 7)                                            \
    X(9, arp_ullong, unsigned long long, ULLONG_MAX, 0, 7)                                         \
    X(10, arp_float, float, 0.1f, FLT_MAX, -FLT_MIN)                                               \
    X(11, arp_double, double, 0.1, DBL_MAX, -DBL_MIN)                                              \
    X(12, arp_ldouble, long double, 0.1L, LDBL_MAX, -LDBL_MIN)

/* The bytes that count: a long double has padding. */
static size_t bytes(arp_data_type type, size_t size)
{
    return type == arp_ldouble ? 10 : size;
}

#define CALLBACKS(number, tag, type, a, b, c)                                                      \
    static const type values_##number[Rounds] = { a, b, c };                                       \
    static void enter_##number(const arp_sid sid, void *data, void *context)                       \
    {                                                                                              \
        const type zero = 0;                                                                       \
        (void)sid;                                                                                 \
        if (calls++ % 13 != number || *(int *)context != number)                                   \
            abort();                                                                               \
        if (memcmp(data, playing ? &values_##number[round_now] : &zero, bytes(tag, sizeof zero)))  \
            abort();                                                                               \
        *(type *)data = 1;                                                                         \
    }                                                                                              \
    static void leave_##number(const arp_sid sid, void *data, void *context)                       \
    {                                                                                              \
        (void)sid;                                                                                 \
        (void)context;                                                                             \
        if (*(type *)data != 1)                                                                    \
            abort();                                                                               \
        *(type *)data = values_##number[round_now];                                                \
    }                                                                                              \
    static int context_##number = number;
EACH(CALLBACKS)

static void run(arp_mode mode)
{
#define ADD(number, tag, type, a, b, c)                                                            \
    arp_add_callbacks(tag, enter_##number, leave_##number, 0, 0, &context_##number);
    EACH(ADD)
    arp_start(1, 1, mode, 0, 0, 0, 0, 0);
    for (round_now = 0; round_now < Rounds; ++round_now) {
        arp_enter_kernel(1, 1, 0);
        arp_leave_kernel(1, 1);
    }
    arp_finish();
}

static void query(void)
{
    unsigned i;
    arp_load_data("data.arp", 0, 0);
    if (arp_get_data_mult() != 13 || arp_get_nTraces() != Rounds)
        abort();
    for (i = 0; i < Rounds; ++i) {
        arp_trace trace = arp_get_trace(i);
#define COMPARE(number, tag, type, a, b, c)                                                        \
    if (arp_get_data_type(number) != tag ||                                                        \
        memcmp(arp_trace_get_value(trace, number), &values_##number[i], bytes(tag, sizeof(type)))) \
        abort();
        EACH(COMPARE)
        arp_free_trace(trace);
    }
    arp_free_data();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    playing = !strcmp(argv[1], "play");
    if (!strcmp(argv[1], "query")) {
        query();
        puts("ok");
    } else {
        run(playing ? arp_playback : arp_record_all);
        if (playing)
            puts("ok");
    }
    return 0;
}
