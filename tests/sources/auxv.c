// What the kernel tells of a static program's auxiliary vector is what it tells of the original's.
// variants: gcc-O0-static gcc-O2-static-strip clang-O2-static
// pristine: yes
// counts: no
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    Elf64_auxv_t pairs[64];
    int fd = open("/proc/self/auxv", O_RDONLY);
    int count = read(fd, pairs, sizeof pairs) / sizeof *pairs;
    for (int i = 0; i < count; i++)
        printf("%lu %#lx\n", pairs[i].a_type, pairs[i].a_un.a_val);
    return 0;
}
