/* Uses the C library in ways of which the output is known: it is the output of the same code with the system's. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <inttypes.h>
#include <string.h>
#include <pthread.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void by_list(FILE *out, const char *format, ...) {
    va_list list, copy;
    va_start(list, format);
    va_copy(copy, list);
    vfprintf(out, format, list);
    char text[200];
    int n = vsnprintf(text, sizeof text, format, copy);
    fprintf(out, "%d %s", n, text);
    va_end(copy);
    va_end(list);
}

static void formats(FILE *out) {
    static const char *flags[] = {"", "-", "+", " ", "#", "0", "-0", "+#0", "0 "};
    static const char *sizes[] = {"", "3", "12", ".0", ".3", "12.4", "20.10"};
    static const long long ints[] = {0, 1, -1, 42, -12345, INT_MAX, INT_MIN, LLONG_MAX, LLONG_MIN};
    static const double doubles[] = {0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 1e-5, 123456.789, 1e15, 9.999999e20,
        1e100, 5e-324, 1.7976931348623157e308, 3.141592653589793, 100000.0, 999999.4, 0.0001, 0.00001234};
    char format[40];
    for (unsigned f = 0; f < sizeof flags / sizeof *flags; f++) {
        for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (unsigned i = 0; i < sizeof ints / sizeof *ints; i++) {
                for (const char *c = "diuoxX"; *c; c++) {
                    snprintf(format, sizeof format, "%%%s%s%c|", flags[f], sizes[s], *c);
                    fprintf(out, format, (int)ints[i]);
                    snprintf(format, sizeof format, "%%%s%sll%c|", flags[f], sizes[s], *c);
                    fprintf(out, format, ints[i]);
                    snprintf(format, sizeof format, "%%%s%shh%c|", flags[f], sizes[s], *c);
                    fprintf(out, format, (int)ints[i]);
                }
                fputc('\n', out);
            }
            for (unsigned i = 0; i < sizeof doubles / sizeof *doubles; i++) {
                for (const char *c = "eEfFgGaA"; *c; c++) {
                    snprintf(format, sizeof format, "%%%s%s%c|", flags[f], sizes[s], *c);
                    fprintf(out, format, doubles[i]);
                }
                fputc('\n', out);
            }
            snprintf(format, sizeof format, "%%%s%ss|%%%s%sc|%%%s%sg\n", flags[f], sizes[s], flags[f],
                s < 3 ? sizes[s] : "", flags[f], sizes[s]);
            fprintf(out, format, "some text", 'x', INFINITY);
        }
    }
    int written = 0;
    fprintf(out, "%2$s %1$d %2$s|%3$*1$d|%4$-*1$.*5$f|%1$05d|%6$g %7$c%%\n", 9, "two", 33, 4.5678, 2, 6.25, '7');
    fprintf(out, "%8$d %1$g %2$g %3$g %4$g %5$g %6$g %7$ld %9$g %10$g %11$g\n", 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7L, 8, 9.5, 10.5, 11.5);
    fprintf(out, "%1$hhx %1$x %1$#lx %2$p\n", -1L, (void *)0);
    fprintf(out, "%*d|%-*d|%.*f|%5.1f%%|%s|%p|%n%zu\n", 7, 42, 7, 42, 2, 3.14159, 99.5, "end", (void *)0, &written,
        sizeof(long));
    fprintf(out, "%d %c%c%c %hd %ld %jd %td\n", written, 'a', 'b', 'c', (short)-3, -4L, (intmax_t)-5, (ptrdiff_t)-6);
    by_list(out, "%d %d %d %d %d %d %d %d %f %f %f %f %f %f %f %f %f %f %s\n", 1, 2, 3, 4, 5, 6, 7, 8, 1.0, 2.0, 3.0,
        4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, "last");
    char small[5];
    fprintf(out, "%d %s\n", snprintf(small, sizeof small, "%s", "too long"), small);
}

static void strings(FILE *out) {
    char text[100] = "alpha", *rest;
    strcat(text, ",beta,");
    strncat(text, "gamma and more", 5);
    fprintf(out, "%s %zu %s %s %s\n", text, strlen(text), strchr(text, ','), strrchr(text, ','), strstr(text, "et"));
    fprintf(out, "%zu %zu %s\n", strspn(text, "ahlp"), strcspn(text, ","), strpbrk(text, "xyg"));
    char *copy = strdup(text);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        fprintf(out, "<%s>", word);
    free(copy);
    fprintf(out, "%d %d %d\n", strcasecmp("ABC", "abd") < 0, strncmp("abc", "abd", 2), memcmp("abc", "abd", 3) < 0);
    memset(text, 'x', 10);
    memmove(text + 2, text, 20);
    text[30] = 0;
    fprintf(out, "%s %s\n", text, strerror(ENOENT));
    for (int c = 0; c < 128; c++)
        fprintf(out, "%d%d%d%d%d%d%d%d %d %d ", !!isalpha(c), !!isdigit(c), !!isspace(c), !!isupper(c), !!isprint(c),
            !!ispunct(c), !!isxdigit(c), !!iscntrl(c), toupper(c), tolower(c));
    fputs("\n", out);
}

static void numbers(FILE *out) {
    static const char *texts[] = {"42", "  -17x", "0x1f", "077", "99999999999999999999", "-99999999999999999999", "", "z",
        "1e3", "  2.5e-3 rest", "-0x1.8p3", "inf", "nan(1)", ".5.", "1e", "0x", "+8"};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (int base = 0; base <= 36; base += 4) {
            char *end;
            if (base == 4)
                base = 8;
            long n = strtol(texts[i], &end, base);
            fprintf(out, "%ld %d ", n, (int)(end - texts[i]));
            unsigned long u = strtoul(texts[i], &end, base);
            fprintf(out, "%lu %d|", u, (int)(end - texts[i]));
        }
        char *end;
        double d = strtod(texts[i], &end);
        fprintf(out, "%.17g %d %d\n", d, (int)(end - texts[i]) <= 3 || texts[i][0] != 'n' ? (int)(end - texts[i]) : 3, atoi(texts[i]));
    }
    int values[] = {5, 3, 9, -1, 3, 0}, key = 9;
    qsort(values, 6, sizeof *values, compare);
    for (int i = 0; i < 6; i++)
        fprintf(out, "%d ", values[i]);
    fprintf(out, "%td %d %ld\n", (int *)bsearch(&key, values, 6, sizeof *values, compare) - values, abs(-3), labs(-4));
    int a = 0, b = 0, n = 0, count;
    unsigned x = 0;
    float f = 0;
    double d = 0;
    char word[20] = "", set[20] = "", c = 0;
    count = sscanf("12 -34 ff 2.5 3.25 hello abc123 Z", "%d %d %x %f %lf %19s %19[a-c] %n", &a, &b, &x, &f, &d, word, set, &n);
    fprintf(out, "%d: %d %d %x %g %g %s %s %d\n", count, a, b, x, f, d, word, set, n);
    count = sscanf("7,8;x", "%d,%*d;%c", &a, &c);
    fprintf(out, "%d: %d %c\n", count, a, c);
    fprintf(out, "%d %d\n", sscanf("", "%d", &a), sscanf("x", "%d", &a));
}

/* Numbers at the ends of the range of their type, and between two of its values. */
static void limits_of_numbers(FILE *out) {
    static const char *texts[] = {"1e999", "-1e999", "1e-999", "0e-999", "1e-310", "4.9e-324", "1.7976931348623157e308", "3.4e39", "1e-40",
        "1.00000005960464477539062500001", "1.000000059604644775390625", "0x1.fffffffffffff8p0", "0x1.00000000000008p0",
        "0x1.000000000000080000001p0", "0x10000000000000800000001p0", "0x1p1024", "0x1p-1075", "0x1.8p-1074", "0x1p-1074",
        "0x0.8p-148", "0x1p99999999999", "0x0p99999999999", "0x1p-99999999999", "-", "-infinity", "nan(a_1)", "nan(a", "nan(-)"};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *end;
        float scanned = 0;
        errno = 0;
        double d = strtod(texts[i], &end);
        fprintf(out, "%s: %a %d %d ", texts[i], isnan(d) ? 0 : d, (int)(end - texts[i]), errno);
        errno = 0;
        float f = strtof(texts[i], &end);
        int n = *texts[i] == 'n' ? 0 : sscanf(texts[i], "%f", &scanned);
        fprintf(out, "%a %d %d %d %a\n", isnan(f) ? 0 : f, (int)(end - texts[i]), errno, n, scanned);
    }
}

