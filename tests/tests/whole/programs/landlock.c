/* A process that forbids itself to open files: `landlock WAY`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/landlock.h>

static void *shut(void *unused) {
    /* Everything but executing and reading. */
    struct landlock_ruleset_attr all = {.handled_access_fs = 0x1fff & ~(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE)};
    int rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (rules >= 0 && syscall(SYS_landlock_restrict_self, rules, 0))
        _exit(9);
    /* Where the kernel has no Landlock, nothing is forbidden. */
    if (rules >= 0) {
        close(rules);
        int fd = open("forbidden", O_WRONLY | O_CREAT, 0600);
        if (fd >= 0 || errno != EACCES)
            _exit(8);
    }
    /* The next descriptor is the original's. */
    printf("shut, next %d\n", dup(0));
    return unused;
}

int main(int argc, char **argv) {
    char *way = argv[1];
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(way, "child")) {
        pid_t child = fork();
        if (!child) { shut(NULL); return 5; }
        int status; waitpid(child, &status, 0);
        printf("status %x\n", status);
    } else if (!strcmp(way, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, shut, NULL);
        pthread_join(thread, NULL);
        int fd = open("/dev/null", O_WRONLY);
        printf("main may open: %d\n", fd >= 0);
    } else {
        shut(NULL);
    }
    if (!strcmp(way, "exec"))
        /* The program that is executed is restricted, too. */
        execl("/bin/true", "true", NULL);
    /* No child that nobody has started. */
    printf("wait %d %d\n", wait(NULL), errno);
    return 3;
}
