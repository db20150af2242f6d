// Work in libraries, with one thread and nothing that depends on addresses.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void)
{
    int numbers[40];
    char *text = malloc(300);
    for (int i = 0; i < 40; i++)
        numbers[i] = i * 7919 % 101;
    qsort(numbers, 40, sizeof *numbers, compare);
    snprintf(text, 300, "%d %s %.6f", numbers[20], "words", sqrt(numbers[30]) + sin(1.0));
    char *copy = strdup(text);
    printf("%s %zu %ld\n", copy, strlen(copy), strtol("123", NULL, 10));
    free(copy);
    free(text);
    return 0;
}