static int is_larger(const void *a, const void *b) {
    return *(const int *)a > *(const int *)b;
}

static int at_random(const void *a, const void *b) {
    return rand() % 3 - 1;
}

/* Functions that are no order, and a field as long as a tool may print one. */
static void extremes(FILE *out) {
    static int values[3000];
    unsigned random = 1;
    for (int n = 0; n < 3000; n += n < 70 ? 1 : 611) {
        for (int i = 0; i < n; i++) {
            random = random * 1103515245 + 12345;
            values[i] = random >> 8 & 0xffff;
        }
        qsort(values, n, sizeof *values, is_larger);
        for (int i = 0; i < n; i += 13)
            fprintf(out, "%d ", values[i]);
        qsort(values, n, sizeof *values, at_random);
    }
    char *text = malloc(100001), *nothing = NULL, three[4] = "";
    memset(text, 'x', 100000);
    text[100000] = 0;
    int n = fprintf(out, "%.*s|%80000d|%.70000d|%.70000f|%.70000e|%.66000a\n", 90000, text, 5, 6, 1.5, 2.5, 3.5);
    fprintf(out, "%d %d\n", n, snprintf(NULL, 0, "%100000s%s", "", text));
    free(text);
    fprintf(out, "[%.3s][%.6s][%9s]\n", nothing, nothing, nothing);
    FILE *file = fopen("exclusive", "wx"), *again = fopen("exclusive", "wx");
    fprintf(out, "%d %d\n", file != NULL, again != NULL);
    fclose(file);
    fprintf(out, "%d %s\n", remove("exclusive"), strerror(ENOTEMPTY));
    n = sscanf("ab", "%3c", three);
    fprintf(out, "%d %s\n", n, three);
}

