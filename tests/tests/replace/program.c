/* Five calls of malloc, each of which may fail. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    char text[8];
    for (int i = 0; i < 5; i++) {
        void *volatile block = malloc(1000 + i);
        text[i] = block ? 'y' : 'n';
        free(block);
    }
    text[5] = '\n';
    return write(1, text, 6) != 6;
}
