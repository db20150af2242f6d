/* Forks, allocates and frees; no errors. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    char *block = malloc(100);
    pid_t child = fork();
    for (int i = 0; i < 100; i++)
        block[i] = i;
    free(block);
    if (child == 0)
        _exit(0);
    waitpid(child, 0, 0);
    return 0;
}