static void mathematics(FILE *out) {
    for (double x = 0.125; x < 20; x *= 1.7)
        fprintf(out, "%.9g %.9g %.9g %.9g %.9g %.9g %.9g %.9g %ld\n", sin(x) + cos(x), tan(x), exp(x), log(x), sqrt(x),
            pow(x, 1.5), floor(x) + ceil(x) + fmod(x, 0.7), erf(x), lround(x));
    for (float x = 0.25f; x < 9; x += 0.75f) {
        int e;
        float whole;
        fprintf(out, "%.5g %.5g %.5g %.5g %ld\n", sinf(x) + cosf(x), sqrtf(x), frexpf(x, &e), modff(x, &whole), lroundf(x));
    }
    int e;
    double whole, fraction = modf(3.75, &whole), half = frexp(10.0, &e);
    fprintf(out, "%g %d %g %g %g %g\n", half, e, fraction, whole, ldexp(1.5, 4), copysign(2, -1));
}

static void calendar(FILE *out) {
    static const char *formats[] = {"%a %A %b %B %c %C %d %D", "%e %F %g %G %h %H %I %j", "%k %l %m %M %n %p %P %r", "%R %s %S %t %T %u %U %V",
        "%w %W %x %X %y %Y %z %Z %%", "%-d %_d %05d %^a %^B %12A %_5H %-j %10F %Ey %Od %3Y", "%Q %q"};
    static const time_t times[] = {0, -1, 1, 951782400, 951868799, 951868800, 1078012800, 4107542400, 1704067199, 1704067200, 1735689599,
        -62135596800, -2208988800, 253402300799, 1e10, 1230768000, 1262304000, 1293840000, 1325376000, 1356998400, 1388534400};
    char text[300];
    struct tm date, back;
    for (unsigned t = 0; t < sizeof times / sizeof *times; t++) {
        gmtime_r(&times[t], &date);
        for (unsigned f = 0; f < sizeof formats / sizeof *formats; f++) {
            size_t n = strftime(text, sizeof text, formats[f], &date);
            fprintf(out, "%zu %s\n", n, text);
        }
        fprintf(out, "%s", asctime(&date));
        back = date;
        back.tm_mon += 14;
        back.tm_mday -= 40;
        back.tm_hour += 50;
        back.tm_sec = -100000;
        fprintf(out, "%d %ld ", timegm(&date) == times[t], (long)timegm(&back));
        fprintf(out, "%d-%d-%d %d:%d:%d %d %d\n", back.tm_year, back.tm_mon, back.tm_mday, back.tm_hour, back.tm_min, back.tm_sec,
            back.tm_wday, back.tm_yday);
    }
    for (time_t day = -800 * 366; day < 800 * 366; day += 97) {
        time_t at = day * 86400 + 43210;
        strftime(text, sizeof text, "%F %j %G-%V-%u %U %W\n", gmtime(&at));
        fputs(text, out);
    }
    time_t far = (time_t)1 << 60;
    fprintf(out, "%d %zu %zu\n", gmtime(&far) == NULL, strftime(text, 10, "%F", &date), strftime(text, 11, "%F", &date));
    struct timespec now;
    date = *localtime(&times[3]);
    fprintf(out, "%ld %s %s", mktime(&date) - times[3], date.tm_zone, ctime(&times[3]));
    int base = timespec_get(&now, TIME_UTC);
    fprintf(out, "%d %d\n", base == TIME_UTC, time(NULL) - now.tv_sec <= 1);
}

