/* Runs the SQL of a file in memory and prints each row. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
static int row(void *none, int n, char **values, char **names)
{
    (void)none, (void)names;
    for (int i = 0; i < n; i++) printf("%s%s", i ? "|" : "", values[i] ? values[i] : "");
    putchar('\n');
    return 0;
}
int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
    static char sql[65536];
    sqlite3 *db;
    char *message = NULL;
    if (!f || fread(sql, 1, sizeof sql - 1, f) == 0 || sqlite3_open(":memory:", &db) != SQLITE_OK) return 2;
    if (sqlite3_exec(db, sql, row, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    return sqlite3_close(db) != SQLITE_OK;
}
