// Reads the first bytes of a procedure whose address it hides from all analysis.
#include <stdint.h>
#include <stdio.h>
__attribute__((noinline)) int victim(int x) { return x * 3 + 1; }
int (*volatile pointer)(int) = victim;
static volatile uintptr_t key = 0x5a5a5a5a5a5a5a5a;
int main(void)
{
    uintptr_t hidden = (uintptr_t)pointer ^ key;
    volatile const unsigned char *bytes = (const unsigned char *)(hidden ^ key);
    unsigned sum = 0;
    for (int i = 0; i < 4; i++) sum += bytes[i];
    printf("%d\n", pointer(sum ? 13 : 12));
    return 0;
}