static void more(FILE *out) {
    int a = 0, b = 0, n = 0;
    char word[20] = "", *own = NULL, text[40], zeros[8];
    double d = 0;
    n = sscanf("12 abc 2.5", "%3$d %1$19s %2$lf", word, &d, &a);
    fprintf(out, "%d %d %s %g\n", n, a, word, d);
    n = sscanf("5/[x]/-9", "%2$d/%3$[][x]/%1$d", &a, &b, word);
    fprintf(out, "%d %d %d %s\n", n, a, b, word);
    n = sscanf("key = some value", "%19[^ =] = %m[^\n]", word, &own);
    fprintf(out, "%d %s %s\n", n, word, own);
    free(own);
    n = sscanf("x", "%*d %ms", &own);
    fprintf(out, "%d\n", n);
    uint64_t u = 0;
    int8_t small = 0;
    n = sscanf("18446744073709551615 -7", "%" SCNu64 " %" SCNd8, &u, &small);
    fprintf(out, "%d %" PRIu64 " %" PRId8 " %" PRIx64 " %jd\n", n, u, small, u, (intmax_t)u);
    imaxdiv_t parts = imaxdiv(-17, 5);
    fprintf(out, "%jd %jd\n", parts.quot, parts.rem);
    char *end = stpncpy(text, "stop", 8);
    fprintf(out, "%d %d ", (int)(end - text), text[7]);
    fprintf(out, "%d %d %d\n", strcoll("a", "b") < 0, strcoll("a", "a"), (int)strxfrm(text, "form", sizeof text));
    memset(zeros, 1, sizeof zeros);
    explicit_bzero(zeros, sizeof zeros);
    fprintf(out, "%d %d %d %s\n", zeros[7], __builtin_ffs(b), (int)sizeof zeros, text);
    static const double doubles[] = {0.0, -0.0, 1.0, -2.5, 1e-310, INFINITY, -INFINITY, NAN};
    for (unsigned i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        double x = doubles[i];
        float f = (float)x;
        fprintf(out, "%d%d%d%d%d ", !!isnan(x), !!isinf(x), !!isfinite(x), !!signbit(x), fpclassify(x) == FP_SUBNORMAL);
        fprintf(out, "%d%d%d%d ", !!isnan(f), !!isinf(f), !!isfinite(f), !!signbit(f));
        fprintf(out, "%g %g %g\n", scalbln(x, 3), nextafterf(1.0f, f), j0(0.5));
    }
    char *all = NULL;
    size_t size = 7;
    FILE *memory = open_memstream(&all, &size);
    fprintf(memory, "%d lines", 3);
    fflush(memory);
    fprintf(out, "%s %zu ", all, size);
    fputs(" and more", memory);
    fclose(memory);
    fprintf(out, "%s %zu\n", all, size);
    free(all);
    FILE *hidden = tmpfile();
    fputs("hidden\n", hidden);
    rewind(hidden);
    fprintf(out, "%s", fgets(text, sizeof text, hidden));
    fclose(hidden);
    char name[] = "libraryXXXXXX";
    int fd = mkstemp(name);
    fprintf(out, "%d %.7s %d\n", fd > 2, name, remove(name));
    close(fd);
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int tried = pthread_mutex_trylock(&mutex), again = pthread_mutex_trylock(&mutex), freed = pthread_mutex_unlock(&mutex);
    fprintf(out, "%d %d %d ", tried, again == EBUSY, freed);
    fprintf(out, "%d %d %s\n", pthread_mutex_lock(&mutex), gethostname(text, sizeof text), text);
    int quotient;
    double rest = remquo(17.5, 3.0, &quotient);
    fprintf(out, "%g %d %d %g\n", rest, quotient & 7, ilogbf(10.0f), logbf(10.0f));
}

