/* Errors, and a leak of two blocks from two calls of one function. */
#include <stdlib.h>
#include <string.h>

static char *make(int size) {
    return malloc(size);
}

int main(int count, char **words) {
    int *numbers = malloc(40);
    numbers[10] = count;
    make(77)[0] = 1;
    make(78)[0] = 1;
    free(numbers);
    int was = ((volatile int *)numbers)[1];
    char *text = malloc(16);
    memcpy(text, "text", 5);
    free(text + 1);
    if (count > 1 && !strcmp(words[1], "abort"))
        abort();
    return count > 1 ? was & 0xff : 3;
}
