// Opens libraries one after the other and calls `loop` in each, the first one once, the second one twice, and so on.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        long (*loop)(long) = (long (*)(long))dlsym(library, "loop");
        printf("%ld\n", loop(100 * i));
    }
    return 0;
}
