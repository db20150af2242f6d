// References by null pointers, and by pointers that no process can have, after which a handler continues.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
    long first;
    int second;
    struct node *next;
};

static sigjmp_buf back;
static int caught;

static void handler(int signal) {
    caught += signal;
    siglongjmp(back, 1);
}

__attribute__((noipa)) static int second(struct node *node) {
    return node->second; // error: Invalid read of size 4
}

__attribute__((noipa)) static void set(struct node *node, struct node *next) {
    node->next = next; // error: Invalid write of size 8
}

struct wide {
    char bytes[64];
};

__attribute__((noipa)) static void copy(struct wide *to, struct wide *from) { *to = *from; }
__attribute__((noipa)) static char byte(char *at) { return at[3]; }
__attribute__((noipa)) static long sum(struct node *node) { return node->first + node->second; }

int main(int argc, char **argv) {
    struct node *volatile none = NULL;
    struct node *volatile wild[] = {(void *)0x4141414141414141, (void *)0xffffffff80000000};
    struct node *one = calloc(1, sizeof *one);
    signal(SIGSEGV, handler);
    if (!sigsetjmp(back, 1))
        printf("%d\n", second(none));
    if (!sigsetjmp(back, 1))
        set(none, one);
    for (volatile int i = 0; i < 2; i++) {
        struct wide wide;
        if (!sigsetjmp(back, 1))
            printf("%d\n", second(wild[i]));
        if (!sigsetjmp(back, 1))
            set(wild[i], one);
        if (!sigsetjmp(back, 1))
            copy((struct wide *)wild[i], &wide);
        if (!sigsetjmp(back, 1))
            printf("%d\n", byte((char *)wild[i]));
        if (!sigsetjmp(back, 1))
            printf("%ld\n", sum(wild[i]));
    }
    set(one, one);
    printf("%d %d\n", caught, second(one));
    one->next = NULL;
    free(one);
    return 0;
}
