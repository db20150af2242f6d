// What a static program sees of its own path, and addresses on its heap: the C library allocates memory for the path at
// its start.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void)
{
    char path[4096], other[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    size = readlinkat(AT_FDCWD, "/proc/thread-self/exe", other, sizeof other - 1);
    other[size < 0 ? 0 : size] = 0;
    printf("%s\n%s\n%s\n", path, other, (char *)getauxval(AT_EXECFN));
    // A number is no name of the own program.
    size = readlink("/proc/self/fd/0", path, 1);
    printf("%zd %lx\n", size, getauxval(AT_ENTRY));
    for (int i = 0; i < 4; i++)
        printf("%p\n", malloc(100 << 4 * i));
    return 0;
}
