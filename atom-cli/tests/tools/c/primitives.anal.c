/* Writes what each routine gets to primitives.out. */
#include <atom.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;
static long address;

void Begin(char c, int n, long l, char *text) {
    out = fopen("primitives.out", "w");
    fprintf(out, "Begin %c %d %ld %s\n", c, n, l, text);
}

void Arrays(char *letters, int *ints, long *longs) {
    fprintf(out, "Arrays %c %c %d, %d %d, %ld %ld %ld\n", letters[0], letters[1], letters[2], ints[0], ints[1], longs[0],
        longs[1], longs[2]);
}

void Many(int a, long b, char *c, int d, long e, int f, long g, int h) {
    fprintf(out, "Many %d %ld %s %d %ld %d %ld %d\n", a, b, c, d, e, f, g, h);
}

void Registers(long rdi, long pc, unsigned long high) {
    /* Nothing changes the upper half, which the program has not set. */
    static unsigned long first;
    if (!address) {
        address = pc;
        first = high;
    }
    fprintf(out, "Registers %ld %d %d\n", rdi, pc == address, high == first);
}

void Branch(long taken, unsigned long *all, unsigned long *ways) {
    ++*all;
    *ways += taken != 0;
}

void Access(long a, long b, long c, long d, unsigned char *mark) {
    *mark = 1;
    fprintf(out, "Access %s %s %ld %ld\n", a == b ? "equal" : "different", a & 7 ? "value" : "address", c, d);
}

void Entered(long *state, long n, long back, long offset) {
    state[0] += 1;
    fprintf(out, "Entered %ld %d\n", n, (back & 0xfff) == offset);
}

void Returned(long *state, long value) {
    state[1] = value;
    fprintf(out, "Returned %ld\n", value);
}

void InBlock(int n) {
    fprintf(out, "Block %d\n", n);
}

void OnWay(int n) {
    fprintf(out, "Way %d\n", n);
}

void Sum(long sum) {
    fprintf(out, "Sum %ld\n", sum);
}

void End(Counters *counters, Marks *marks, Threads *threads, long run_time, long pc) {
    char text[40];
    long *state, n = 0;
    fprintf(out, "Counters %lu: %lu %lu %lu\n", counters->count, counters->value[0], counters->value[1], counters->value[2]);
    fprintf(out, "Marks %lu: %d %d\n", marks->count, marks->is_set[0], marks->is_set[1]);
    for (state = NextThreadData(threads, NULL); state; state = NextThreadData(threads, state), n++)
        fprintf(out, "Thread %ld %ld %d\n", state[0], state[1], ThreadNumber(state) >= 0);
    /* Addresses at run time are searched for in whole processes. */
    fprintf(out, "%ld threads, %s %d\n", n, AddressText(pc, text, 5),
        run_time == RunTimeAddress(pc) && (AddressOf(run_time) == pc || AddressOf(run_time) == 0));
    fprintf(out, "Read %ld %s, %ld %ld\n", ReadMemory((long)"four", text, 5), text, ReadMemory(8, text, 4), ReadMemory(pc, text, -1));
    if (fclose(out))
        abort();
}
