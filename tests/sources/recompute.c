// Pointers to code in all shapes: tables, structures, unions with integers,
// differences of labels, pointers built by arithmetic, comparisons of them.
// missed: by_label
// variants: gcc-O0 gcc-O2 gcc-O2-static gcc-O2-nopie clang-O2 gcc-O2-strip clang-O2-nopie-strip
// stdout: table 10 struct 21 integer 32 packed 43 xor 54 order 1 label 65 distance 1
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static volatile int bias;
static int t0(int x) { return x + 10 + bias; }
static int t1(int x) { return x + 20 + bias; }
static int t2(int x) { return x + 30 + bias; }
static int t3(int x) { return x + 40 + bias; }
static int t4(int x) { return x + 50 + bias; }
static int (*const table[])(int) = { t0, t1, t2, t3, t4 };
static struct { char tag; int (*f)(int); long pad; } entry = { 'e', t1, 5 };
static uintptr_t integer = (uintptr_t)t2;
struct __attribute__((packed)) odd { char c; int (*f)(int); };
static struct odd odd = { 1, t3 };
__attribute__((noinline)) static int by_label(int n)
{
    static const int offsets[] = { &&zero - &&base, &&one - &&base, &&two - &&base };
    goto *(&&base + offsets[n]);
base: return -1;
zero: return 55 + bias;
one: return 60 + bias;
two: return 65 + bias;
}
int main(void)
{
    int (*f)(int);
    memcpy(&f, (char *)&odd + 1, sizeof f);
    int packed = f(3);
    uintptr_t hidden = (uintptr_t)table[bias + 4] ^ 0x5a5a5a5a;
    int order = ((uintptr_t)t0 < (uintptr_t)t1) == ((uintptr_t)table[bias] < (uintptr_t)table[bias + 1]);
    printf("table %d struct %d integer %d packed %d xor %d order %d label %d distance %d\n", table[bias](0), entry.f(1),
        ((int (*)(int))integer)(2), packed, ((int (*)(int))(hidden ^ 0x5a5a5a5a))(4), order, by_label(2 + bias),
        (char *)t1 - (char *)t0 == (char *)table[1 + bias] - (char *)table[bias]);
    return 0;
}
