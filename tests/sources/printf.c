// Calls of printf, wprintf and their relatives with all conversions and flags. The C library finds the
// code of a conversion by a table of bytes and by tables of distances from a label.
// cflags: -w
// variants: gcc-O2 gcc-O2-static clang-O2
// counts: no
// stdout: 20311 lines 7c5a87bb
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
static unsigned sum = 1;
static int lines;
static void take(const char *text, int length)
{
    lines++;
    if (length < 0) { sum = sum * 31 + 7; return; }
    for (const char *p = text; *p; p++) sum = sum * 31 + (unsigned char)*p;
}
static void take_wide(const wchar_t *text, int length)
{
    lines++;
    if (length < 0) { sum = sum * 31 + 7; return; }
    for (const wchar_t *p = text; *p; p++) sum = sum * 31 + (unsigned)*p;
}
int main(void)
{
    // Flags, widths, precisions and sizes of all integer and floating conversions.
    static const char *flags[] = { "", "-", "+", " ", "#", "0", "'", "I", "-#", "+0" };
    static const char *widths[] = { "", "1", "12" };
    static const char *precisions[] = { "", ".", ".0", ".5" };
    static const char *sizes[] = { "", "hh", "h", "l", "ll", "j", "z", "t", "q", "Z" };
    static const char *floats[] = { "", "l", "L" };
    char format[64], text[600];
    wchar_t wide_format[64], wide[600];
    for (int f = 0; f < 10; f++)
        for (int w = 0; w < 3; w++)
            for (int p = 0; p < 4; p++) {
                for (int s = 0; s < 10; s++)
                    for (const char *c = "diouxX"; *c; c++) {
                        snprintf(format, sizeof format, "[%%%s%s%s%s%c]", flags[f], widths[w], precisions[p], sizes[s], *c);
                        swprintf(wide_format, 64, L"%s", format);
                        take(text, snprintf(text, sizeof text, format, (intmax_t)-77 - f));
                        take_wide(wide, swprintf(wide, 600, wide_format, (intmax_t)-77 - f));
                    }
                for (int s = 0; s < 3; s++)
                    for (const char *c = "eEfFgGaA"; *c; c++) {
                        snprintf(format, sizeof format, "[%%%s%s%s%s%c]", flags[f], widths[w], precisions[p], floats[s], *c);
                        swprintf(wide_format, 64, L"%s", format);
                        if (s < 2) {
                            take(text, snprintf(text, sizeof text, format, 3.25 + f));
                            take_wide(wide, swprintf(wide, 600, wide_format, -3.25 * f));
                        } else {
                            take(text, snprintf(text, sizeof text, format, 3.25L + f));
                            take_wide(wide, swprintf(wide, 600, wide_format, -3.25L * f));
                        }
                    }
            }
    // Characters, strings, pointers, counts, error texts, per cent signs, arguments by number.
    int count = 0;
    errno = ENOENT;
    take(text, snprintf(text, sizeof text, "%c|%5c|%-5c|%lc|%C|%s|%.2s|%9s|%-9s|%ls|%S|%p|%p|%m|%%|%n", 'a', 'b', 'c',
        (wint_t)L'd', (wint_t)L'e', "text", "text", "text", "text", L"wide", L"wide", (void *)0, (void *)77, &count));
    sum = sum * 31 + count;
    take_wide(wide, swprintf(wide, 600, L"%c|%5c|%-5c|%lc|%C|%s|%.2s|%9s|%-9s|%ls|%S|%p|%p|%m|%%|%n", 'a', 'b', 'c',
        (wint_t)L'd', (wint_t)L'e', "text", "text", "text", "text", L"wide", L"wide", (void *)0, (void *)77, &count));
    sum = sum * 31 + count;
    take(text, snprintf(text, sizeof text, "%3$*1$.*2$f|%4$s|%5$c|%6$p|%7$lld|%8$Lg|%9$a|%3$e|%4$-9s|%1$#x|%1$o|%%", 12, 3, 1.5,
        "text", 'c', (void *)77, -9LL, 2.5L, 0.5));
    take_wide(wide, swprintf(wide, 600, L"%3$*1$.*2$f|%4$s|%5$c|%6$p|%7$lld|%8$Lg|%9$a|%3$e|%4$-9s|%1$#x|%1$o|%%", 12, 3, 1.5,
        "text", 'c', (void *)77, -9LL, 2.5L, 0.5));
    take(text, snprintf(text, sizeof text, "%*d|%-*d|%*.*f|%.*s", 7, 42, 7, 42, 9, 2, 1.0 / 3, 2, "abc"));
    take_wide(wide, swprintf(wide, 600, L"%*d|%-*d|%*.*f|%.*s", 7, 42, 7, 42, 9, 2, 1.0 / 3, 2, "abc"));
    // Conversions that do not exist, and formats that end too early.
    static const char *wrong[] = { "%y", "%5k|", "%", "%-", "%5", "%.", "%l", "%hhy", "%lly", "%1$y", "%\x7f", "%\xe9", "%!" };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *volatile bad = wrong[i];
        take(text, snprintf(text, sizeof text, bad, 1, 2));
    }
    for (const char *c = " !\"#$&()+,-./0123456789:;<=>?@BDHJKMNOPQRTUVWY[\\]^_`bklqrtvwyz{|}~"; *c; c++) {
        sprintf(format, "%%%c", *c);
        take(text, snprintf(text, sizeof text, format, 1, 2));
        swprintf(wide_format, 64, L"%%%c", *c);
        take_wide(wide, swprintf(wide, 600, wide_format, 1, 2));
    }
    printf("%d lines %08x\n", lines, sum);
    return 0;
}
