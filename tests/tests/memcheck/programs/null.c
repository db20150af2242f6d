// References by null pointers, after which a handler continues.
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

int main(int argc, char **argv) {
    struct node *volatile none = NULL;
    struct node *one = calloc(1, sizeof *one);
    signal(SIGSEGV, handler);
    if (!sigsetjmp(back, 1))
        printf("%d\n", second(none));
    if (!sigsetjmp(back, 1))
        set(none, one);
    set(one, one);
    printf("%d %d\n", caught, second(one));
    one->next = NULL;
    free(one);
    return 0;
}
