/* Calls every query function on the recording of filter.c. */
#include <atomium_rp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int errors;
static arp_error_t last;

static void on_error(const arp_error_t kind, const char *text, void *context)
{
    EXPECT(context == &errors && strlen(text) > 10);
    ++errors;
    last = kind;
}

static unsigned value(arp_trace trace)
{
    return *(const unsigned *)arp_trace_get_value(trace, 0);
}

int main(int argc, char **argv)
{
    unsigned i, found = 0;
    arp_trace trace;

    if (argc < 2)
        return 2;
    arp_load_data("there/is/no/such.arp", on_error, &errors);
    EXPECT(errors == 1 && last == arp_error_io);
    arp_load_data(argv[1], on_error, &errors);
    EXPECT(errors == 1);
    EXPECT(arp_get_mode() == arp_record_all);
    EXPECT(arp_get_data_mult() == 1);
    EXPECT(arp_get_data_type(0) == arp_uint);
    EXPECT(arp_get_nTraces() == 36);

    /* The second line of the second image, across: 8@0 7@1 6@0 5@0 4@1. */
    for (i = 0; i < 36; ++i) {
        trace = arp_get_trace(i);
        EXPECT(arp_trace_get_count(trace) == 1);
        if (arp_trace_get_stack_length(trace) == 5 && arp_trace_get_stack_index(trace, 1) == 1 &&
            arp_trace_get_stack_pos(trace, 4) == 4 && arp_trace_get_stack_index(trace, 4) == 1) {
            EXPECT(arp_trace_get_stack_pos(trace, 0) == 8 && arp_trace_get_stack_pos(trace, 2) == 6);
            EXPECT(value(trace) == 13);
            EXPECT(arp_trace_get_mean(trace, 0) == 13.0);
            ++found;
        }
        arp_free_trace(trace);
    }
    EXPECT(found == 1);

    /* An invalid call is an error and changes nothing. */
    EXPECT(arp_get_trace(36) == 0 && errors == 2);
    trace = arp_get_trace(35);
    EXPECT(arp_trace_get_value(trace, 1) == 0 && errors == 3);
    EXPECT(arp_trace_get_stack_pos(trace, 5) == 0 && errors == 4);
    arp_free_trace(trace);
    arp_get_data_type(1);
    EXPECT(errors == 5);
    arp_switch_mode(arp_playback);
    EXPECT(errors == 6 && arp_get_mode() == arp_record_all);

    arp_switch_mode(arp_record_histogram);
    EXPECT(arp_get_mode() == arp_record_histogram && arp_get_nTraces() == 4);
    trace = arp_get_trace(3);
    EXPECT(arp_trace_get_count(trace) == 15);
    EXPECT(arp_trace_get_quantile(trace, 0, 0.0) == 12.0);
    EXPECT(arp_trace_get_quantile(trace, 0, 0.5) == 14.0);
    EXPECT(arp_trace_get_quantile(trace, 0, 0.8) == 15.0);
    EXPECT(arp_trace_get_quantile(trace, 0, 1.0) == 16.0);
    arp_free_trace(trace);

    arp_switch_mode(arp_record_average);
    EXPECT(arp_get_mode() == arp_record_average && arp_get_nTraces() == 4);
    trace = arp_get_trace(2);
    EXPECT(arp_trace_get_count(trace) == 3 && value(trace) == 70);
    arp_free_trace(trace);
    trace = arp_get_trace(3);
    EXPECT(arp_trace_get_count(trace) == 15 && value(trace) == 14);
    EXPECT(arp_trace_get_minimum(trace, 0) == 12.0 && arp_trace_get_maximum(trace, 0) == 16.0);
    EXPECT(arp_trace_get_stack_length(trace) == 5 && arp_trace_get_stack_index(trace, 4) == 0);
    EXPECT(arp_trace_get_thread(trace) == -1 && arp_get_section_name(4) == 0);
    arp_free_trace(trace);

    /* Samples do not come back. */
    arp_switch_mode(arp_record_all);
    EXPECT(errors == 7 && arp_get_mode() == arp_record_average);
    arp_free_data();
    puts("ok");
    return 0;
}
