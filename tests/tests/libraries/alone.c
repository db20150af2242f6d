// Loads a library twice, calls it from threads and catches what it throws; prints what it sees of the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*fib)(int);
static void *work(void *n) { return (void *)(long)fib((int)(long)n); }

int main(int argc, char **argv)
{
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        fib = (int (*)(int))dlsym(library, "fib");
        int (*started)(void) = (int (*)(void))dlsym(library, "started");
        int (*caught)(int) = (int (*)(int))dlsym(library, "caught");
        Dl_info info;
        printf("%d %s\n", started() == argc, dladdr((void *)fib, &info) ? info.dli_sname : "?");
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)15L);
        for (int i = 0; i < 4; i++) {
            void *sum;
            pthread_join(threads[i], &sum);
            printf("%ld ", (long)sum);
        }
        printf("%d\n", caught(7));
        dlclose(library);
        printf("%s\n", dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? "stays" : "gone");
    }
    // Loaded for good: reports at the process's end.
    if (argc > 2) {
        dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
        printf("%d\n", ((int (*)(int))dlsym(RTLD_DEFAULT, "fib"))(10));
    }
    return 0;
}
