/* Record and playback of kernel profiles: the interface for C and C++.
 *
 * Link with -larp. Names and values follow the manual of the ATOMIUM record and playback
 * library; additions are marked. docs/arp.md is the guide.
 *
 * Compile with -DARP_SIM where a simulator installs the callbacks, and with
 * -DARP_NONE to remove all recording calls. */
#ifndef ATOMIUM_RP_H
#define ATOMIUM_RP_H

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned short arp_tid; /* thread number */
typedef unsigned short arp_sid; /* section number */
typedef int arp_lidx;           /* counter of an execution */

typedef enum _arp_data_type {
    arp_char,
    arp_uchar,
    arp_short,
    arp_ushort,
    arp_int,
    arp_uint,
    arp_long,
    arp_ulong,
    arp_llong,
    arp_ullong,
    arp_float,
    arp_double,
    arp_ldouble
} arp_data_type;

typedef enum _arp_mode {
    arp_record_average,
    arp_record_all,
    arp_record_histogram,
    arp_playback
} arp_mode;

typedef enum _arp_file_format { arp_ascii, arp_binary } arp_file_format;

typedef enum _arp_error_t {
    arp_warning,
    arp_error_fatal,
    arp_error_non_fatal,
    arp_error_syntax,
    arp_error_io
} arp_error_t;

/* Called when a measured section has been entered, and when it is about to be left. The data area is
 * private to one execution in one set of callbacks, has the set's type, and is zero at first. */
typedef void (*arp_enter_callback)(const arp_sid, void *data, void *context);
typedef void (*arp_leave_callback)(const arp_sid, void *data, void *context);
/* Called before and after the library handles the start or end of a thread. */
typedef void (*arp_lock_callback)(const void *, void *);
typedef void (*arp_unlock_callback)(const void *, void *);
/* Called when a thread begins or ends. The context, initially the parent's, is passed to that thread's
 * other callbacks. */
typedef void (*arp_spawn_callback)(const arp_tid, void **contextp);
typedef void (*arp_join_callback)(const arp_tid, void **contextp);
/* Called with each problem. Without it messages go to standard error, and anything worse than a warning
 * ends the program. */
typedef void (*arp_error_callback)(const arp_error_t, const char *msg, void *context);

/* ---- Recording and playing back ---- */

#ifndef ARP_NONE

/* Thread, section, and the counter of the first execution in a new execution of the enclosing section. */
extern void arp_enter(const arp_tid, const arp_sid, const arp_lidx);
extern void arp_enter_kernel(const arp_tid, const arp_sid, const arp_lidx);
extern void arp_enter_profiled(const arp_tid, const arp_sid, const arp_lidx);
extern void arp_leave(const arp_tid, const arp_sid);
extern void arp_leave_kernel(const arp_tid, const arp_sid);
extern void arp_leave_profiled(const arp_tid, const arp_sid);

/* Parent and new thread; called by either of them, while the parent is in the section in which it spawns. */
extern void arp_spawned(const arp_tid parent, const arp_tid child);
extern void arp_join(const arp_tid);

#ifndef ARP_SIM
extern void arp_add_callbacks(const arp_data_type, arp_enter_callback, arp_leave_callback,
                              arp_spawn_callback, arp_join_callback, void *context);
extern void arp_start(const arp_tid max_tid, const arp_sid max_sid, const arp_mode,
                      arp_error_callback, void *error_context, arp_lock_callback,
                      arp_unlock_callback, void *lock_context);
#else
/* Provided by the simulator, not by this library. */
extern void arpsim_add_callbacks();
extern void arpsim_start(const arp_tid max_tid, const arp_sid max_sid, const arp_mode);
#define arp_add_callbacks(type, enter, leave, spawn, join, context) arpsim_add_callbacks()
#define arp_start(tid, sid, mode, error, error_context, lock, unlock, lock_context)                \
    arpsim_start(tid, sid, mode)
#endif

extern void arp_finish(void);

/* Called before the start. A name that ends in .gz asks for compression. */
extern void arp_set_file_name(const char *);
extern void arp_set_output_file_format(const arp_file_format);

/* Added: arp_depth returns the number of open sections of a thread; call it before setjmp. arp_unwind closes
 * all but the outermost depth sections without recording them; call it where longjmp leads. */
extern unsigned arp_depth(const arp_tid);
extern void arp_unwind(const arp_tid, unsigned depth);
/* Added: describes a section in the data file. kind is 0 for plain, 1 for kernel, 2 for profiled. */
extern void arp_describe_section(const arp_sid, int kind, const char *name, const char *file,
                                 unsigned line, unsigned end_line);

#else /* ARP_NONE */

#define arp_enter(tid, sid, idx) ((void)0)
#define arp_enter_kernel(tid, sid, idx) ((void)0)
#define arp_enter_profiled(tid, sid, idx) ((void)0)
#define arp_leave(tid, sid) ((void)0)
#define arp_leave_kernel(tid, sid) ((void)0)
#define arp_leave_profiled(tid, sid) ((void)0)
#define arp_spawned(parent, child) ((void)0)
#define arp_join(tid) ((void)0)
#define arp_add_callbacks(type, enter, leave, spawn, join, context) ((void)0)
#define arp_start(tid, sid, mode, error, error_context, lock, unlock, lock_context) ((void)0)
#define arp_finish() ((void)0)
#define arp_set_file_name(name) ((void)0)
#define arp_set_output_file_format(format) ((void)0)
#define arp_depth(tid) 0u
#define arp_unwind(tid, depth) ((void)0)
#define arp_describe_section(sid, kind, name, file, line, end_line) ((void)0)

#endif

/* ---- Querying a data file ---- */

extern void arp_load_data(const char *file_name, arp_error_callback, void *context);
extern arp_mode arp_get_mode(void);
extern void arp_switch_mode(const arp_mode);
extern void arp_free_data(void);

/* Number of sets of callbacks, and the type of each. */
extern unsigned arp_get_data_mult(void);
extern arp_data_type arp_get_data_type(const unsigned data_index);

typedef void *arp_trace;

extern unsigned arp_get_nTraces(void);
/* Returns NULL if there is no such trace. Each trace has to be freed. */
extern arp_trace arp_get_trace(const unsigned trace_no);
extern void arp_free_trace(const arp_trace);

extern unsigned arp_trace_get_count(const arp_trace);
extern unsigned arp_trace_get_stack_length(const arp_trace);
/* Depth 0 is the outermost section. Counters are 0 in other modes than arp_record_all. */
extern arp_sid arp_trace_get_stack_pos(const arp_trace, const unsigned depth);
extern arp_lidx arp_trace_get_stack_index(const arp_trace, const unsigned depth);
/* A value of the set's type: the value of the execution, in other modes the mean. Valid until the trace
 * is freed. */
extern const void *arp_trace_get_value(const arp_trace, const unsigned data_index);

/* Added: figures of a trace, also as numbers. */
extern double arp_trace_get_mean(const arp_trace, const unsigned data_index);
extern double arp_trace_get_minimum(const arp_trace, const unsigned data_index);
extern double arp_trace_get_maximum(const arp_trace, const unsigned data_index);
/* Added: the q-quantile of the values, with a relative error of at most 1/256. NaN in a trace of averages, except
 * for q = 0 and q = 1. */
extern double arp_trace_get_quantile(const arp_trace, const unsigned data_index, double q);
/* Added: the thread, or -1 if it is not known. */
extern int arp_trace_get_thread(const arp_trace);
/* Added: the name of a section, or NULL. Valid until the data are freed. */
extern const char *arp_get_section_name(const arp_sid);

#ifdef __cplusplus
}
#endif

#endif