static void files(FILE *out) {
    char line[100];
    FILE *file = fopen("library.tmp", "w+");
    if (!file) {
        fprintf(out, "fopen: %s\n", strerror(errno));
        return;
    }
    for (int i = 0; i < 1000; i++)
        fprintf(file, "line %d\n", i);
    fprintf(out, "%ld ", ftell(file));
    fseek(file, 3500, SEEK_SET);
    if (fgets(line, sizeof line, file) && fgets(line, sizeof line, file))
        fprintf(out, "%ld %s", ftell(file), line);
    rewind(file);
    char *read = NULL;
    size_t room = 0;
    ssize_t length = getline(&read, &room, file);
    fprintf(out, "%zd %d %s", length, room > 7, read);
    free(read);
    rewind(file);
    int n = 0, c, last = -1;
    while ((c = getc(file)) != EOF)
        n += c == '\n';
    fprintf(out, "%d %d %d ", n, !!feof(file), ferror(file));
    fseek(file, -9, SEEK_END);
    ungetc('L', file);
    n = fscanf(file, "%19s %d", line, &last);
    fprintf(out, "%d %s %d\n", n, line, last);
    fwrite("abcdef", 2, 3, file);
    fclose(file);
    file = fopen("library.tmp", "a");
    putc('!', file);
    fclose(file);
    file = fopen("library.tmp", "r");
    fseek(file, -8, SEEK_END);
    fprintf(out, "%zu", fread(line, 1, 50, file));
    fprintf(out, " %.8s\n", line);
    fclose(file);
    remove("library.tmp");
    file = fopen("/nowhere/file", "r");
    fprintf(out, "%d %d\n", file == NULL, errno == ENOENT);
}

static void use_the_library(FILE *out) {
    formats(out);
    strings(out);
    numbers(out);
    limits_of_numbers(out);
    extremes(out);
    mathematics(out);
    calendar(out);
    more(out);
    files(out);
}
