/* Starts each program that its arguments name by posix_spawn, with as many more variables as SPAWN_MORE says. The child has
   5 KB of stack with musl, and its parent's frames are below it. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    const char *more = getenv("SPAWN_MORE");
    int count = more ? atoi(more) : 0;
    char **variables = calloc(count + 1, sizeof *variables);
    for (int i = 0; i < count; i++) {
        variables[i] = malloc(32);
        sprintf(variables[i], "VARIABLE_%d=%d", i, i);
    }
    volatile int sums[64];
    for (int i = 0; i < 64; i++)
        sums[i] = 3 * i;
    for (int i = 1; i < argc; i++) {
        char *words[] = {argv[i], NULL};
        pid_t child;
        int status = 0;
        int error = posix_spawn(&child, argv[i], NULL, NULL, words, variables);
        if (!error)
            waitpid(child, &status, 0);
        printf("%s: %s, %x\n", argv[i], strerror(error), status);
    }
    for (int i = 0; i < 64; i++)
        if (sums[i] != 3 * i)
            return 1;
    return 0;
}
