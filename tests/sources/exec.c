// A process that becomes another program ends for its tool; a call of exec that
// fails does not end it; a vfork child does not end its parent.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie gcc-O2-noplt gcc-O2-static musl-O1-static
// stdout: failed failed child 0
// stdout: another program
// counts: no
// points NAME before after, calls that came back:
// point: leaf 6 6 0
// point: try_to 2 2 4

#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

NOINLINE void leaf(int n)
{
    sink += n;
}

/* A folder may be searched, but not executed. */
NOINLINE void try_to(char *path)
{
    char *arguments[] = {path, NULL};
    execv(path, arguments);
    printf("failed ");
}

int main(void)
{
    leaf(1);
    leaf(2);
    try_to("/");
    leaf(3);
    try_to("/nowhere/at/all");
    leaf(4);
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    fflush(stdout);
    leaf(5);
    leaf(6);
    execlp("echo", "echo", "another", "program", (char *)NULL);
    return 1;
}
