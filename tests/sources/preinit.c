// The program's own preinit array: one function of the program, one of a
// library, which the loader looks up.
// variants: gcc-O0 gcc-O2-nopie gcc-O2-strip gcc-O2-lld
// stdout: own 1 mask 1
#include <stdio.h>
#include <sys/stat.h>
static int own;
static void mine(int argc, char **argv, char **envp)
{
    own = argc == 1 && argv[0] != NULL && argv[1] == NULL && envp != NULL;
}
typedef void function(int, char **, char **);
// Called as umask(argc).
__attribute__((section(".preinit_array"), used))
static function *array[] = {mine, (function *)umask};
int main(void)
{
    printf("own %d mask %o\n", own, umask(022));
}
