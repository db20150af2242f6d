// Dense switches in loops: relative and absolute tables, a big one, nested
// ones, one that a compiler turns into a look-up table, and computed goto.
// missed: interpret
// variants: gcc-O0 gcc-O1 gcc-O2 gcc-O2-large gcc-O0-large gcc-O3 gcc-Os gcc-O2-nopie gcc-O2-static clang-O0 clang-O2 clang-O3 clang-O2-nopie gcc-O2-strip clang-O2-static-strip
// stdout: 1767 2710 abcdefgh 5050 87381
#include <stdio.h>
static volatile int v;
static int small(int x)
{
    switch (x) {
    case 0: v = 1; return 3;
    case 1: v += 2; return 1;
    case 2: v ^= 7; return 4;
    case 3: v -= 1; return 1;
    case 4: v |= 8; return 5;
    case 5: v &= 15; return 9;
    case 6: v *= 3; return 2;
    case 7: v = v / 2; return 6;
    default: v = 0; return 0;
    }
}
#define C(n) case n: v += n; r += (n) * 3 % 29; break;
#define C10(n) C(n) C(n + 1) C(n + 2) C(n + 3) C(n + 4) C(n + 5) C(n + 6) C(n + 7) C(n + 8) C(n + 9)
static int big(int x)
{
    int r = 0;
    for (int i = 0; i < 2; i++)
        switch (x) {
        C10(0) C10(10) C10(20) C10(30) C10(40) C10(50) C10(60) C10(70) C10(80) C10(90)
        default: r--;
        }
    return r;
}
static char name(int x)
{
    switch (x) {
    case 100: return 'a'; case 101: return 'b'; case 102: return 'c'; case 103: return 'd';
    case 104: return 'e'; case 105: return 'f'; case 106: return 'g'; case 107: return 'h';
    }
    return '?';
}
static int interpret(const unsigned char *code)
{
    static void *const ops[] = { &&halt, &&add, &&dec, &&jnz };
    int acc = 0, n = 100;
    goto *ops[*code];
add: acc += n; goto *ops[*++code];
dec: n--; goto *ops[*++code];
jnz: if (n) code -= 2; else code++;
    goto *ops[*code];
halt:
    return acc;
}
static unsigned nested(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 9; i++, x >>= 2)
        switch (x & 3) {
        case 0: r = r * 2; break;
        case 1: switch (i) {
            case 0: r += 1; break; case 1: r += 4; break; case 2: r += 16; break; case 3: r += 64; break;
            case 4: r += 256; break; case 5: r += 1024; break; case 6: r += 4096; break; case 7: r += 16384; break;
            default: r += 65536; }
            break;
        case 2: r ^= 5; break;
        case 3: r -= 3; break;
        }
    return r;
}
int main(void)
{
    long s = 0, b = 0;
    for (int i = 0; i < 512; i++) s += small(i % 9 - (i % 9 == 8 ? 20 : 0));
    for (int i = -5; i < 105; i++) b += big(i);
    char word[9] = { 0 };
    for (int i = 0; i < 8; i++) word[i] = name(100 + i);
    printf("%ld %ld %s %d %u\n", s, b, word, interpret((const unsigned char[]){ 1, 2, 3, 0 }), nested(0x15555));
    return 0;
}
