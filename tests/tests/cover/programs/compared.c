/* A program for a fuzzer that compares its input in many ways. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned sum;

#define READ(name, type) \
    static type name(const unsigned char *from) \
    { \
        type value; \
        memcpy(&value, from, sizeof value); \
        return value; \
    }
READ(two, uint16_t)
READ(four, uint32_t)
READ(eight, uint64_t)
READ(real, double)

/* Compares by a string instruction. */
__attribute__((noinline)) static int differs(const void *first, const void *second, size_t bytes)
{
    unsigned char is_different;
    __asm__ volatile("repe cmpsb\n\tsetne %0" : "=q"(is_different), "+S"(first), "+D"(second), "+c"(bytes) : : "memory", "cc");
    return is_different;
}

/* Looks like a function that compares memory, and gets what is no address. */
__attribute__((noinline)) static int is_odd(uint64_t first, uint64_t second)
{
    sum += first + second;
    return sum & 1;
}

__attribute__((noinline)) int check(const unsigned char *in, size_t size)
{
    int i;
    if (size < 80)
        return 1;
    for (i = 0; i < 100; i++)
        if (four(in) + i == 0x01020304)
            sum++;
    for (i = 0; i < 100; i++)
        if (is_odd(0x123456789000 + i, 0xfffff00000000000))
            sum++;
    if (four(in) != 0x7f3a91c5)
        return 2;
    if (eight(in + 4) != 0x1122334455667788)
        return 3;
    if (memcmp(in + 12, "sixteen-byte-key", 16) != 0)
        return 4;
    if (strcmp((const char *)in + 28, "string") != 0)
        return 5;
    switch (four(in + 36)) {
    case 0x10203040:
        break;
    case 0x55aa1234:
        sum++;
        return 6;
    case 0x7aa71234:
        sum += 2;
        return 6;
    case 0x0a0b1234:
        sum += 3;
        return 6;
    default:
        return 7;
    }
    if (two(in + 40) != 0xbeef)
        return 8;
    if (differs(in + 42, "repeated", 8))
        return 9;
    if (!(real(in + 52) < 1234.5))
        return 10;
    abort();
}

int main(int count, char **words)
{
    static unsigned char input[256];
    int from = count > 1 ? open(words[1], O_RDONLY) : 0;
    ssize_t size = read(from, input, sizeof input);
    return size < 0 ? 20 : check(input, size);
}
