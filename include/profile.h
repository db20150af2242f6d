/* Logs the entries and exits of procedures of a program augmented by hand, in C
 * and C++. `atom analyze` makes reports of the log; docs/analyze.md is the manual.
 *
 *     #define log_size 5000
 *     #include "profile.h"
 *
 *     int main(void)
 *     {
 *         start_log;               once, before anything else
 *         write_log(0, 0);         procedure 0 begins
 *         ...
 *         write_log(1, 0);         procedure 0 ends
 *         write_log_to_file();     once, at the end
 *         return 0;
 *     }
 *
 * Macros that may be defined before the inclusion:
 *   log_size       largest number of records; further ones are counted and
 *                  not written, and write_log_to_file reports their number
 *   log_file       name of the log, "timing.dat" if it is not defined
 *   log_clock      a clock of clock_gettime, such as CLOCK_MONOTONIC, to be
 *                  used instead of ITIMER_PROF, whose values are some
 *                  milliseconds apart
 *   profile_extern in all but one source file of a program that has several:
 *                  the log is declared here and defined in the other one
 *
 * start_log, write_log and write_log_to_file are macros, so an event costs only
 * the call of the clock. Only one thread may use them.
 */
#ifndef ATOM_PROFILE_H
#define ATOM_PROFILE_H

#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#ifndef log_size
#define log_size 100000
#endif
#ifndef log_file
#define log_file "timing.dat"
#endif

/* A record; the file is an array of them. */
struct profile_log_pt {
    unsigned char proc_index;
    unsigned char direction; /* 0 the procedure begins, 1 it ends */
    struct timeval clock_value;
};

/* The log of a program: the records, and the number of events. */
struct profile_log_state {
    unsigned long used;
    struct profile_log_pt at[log_size];
};

#ifdef profile_extern
extern struct profile_log_state profile_log;
#else
struct profile_log_state profile_log;
#endif

/* Start value of ITIMER_PROF in seconds. The timer counts downwards and must not reach
 * 0, where it would send a signal. */
#define profile_seconds 100000000L

#ifdef log_clock
#define start_log (profile_log.used = 0)
#define profile_read_clock(value)                                     \
    do {                                                              \
        struct timespec profile_now;                                  \
        clock_gettime(log_clock, &profile_now);                       \
        (value).tv_sec = profile_now.tv_sec;                          \
        (value).tv_usec = profile_now.tv_nsec / 1000;                 \
    } while (0)
#else
#define start_log                                                     \
    do {                                                              \
        struct itimerval profile_timer;                               \
        profile_timer.it_interval.tv_sec = 0;                         \
        profile_timer.it_interval.tv_usec = 0;                        \
        profile_timer.it_value.tv_sec = profile_seconds;              \
        profile_timer.it_value.tv_usec = 0;                           \
        profile_log.used = 0;                                         \
        if (setitimer(ITIMER_PROF, &profile_timer, NULL) != 0)        \
            perror("profile.h: setitimer");                           \
    } while (0)
#define profile_read_clock(value)                                     \
    do {                                                              \
        struct itimerval profile_timer;                               \
        getitimer(ITIMER_PROF, &profile_timer);                       \
        (value) = profile_timer.it_value;                             \
    } while (0)
#endif

/* Logs the begin (0) or the end (1) of the procedure with this index. */
#define write_log(begins_or_ends, index)                              \
    do {                                                              \
        if (profile_log.used < (log_size)) {                          \
            struct profile_log_pt *profile_pt =                       \
                &profile_log.at[profile_log.used];                    \
            profile_pt->proc_index = (unsigned char)(index);          \
            profile_pt->direction = (unsigned char)(begins_or_ends);  \
            profile_read_clock(profile_pt->clock_value);              \
        }                                                             \
        profile_log.used++;                                           \
    } while (0)

/* Writes the file. */
#define write_log_to_file()                                           \
    do {                                                              \
        unsigned long profile_count = profile_log.used;               \
        FILE *profile_file = fopen(log_file, "wb");                   \
        if (profile_count > (log_size)) {                             \
            fprintf(stderr,                                           \
                    "profile.h: log_size is %lu, %lu are needed\n",   \
                    (unsigned long)(log_size), profile_count);        \
            profile_count = (log_size);                               \
        }                                                             \
        if (profile_file == NULL ||                                   \
            fwrite(profile_log.at, sizeof(struct profile_log_pt),     \
                   profile_count, profile_file) != profile_count ||   \
            fclose(profile_file) != 0)                                \
            perror("profile.h: " log_file);                           \
    } while (0)

#endif
