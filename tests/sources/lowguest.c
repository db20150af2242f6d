// A static program at high addresses keeps low ones free for a program that it loads, as Valgrind does: it maps pages
// where linkers put programs, and none may be taken.
// cflags: -Wl,-Ttext-segment=0x58000000
// variants: gcc-O2-static-nopie gcc-O0-static-nopie-strip
// stdout: 3 free, sum 42
#include <stdio.h>
#include <sys/mman.h>

int main(void)
{
    static const unsigned long places[] = {0x108000, 0x400000, 0x8048000};
    int count = 0, sum = 0;
    for (int i = 0; i < 3; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        void *wanted = (void *)places[i];
        char *got = mmap(wanted, 0x200000, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (got != wanted)
            continue;
        got[0x1fffff] = 14;
        sum += got[0] + got[0x1fffff];
        count++;
    }
    printf("%d free, sum %d\n", count, sum);
    return 0;
}
