/* Options, sites and reports of tools in C. docs/tools-in-c.md is the manual.
 *
 * The instrument routine reads the options and collects sites. An analysis routine at ProgramAfter fills a report
 * and writes it: for people, as JSON, and as a profile for `atom report` and `atom annotate`.
 */
#ifndef ATOM_REPORT_H
#define ATOM_REPORT_H

#include <atom.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Instrument routines ---- */

/* Options, `--name VALUE` or `--name=VALUE`. What is found is taken out of argv, and *argc is the number of what is left. */
char *TakeOption(int *argc, char **argv, const char *name); /* NULL if it was not given */
int TakeFlag(int *argc, char **argv, const char *name);     /* 1 if the word `name` was given */
void RefuseOptions(int argc, char **argv);                  /* an error if words are left */

/* The files of a report, for the type FILES: takes --output, --json, --profile, --no-profile, --top, --width and
 * --full-names. The report for people is the file `name`, unless --output or --json says otherwise. */
Data *MakeReportFiles(int *argc, char **argv, const char *name);

/* Places of the program, for the type SITES. Each function returns the number of the new site. */
Data *MakeSites(void);
long PushSite(Data *sites, Inst *i);
long PushBlockSite(Data *sites, Block *b);
long PushProcSite(Data *sites, Proc *p);

/* Texts, for the type STRINGS. Returns the key of the text; equal texts have one key. */
Data *MakeStrings(void);
int PushString(Data *strings, const char *text);

/* ---- Analysis routines ---- */

/* What a routine gets for SITES, STRINGS and FILES. */
typedef struct atom_sites Sites;
typedef struct atom_strings Strings;
typedef struct atom_files Files;

/* A site: its address, its procedure's name and address, source file (empty) and line (0 if they are not known), and
 * the length in bytes if it is an instruction, else 0. */
typedef struct {
    long pc;
    const char *proc;
    long proc_pc;
    const char *file;
    int line, length;
} Site;
int GetSite(const Sites *sites, long n, Site *site); /* 0 behind the last */
const char *GetString(const Strings *strings, int key);

/* Whether a profile or JSON is wanted, and how many rows of each table people see, 0 for all. */
int FilesHaveProfile(const Files *files);
int FilesHaveJSON(const Files *files);
long FilesRows(const Files *files);

/* A column of a table, or a fact. Texts are copied when the column is used. */
typedef struct {
    const char *name, *unit, *part, *whole;
    int type, scope, role, sum;
} Column;
Column CountColumn(const char *name, const char *unit); /* `unit`: what is counted, in the plural */
Column BytesColumn(const char *name);
Column SecondsColumn(const char *name);
Column RatioColumn(const char *name);
Column AddressColumn(const char *name);
Column PlaceColumn(const char *name); /* source lines */
Column TextColumn(const char *name);
/* Columns that are computed from others, also when runs are added up. They have no cells of their own. */
Column ShareColumn(const char *name, const char *part);                          /* per cent of the sum of all rows */
Column PercentColumn(const char *name, const char *part, const char *whole);     /* per cent of another column */
Column FactPercentColumn(const char *name, const char *part, const char *fact);  /* per cent of a fact */
Column QuotientColumn(const char *name, const char *part, const char *whole);    /* divided by another column */
/* The same column with a unit; as one that identifies rows, or describes them; added up in another way. */
typedef enum { SumAdd, SumMax, SumMin, SumNone } SumType;
Column UnitColumn(Column column, const char *unit);
Column KeyColumn(Column column);
Column LabelColumn(Column column);
Column SumColumn(Column column, SumType sum);
/* The same column, whose value is the number of rows of a table of which a column is not 0: it is counted again in the sum of
 * several runs. */
Column RowsColumn(Column column, const char *table, const char *counted);

/* A report of a tool on a program. WriteReport writes it to the files and frees it. WriteReportText does so with this
 * text in the file for people. */
typedef struct atom_report Report;
Report *MakeReport(const char *tool, const char *program);
void WriteReport(Report *report, const Files *files);
void WriteReportText(Report *report, const Files *files, const char *text);

/* Facts about the whole run. A computed fact (PercentColumn, QuotientColumn) names facts that were added before. */
void AddFact(Report *report, Column column, unsigned long value);
void AddRatioFact(Report *report, Column column, double value);
void AddTextFact(Report *report, Column column, const char *value);
void AddComputedFact(Report *report, Column column);

/* A table: first its columns, then rows, each with a cell for every column that is not computed. */
typedef struct atom_table Table;
typedef enum {
    ByObject, ByProcedure, ByFile, ByLine, ByBlock, ByInstruction, ByBranch, ByArc, ByData, ByThread, ByOther
} TableType;
Table *AddTable(Report *report, TableType by, const char *title);
void AddColumn(Table *table, Column column);
void AddRow(Table *table);
void AddNumber(Table *table, unsigned long number); /* for counts and bytes */
void AddRatio(Table *table, double ratio);          /* for ratios and seconds */
void AddAddress(Table *table, long pc);
void AddPlace(Table *table, const Site *site);      /* the source line of a site; no value if it is not known */
void AddText(Table *table, const char *text);
void AddNoValue(Table *table);

/* Sorts by a column, largest first; equal rows keep their order. A sort by a second column comes before. */
void SortTable(Table *table, const char *column);
/* Who reads the table: all, people (it is not in the JSON), or programs (only in JSON and profile). */
typedef enum { ReadersAll, ReadersPeople, ReadersPrograms } ReadersType;
void SetReaders(Table *table, ReadersType readers);
/* The number of further rows that people do not see (FilesRows), and that were not added for that reason. */
void LeaveOutRows(Table *table, long rows);

/* Tables by procedure, source line and instruction. For site n, counts[2 * n] are all events and counts[2 * n + 1]
 * those of the kind that is looked at: the names are of the two columns and of their ratio. */
void AddPlaceTables(Report *report, const char *prefix, const char *all, const char *some, const char *ratio,
                    const Sites *sites, const unsigned long *counts);

#ifdef __cplusplus
}
#endif
#endif
