// Calling conventions of clang: preserve_most, preserve_all, preserve_none, regcall, vectorcall; guaranteed tail calls.
#include <stdint.h>
#include <stdio.h>

#if __has_attribute(preserve_none)
#define NONE __attribute__((preserve_none))
#else
#define NONE
#endif
#define MOST __attribute__((preserve_most, noinline))
#define ALL __attribute__((preserve_all, noinline))
#define REG __attribute__((regcall, noinline))
#define VECTOR __attribute__((vectorcall, noinline))
#define TAIL __attribute__((musttail))

typedef float Four __attribute__((vector_size(16)));

// An interpreter whose state is passed in registers from one instruction's function to the next.
struct State {
    uint64_t steps;
};
typedef uint64_t NONE (*Act)(const uint8_t *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, struct State *, const void *const *);
#define PARAMETERS                                                                                                     \
    const uint8_t *pc, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, \
        struct State *state, const void *const *table
#define NEXT TAIL return ((Act)table[pc[1] & 7])(pc + 1, a, b, c, d, e, f, g, h, state, table)

static uint64_t slow[4];

MOST static void note_most(uint64_t n) { slow[0] += n; printf("%s", n % 97 == 5 ? "." : ""); }
ALL static void note_all(uint64_t n) { slow[1] += n; }
REG static uint64_t many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, double x, double y) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + (uint64_t)(x * y);
}
VECTOR static Four blend(Four a, Four b, float k) { return a * k + b; }

NONE static uint64_t add(PARAMETERS) { a += b; c ^= a; state->steps++; NEXT; }
NONE static uint64_t turn(PARAMETERS) { uint64_t t = a; a = b; b = c; c = d; d = e; e = f; f = g; g = h; h = t + 1; state->steps++; NEXT; }
NONE static uint64_t most(PARAMETERS) { note_most(a & 1023); state->steps++; NEXT; }
NONE static uint64_t all(PARAMETERS) { note_all(b & 1023); d += h; state->steps++; NEXT; }
NONE static uint64_t call(PARAMETERS) { a += many(a, b, c, d, e, f, g, h, 1.5, (double)(a & 15)); state->steps++; NEXT; }
NONE static uint64_t jump(PARAMETERS) {
    state->steps++;
    if (state->steps < 20000) pc -= 11;
    NEXT;
}
NONE static uint64_t mix(PARAMETERS) { e = e * 31 + a; f -= g; h ^= e; state->steps++; NEXT; }
NONE static uint64_t stop(PARAMETERS) { return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h; }

__attribute__((noinline)) static uint64_t start(const uint8_t *pc, struct State *state, const void *const *table) {
    return ((Act)table[pc[0] & 7])(pc, 1, 2, 3, 4, 5, 6, 7, 8, state, table);
}

int main(void) {
    static const void *const table[8] = {add, turn, most, all, call, jump, mix, stop};
    static const uint8_t program[] = {0, 1, 6, 2, 4, 3, 0, 1, 6, 2, 4, 5, 7};
    struct State state = {0};
    uint64_t keep[6] = {11, 22, 33, 44, 55, 66};
    uint64_t result = start(program, &state, table);
    for (int i = 0; i < 100; i++) {
        note_most(keep[i % 6]);
        note_all(keep[(i + 1) % 6]);
        for (int k = 0; k < 6; k++) keep[k] = keep[k] * 3 + k;
    }
    Four a = {1, 2, 3, 4}, b = {0.5f, 0.25f, 0.125f, 1};
    for (int i = 0; i < 20; i++) a = blend(a, b, 0.5f);
    printf("\n%llx %llu %llu %llu %llx\n", (unsigned long long)result, (unsigned long long)state.steps,
           (unsigned long long)slow[0], (unsigned long long)slow[1], (unsigned long long)keep[5]);
    printf("%.4f %.4f %.4f %.4f\n", a[0], a[1], a[2], a[3]);
}
