// Prints the addresses that a program can see of itself: code, data, bss,
// heap, big allocation, stack, brk, environment. They must not move. Nor may the
// stack of what runs before and after main, down to DT_FINI.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie gcc-O2-static gcc-O2-staticpie clang-O2 gcc-O2-strip gcc-O2-bindnow gcc-O2-lld gcc-O2-gold gcc-O2-static-strip
// pristine: yes
// counts: no
// cflags: -Wl,-fini=last
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static int early_brk_ok;
static void *early;
static int data = 5, bss;
static const int rodata = 7;
static __thread int tls = 3;
static int helper(void) { return data; }
static void *first_frame;
__attribute__((constructor)) static void start(void) { early = sbrk(0); early_brk_ok = 1; first_frame = __builtin_frame_address(0); }
__attribute__((destructor)) static void stop(void) { printf("destructor %p\n", __builtin_frame_address(0)); }
void last(void) { printf("last %p\n", __builtin_frame_address(0)); }
int main(int argc, char **argv, char **envp)
{
    int local;
    void *first = malloc(10), *big = malloc(1 << 20), *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *frame = __builtin_frame_address(0), *ret = *(void **)&(void *){ __builtin_return_address(0) };
    printf("main %p helper %p pointer %p\n", (void *)main, (void *)helper, (void *)(&helper + 0));
    printf("data %p bss %p rodata %p tls %p\n", (void *)&data, (void *)&bss, (void *)&rodata, (void *)&tls);
    printf("malloc %p big %p map %p\n", first, big, map);
    printf("local %p frame %p returns %d\n", (void *)&local, frame, ret != NULL);
    printf("sbrk %p early %p %d\n", sbrk(0), early, early_brk_ok);
    printf("constructor %p\n", first_frame);
    printf("argv %p envp %p argc %d\n", (void *)argv, (void *)envp, argc);
    return rodata - 7 + tls - 3;
}
