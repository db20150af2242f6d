// backtrace(3) and _Unwind_Backtrace through instrumented frames find as many
// frames as before; forced unwinding runs clean-ups of C frames.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie gcc-O2-strip
// cflags: -fexceptions -pthread
// counts: no
// stdout: frames 13 backtrace ok cleanups 6
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <unwind.h>
static int frames, cleanups, deep_ok;
static _Unwind_Reason_Code step(struct _Unwind_Context *c, void *end)
{
    if (_Unwind_GetCFA(c) > (_Unwind_Word)end) return _URC_END_OF_STACK;
    frames++;
    return _URC_NO_REASON;
}
__attribute__((noinline)) static int descend(int n, void *end)
{
    volatile int keep = n;
    if (n == 0) {
        void *list[64];
        _Unwind_Backtrace(step, end);
        deep_ok = backtrace(list, 64) > 11;
        return 0;
    }
    return descend(n - 1, end) + keep - n;
}
static void clean(int *p) { cleanups += *p; }
__attribute__((noinline)) static void leave(int n)
{
    __attribute__((cleanup(clean))) int one = 1;
    if (n == 0) pthread_exit(NULL);
    leave(n - 1);
    one = 2;
}
static void *thread(void *p) { leave(5); return p; }
int main(void)
{
    pthread_t t;
    descend(10, (char *)__builtin_frame_address(0) + 16);
    pthread_create(&t, NULL, thread, NULL);
    pthread_join(t, NULL);
    printf("frames %d backtrace %s cleanups %d\n", frames, deep_ok ? "ok" : "short", cleanups);
    return 0;
}
