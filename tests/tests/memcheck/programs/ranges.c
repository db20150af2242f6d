/* Functions of C's library that are given too little memory, called directly, by pointers and at the end of others. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wchar.h>

#define APART __attribute__((noinline, noipa))

static volatile long sum;

APART static char *text(const char *from, size_t size)
{
    char *p = malloc(size);
    memcpy(p, from, size);
    return p;
}

APART static void strings(char *five, char *ten)
{
    sum += strlen(five); // error: Invalid read of size 1
    sum += strcmp(five, "abcdefgh"); // error: Invalid read of size 1
    sum += (long)strchr(five, 'z'); // error: Invalid read of size 1
    sum += (long)memchr(five, 'z', 6); // error: Invalid read of size 1
    sum += memcmp(five, "abcdefgh", 6); // error: Invalid read of size 1
    strcpy(ten, "0123456789"); // error: Invalid write of size 1
    stpcpy(ten, "0123456789a"); // error: Invalid write of size 1
    strncpy(ten, "x", 11); // error: Invalid write of size 1
    strcpy(ten, "01234567");
    strcat(ten, "89"); // error: Invalid write of size 1
    wcscpy((wchar_t *)ten, L"ab"); // error: Invalid write of size 4
    sum += strnlen(five, 5) + memcmp(five, "abX", 3) + strncmp(five, "abcdefgh", 5);
    sum += (long)memchr(five, 'c', 100);
}

APART static void overlapping(char *p)
{
    strcpy(p, "abcdefghij");
    strcpy(p + 1, p + 4); // error: Source and destination overlap in strcpy
    strncpy(p + 2, p, 5); // error: Source and destination overlap in strncpy
    memmove(p + 2, p, 5);
}

static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static size_t (*volatile length)(const char *) = strlen;

APART static void by_pointer(char *five, char *to)
{
    copy(to, five, 6); // error: Invalid read of size 1
    sum += length(five); // error: Invalid read of size 1
}

/* With optimisation this is a jump. */
APART static void *at_end(void *to, const void *from, size_t n)
{
    return memset(to, 0, n); // tail
}

APART static void calls(char *ten)
{
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    sum += read(zero, ten, 11); // error: Syscall param read(buf) points to unaddressable byte(s)
    sum += write(null, ten, 11); // error: Syscall param write(buf) points to unaddressable byte(s)
    sum += read(zero, ten, 10) + write(null, ten, 10);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    sum += send(pair[0], ten, 12, 0); // error: Syscall param socketcall.sendto(msg)
    sum += recv(pair[1], ten + 4, 8, 0); // error: Syscall param socketcall.recvfrom(buf)
}

static int compare(const void *a, const void *b)
{
    sum += 1;
    return *(const int *)a - *(const int *)b; // error: Invalid read of size 4
}

APART static void library(char *five, int *numbers)
{
    char buffer[64];
    snprintf(buffer, sizeof buffer, "%s", five); // error: Invalid read of size 1
    free(strdup(five)); // error: Invalid read of size 1
    qsort(numbers, 5, sizeof(int), compare); // error: Invalid
}

int main(void)
{
    char *five = text("abcde", 5), *ten = malloc(10), *more = malloc(40);
    strings(five, ten);
    overlapping(more);
    by_pointer(five, more);
    calls(ten);
    int *numbers = malloc(4 * sizeof(int));
    for (int i = 0; i < 4; i++)
        numbers[i] = 9 - i;
    library(five, numbers);
    free(five), free(ten), free(more), free(numbers);
    return 0;
}
