// Locks all of its memory as a privileged process, and as an ordinary user within limits.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void lock(const char *who, int flags)
{
    int failed = mlockall(flags);
    printf("%s, flags %d: %s\n", who, flags, failed ? strerror(errno) : "locked");
    munlockall();
}

static void as_user(long bytes)
{
    fflush(stdout);
    if (fork() == 0) {
        struct rlimit limit = {bytes, bytes};
        char who[40];
        snprintf(who, sizeof who, "user with %ld", bytes);
        if (setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(65534))
            _exit(2);
        lock(who, MCL_CURRENT);
        lock(who, MCL_CURRENT | MCL_FUTURE);
        lock(who, 0);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    wait(&status);
    printf("ended with %d\n", WEXITSTATUS(status));
}

int main(void)
{
    lock("root", MCL_CURRENT);
    lock("root", MCL_CURRENT | MCL_FUTURE);
    lock("root", 0);
    lock("root", MCL_ONFAULT);
    lock("root", 64);
    as_user(8 << 20);
    as_user(4096);
    as_user(0);
    return 0;
}
