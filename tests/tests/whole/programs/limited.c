// Limits its own address space, or with an argument its data, and prints how much of it is left, to the page, and what it sees of the limit: by itself, in a
// thread, in a forked child, and in programs that it executes.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// RLIMIT_AS, or RLIMIT_DATA.
static int resource;

static void show(const char *when)
{
    struct rlimit limit = {1, 1};
    struct rlimit raw = {1, 1};
    getrlimit(resource, &limit);
    int error = syscall(SYS_getrlimit, resource, &raw) ? errno : 0;
    printf("%s: %ld %ld, %d %d\n", when, (long)limit.rlim_cur, (long)limit.rlim_max, error,
        memcmp(&limit, &raw, sizeof raw));
}

// Maps pages until there are no more, and gives them back.
static void fill(const char *when)
{
    enum { MOST = 100000 };
    static void *pages[MOST];
    int n = 0;
    for (; n < MOST; n++) {
        // Each is a mapping by itself.
        int rights = n % 2 && resource == RLIMIT_AS ? PROT_READ : PROT_READ | PROT_WRITE;
        pages[n] = mmap(NULL, 16384, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages[n] == MAP_FAILED)
            break;
    }
    int error = errno;
    for (int i = 0; i < n; i++)
        munmap(pages[i], 16384);
    printf("%s: %d mappings, %s\n", when, n, n == MOST ? "no limit" : strerror(error));
}

static void *thread(void *unused)
{
    fill("thread");
    return unused;
}

static void set(const char *when, rlim_t soft, rlim_t hard, long number)
{
    struct rlimit limit = {soft, hard};
    struct rlimit old = {1, 1};
    int failed = number == SYS_prlimit64 ? syscall(number, getpid(), resource, &limit, &old)
                                         : syscall(number, resource, &limit);
    printf("%s: %d, before %ld %ld\n", when, failed ? errno : 0, (long)old.rlim_cur, (long)old.rlim_max);
}

// Fails to execute a file that is found executable.
static void execute_nothing(void)
{
    char text[] = "/tmp/limited-XXXXXX";
    int file = mkstemp(text);
    fchmod(file, 0700);
    dprintf(file, "#!/none/at/all\n");
    close(file);
    execl(text, text, (char *)NULL);
    int error = errno;
    unlink(text);
    printf("execl: %s\n", strerror(error));
    show("after a failed execl");
    fill("after a failed execl");
}

static void execute(int fails)
{
    pid_t child = fork();
    if (child == 0) {
        fill("child");
        if (fails)
            execute_nothing();
        execl("/bin/sh", "sh", "-c", resource == RLIMIT_AS ? "ulimit -Sv; ulimit -Hv" : "ulimit -Sd; ulimit -Hd", (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child: %x\n", status);
}

int main(int argc, char **argv)
{
    (void)argv;
    resource = argc > 1 ? RLIMIT_DATA : RLIMIT_AS;
    setvbuf(stdout, NULL, _IONBF, 0);
    show("at the start");
    set("to 100 MB", 100 << 20, RLIM_INFINITY, SYS_setrlimit);
    show("after it");
    fill("main");
    set("soft above hard", 3, 2, SYS_prlimit64);
    printf("bad pointers: %d %d\n", (int)syscall(SYS_prlimit64, 0, resource, 8, NULL),
        (int)syscall(SYS_prlimit64, 0, resource, NULL, 8));
    pthread_t task;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    if (pthread_create(&task, &small, thread, NULL))
        puts("no thread");
    else
        pthread_join(task, NULL);
    execute(1);
    set("to 60 MB and 80 MB", 60 << 20, 80 << 20, SYS_prlimit64);
    fill("main again");
    show("after it");
    execute(0);
    if (geteuid() == 0 && setuid(65534))
        return 1;
    set("above the hard limit", 60 << 20, 90 << 20, SYS_prlimit64);
    set("to the hard limit", 80 << 20, 80 << 20, SYS_prlimit64);
    fill("up to the hard limit");
    set("lower", 50 << 20, 70 << 20, SYS_prlimit64);
    fill("in the end");
    show("in the end");
    return 0;
}
