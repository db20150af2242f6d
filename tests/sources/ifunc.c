// An IFUNC in the program itself, whose resolver runs before initialisation;
// called directly, through a pointer, and from a constructor.
// variants: gcc-O0 gcc-O2 gcc-O2-static gcc-O2-staticpie gcc-O2-nopie gcc-O2-bindnow clang-O2 gcc-O2-strip
// missed: has_cpu_feature.part.0.constprop.0 get_available_features.constprop.0 __cpu_indicator_init triple resolve set_cpu_feature.constprop.0
// stdout: constructor 30 direct 30 pointer 30 same 1
// count: chosen 3
#include <stdio.h>
static int early;
__attribute__((noinline)) int chosen(int x) { return x * 3; }
__attribute__((noinline)) int other(int x) { return x * 5; }
static int (*resolve(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2") ? chosen : other; }
int triple(int) __attribute__((ifunc("resolve")));
__attribute__((constructor)) static void start(void) { early = triple(10); }
int (*volatile pointer)(int) = triple;
int main(void)
{
    int direct = triple(10);
    printf("constructor %d direct %d pointer %d same %d\n", early, direct, pointer(10), pointer == triple || pointer == chosen);
    return 0;
}
