// Opens libraries from two threads at once, in a forked child, and again after they were closed.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static std::string folder;

static long work(const char *file, long n, bool closes)
{
    void *library = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    auto loop = (long (*)(long))dlsym(library, "loop");
    auto value = (int (*)(int))dlsym(library, "value");
    long sum = loop(n) + value(2);
    if (closes)
        dlclose(library);
    return sum;
}

static void *thread(void *n) { return (void *)work("/libplain.so", (long)n, false); }

int main(int, char **argv)
{
    folder = argv[1];
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], nullptr, thread, (void *)(1000 + i));
    for (pthread_t each : threads) {
        void *result;
        pthread_join(each, &result);
        printf("thread %ld\n", (long)result);
    }
    fflush(stdout);
    if (fork() == 0) {
        printf("child %ld\n", work("/libreal.so", 300, false) + work("/libplain.so", 20, false));
        fflush(stdout);
        exit(0);
    }
    int status;
    printf("%d %d\n", wait(&status) > 0, status);
    printf("parent %ld\n", work("/libreal.so", 50, false));
    // Mapped where the one before was.
    for (int i = 0; i < 3; i++) {
        printf("closed %ld\n", work("/libclosed.so", 7, true));
        printf("other %ld\n", work("/libdescriptors.so", 9, true));
    }
    return 0;
}
