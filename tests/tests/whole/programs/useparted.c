// Calls the library `parted.c`, which has code behind its data.
#include <stdio.h>

int twice(int n);

int main(void)
{
    for (int n = 1; n <= 3; n++)
        printf("%d\n", twice(1000 * n));
    return 0;
}
