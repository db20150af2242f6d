/* A program without any library: sorting, hashing, strings, numbers, recursion, a switch, an interpreter. */
typedef unsigned long u64;
typedef unsigned char byte;

static u64 seed = 88172645463325252ul;
static u64 next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static u64 sum;
static void note(u64 value) { sum = (sum << 7 | sum >> 57) ^ value; }

#define ITEMS 200
static int items[ITEMS];

static void sort(int *from, int *to) {
    if (to - from < 2) return;
    int pivot = from[(to - from) / 2], *a = from, *b = to - 1;
    while (a <= b) {
        while (*a < pivot) a++;
        while (*b > pivot) b--;
        if (a <= b) { int x = *a; *a++ = *b; *b-- = x; }
    }
    sort(from, b + 1);
    sort(a, to);
}

static byte text[512], copy[512];

static void strings(void) {
    for (int i = 0; i < 511; i++) text[i] = 'a' + next() % 26;
    byte *to = copy, *from = text;
    u64 count = 300;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    to = copy + 300, count = 20;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0x6162636465666768ul) : "memory");
    to = copy + 299, from = text + 299, count = 100;
    __asm__ volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(count) : : "memory", "cc");
    from = text, to = copy, count = 512;
    byte equal;
    __asm__ volatile("cmp %%al, %%al; repe cmpsb; sete %0" : "=q"(equal), "+D"(to), "+S"(from), "+c"(count) : : "memory", "cc");
    note(count + equal);
    for (int i = 0; i < 512; i++) {
        byte c = copy[i];
        if (c >= 'a' && c <= 'm') note(c);
        else if (c > 'x') sum += i;
    }
}

static unsigned crc(const byte *data, int size) {
    unsigned value = ~0u;
    while (size--) {
        value ^= *data++;
        for (int k = 0; k < 8; k++) value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
    }
    return ~value;
}

static u64 power(u64 base, u64 exponent, u64 modulus) {
    u64 result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = (unsigned)(result * base % modulus);
        base = (unsigned)(base * base % modulus);
    }
    return result;
}

static int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

/* A machine with a stack and a jump table. */
static long machine(const byte *code, long steps) {
    long stack[16] = {0}, pc = 0, top = 0;
    while (steps-- > 0) {
        switch (code[pc++ & 31] % 9) {
        case 0: stack[++top & 15] = pc; break;
        case 1: stack[top - 1 & 15] += stack[top & 15]; top--; break;
        case 2: stack[top & 15] *= 3; break;
        case 3: stack[top & 15] >>= stack[top - 1 & 15] & 31; break;
        case 4: if (stack[top & 15] & 1) pc += 3; break;
        case 5: stack[top & 15] ^= stack[top + 5 & 15]; break;
        case 6: top++; break;
        case 7: stack[top & 15] -= pc; break;
        case 8: stack[top & 15] /= (stack[top + 1 & 15] | 1); break;
        }
    }
    return stack[top & 15];
}

/* Numbers with carries, and flags that live long. */
static void carries(u64 *a, const u64 *b, int words) {
    u64 i = 0, n = words, x, y;
    __asm__ volatile(
        "clc\n1: mov (%[b],%[i],8), %[x]\n adc %[x], (%[a],%[i],8)\n lea 1(%[i]), %[i]\n dec %[n]\n jnz 1b\n setc %b[x]\n"
        : [i] "+r"(i), [n] "+r"(n), [x] "=&q"(x) : [a] "r"(a), [b] "r"(b) : "memory", "cc");
    note(x & 1);
    n = words;
    __asm__ volatile(
        "cmp %[p], %[q]\n mov (%[a]), %[x]\n mov %[x], (%[a],%[i],8)\n cmovae %[q], %[x]\n mov %[x], 8(%[a])\n seta %b[y]\n"
        : [x] "=&r"(x), [y] "=&q"(y) : [i] "r"(2ul), [a] "r"(a), [p] "r"(n), [q] "r"(a[0]) : "memory", "cc");
    note(x + (y & 1));
}

static double halves(int n) {
    double x = 0, step = 1;
    for (int i = 0; i < n; i++) { x += step / (i + 1); step = -step * 0.75; if (x > 0.9) x -= 0.5; }
    return x;
}

static u64 (*const called[3])(u64, u64, u64) = { power, power, 0 };

static u64 work(void) {
    for (int i = 0; i < ITEMS; i++) items[i] = next() % 1000;
    sort(items, items + ITEMS);
    for (int i = 0; i < ITEMS; i += 9) note(items[i]);
    strings();
    note(crc(text, 64));
    for (int i = 0; i < 8; i++) note((called[i & 1] ? called[i & 1] : power)(next() % 1000, next() % 5000, 1000003));
    note(ackermann(2, 3));
    for (int i = 0; i < 4; i++) note(machine(text + 32 * i, 300));
    static u64 a[8], b[8];
    for (int i = 0; i < 8; i++) { a[i] += next(); b[i] = next(); }
    carries(a, b, 8);
    for (int i = 0; i < 8; i++) note(a[i]);
    union { double number; u64 bits; } x = { halves(20) };
    note(x.bits);
    return sum;
}

/* After a system call rcx and r11 tell of the copy, so tools leave this out, and the start, where registers are set. */
__attribute__((noipa, noreturn)) static void say(byte *line) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(1), "D"(1), "S"(line), "d"(17) : "rcx", "r11", "memory");
    __asm__ volatile("syscall" : : "a"(231), "D"(result != 17) : "rcx", "r11");
    __builtin_unreachable();
}

__attribute__((noreturn, used)) static void begin(void) {
    byte line[17];
    for (int i = 0; i < 6; i++) work();
    for (int i = 0; i < 16; i++) line[i] = "0123456789abcdef"[sum >> 4 * i & 15];
    line[16] = '\n';
    say(line);
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n xorps %xmm0, %xmm0\n movaps %xmm0, %xmm1\n and $-16, %rsp\n call begin\n");
