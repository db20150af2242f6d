/* Prints addresses of everything that must not move. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

int data = 5;
int bss[1000];
extern char end[];

#ifdef BIG
/* An image larger than a huge page. */
const char ballast[3 << 20] = {1, 2, 3};
#else
const char ballast[4] = {1, 2, 3};
#endif

typedef int function(int);
static int twice(int x) { return 2 * x; }
static int square(int x) { return x * x; }
function *const table[] = {twice, square};

#ifdef STATIC
/* What a garbage collector and an unwinder make of the program headers. */
static int look(struct dl_phdr_info *info, size_t size, void *sum) {
  int loads = 0, homes = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr;
    if (p->p_type != PT_LOAD)
      continue;
    loads++;
    homes += (uintptr_t)look - start < p->p_memsz;
    if (p->p_flags & PF_W)
      for (uintptr_t at = start & -4096; at < start + p->p_memsz; at += 4096)
        *(unsigned *)sum += *(volatile char *)at;
  }
  /* Only the program itself: the vDSO's place is printed elsewhere. */
  if (homes)
    printf("image %p loads %d homes %d\n", (void *)info->dlpi_addr, loads, homes);
  (void)size;
  return 0;
}
#endif

int main(int argc, char **argv) {
  void *first = malloc(10), *heap = sbrk(0), *large = malloc(1 << 20);
  void *map = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (argc > 1) {
    /* The heap follows the image, by at most the random gigabyte. */
    uintptr_t distance = (uintptr_t)heap - (uintptr_t)end;
    puts(distance < 0x48000000 ? "heap near" : "heap far");
    return table[argc & 1](3);
  }
  printf("code %p %p %p %p\n", (void *)main, (void *)table[0], (void *)table[1], (void *)end);
  printf("data %p bss %p constants %p\n", (void *)&data, (void *)bss, (void *)table);
  printf("malloc %p large %p map %p\n", first, large, map);
  printf("stack %p arguments %p\n", (void *)&argc, (void *)argv);
  printf("entry %lx vdso %lx\n", getauxval(AT_ENTRY), getauxval(AT_SYSINFO_EHDR));
#ifndef HEAP_USED_BY_LOADER
  printf("heap %p\n", heap);
#endif
  for (int i = 0; i < 200; i++)
    free(malloc(i * 1000));
  printf("later %p %p\n", malloc(300), malloc(200000));
#ifdef STATIC
  unsigned sum = 0;
  dl_iterate_phdr(look, &sum);
#endif
  return table[argc & 1](3) + ballast[argc];
}
