// Calls that cross objects, in known numbers, and the load addresses of all objects at the end.
//
// The program calls libnear, libnear calls libfar and libc, and libc's qsort calls the program back. With the
// argument DLOPEN a library is opened, closed, and opened again at another address.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

int near_calls(int times);
int near_tail(int n);
int near_twice(int n);
void near_sorts(int *values, size_t count, int (*compare)(const void *, const void *));
long *far_fills(long count);
void far_frees(long *block);

static long compared;
long copied[64];
// Not known to the compiler, which would copy without memcpy.
static volatile size_t size = sizeof copied;

__attribute__((noinline)) int compare(const void *a, const void *b)
{
    compared++;
    return *(const int *)a - *(const int *)b;
}

static int list(struct dl_phdr_info *info, size_t size, void *last)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    printf("object '%s' %#lx\n", slash ? slash + 1 : info->dlpi_name, (unsigned long)info->dlpi_addr);
    return 0;
}

static unsigned long opened_at(void *library)
{
    struct link_map *map;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    return map->l_addr;
}

// Opens a library twice, at two addresses.
static int open_twice(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return puts(dlerror());
    unsigned long first = opened_at(library);
    int (*late)(int) = (int (*)(int))dlsym(library, "late");
    int sum = late(1);
    dlclose(library);
    // The address is taken now. musl has not unmapped the library.
    mmap((void *)first, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    library = dlopen(path, RTLD_NOW);
    late = (int (*)(int))dlsym(library, "late");
    sum += late(2);
    printf("opened twice: %d %d\n", first != opened_at(library), sum);
    return 0;
}

int main(int count, char **arguments)
{
    int values[200];
    for (int i = 0; i < 200; i++)
        values[i] = i * 37 % 211;
    near_sorts(values, 200, compare);
    long *block = far_fills(64);
    memcpy(copied, block, size);
    printf("sum %d %d %d %ld\n", near_calls(30), near_tail(4), near_twice(5), copied[63]);
    far_frees(block);
    if (count > 1)
        open_twice(arguments[1]);
    dl_iterate_phdr(list, NULL);
    printf("compared %ld\n", compared);
    return 0;
}
