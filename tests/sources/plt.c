// Calls into libraries by every linkage: lazy PLT, bind-now, -fno-plt, through
// pointers taken of library functions, qsort and bsearch with call-backs.
// variants: gcc-O2-lazy gcc-O2-bindnow gcc-O2-noplt gcc-O2-nopie gcc-O2-nopie-lazy gcc-O2-static clang-O2 clang-O2-noplt gcc-O2-cet gcc-O2-lld gcc-O2-lld-retpolineplt gcc-O2-gold gcc-O2-mold-lazy gcc-O2-strip
// counts-not: gcc-O2-lld-retpolineplt
// stdout: apple,banana,cherry,date,elderberry found cherry len 5 upper ABC abs 7 env set
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *words[] = { "cherry", "apple", "elderberry", "date", "banana" };
static int compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }
static size_t (*volatile length)(const char *) = strlen;
static int (*volatile upper)(int) = toupper;
int main(void)
{
    qsort(words, 5, sizeof *words, compare);
    for (int i = 0; i < 5; i++) printf("%s%s", i ? "," : "", words[i]);
    const char *key = "cherry";
    const char **hit = bsearch(&key, words, 5, sizeof *words, compare);
    char up[4] = "abc";
    for (char *p = up; *p; p++) *p = upper(*p);
    setenv("ATOM_TEST", "set", 1);
    printf(" found %s len %zu upper %s abs %d env %s\n", *hit, length("hello"), up, abs(-7), getenv("ATOM_TEST"));
    return 0;
}
