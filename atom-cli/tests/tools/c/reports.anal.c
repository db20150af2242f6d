#include <stdio.h>
#include <string.h>
#include <atom.report.h>
#include <atom.paths.h>

void Entered(Path *path, int proc, long rsp, long rbp) {
    PathNode *node = CalledNode(path, proc, rsp, rbp);
    node->count += 10;
    node->value++;
}

static char *paths_text(Paths *paths, Sites *procs, Sites *calls, char *to) {
    CallTree *tree = MergePaths(paths);
    CallNode node;
    CallRepeat repeat;
    Site proc, call;
    unsigned long value;
    long at;
    for (long n = 0; GetPathValue(tree, n, &value, &at); n++) {
        GetCallNode(tree, at, &node);
        GetSite(procs, node.proc, &proc);
        GetSite(calls, node.call, &call);
        to += sprintf(to, "%s from line %d of %s: %lu %lu\n", proc.proc, call.line, call.proc, node.own, value);
    }
    to += sprintf(to, "%d repeats, %d\n", GetCallRepeat(tree, 0, &repeat), GetCallNode(tree, -1, &node));
    FreeCallTree(tree);
    FreeCallTree(NULL);
    return to;
}

void End(Files *files, Paths *paths, Sites *procs, Sites *calls, Sites *sites, Strings *strings, int key) {
    static char text[10000];
    unsigned long counts[3][2] = {{10, 5}, {0, 0}, {4, 1}};
    Site site[3], none;
    for (int n = 0; n < 3; n++)
        GetSite(sites, n, &site[n]);
    char *to = paths_text(paths, procs, calls, text);
    to += sprintf(to, "%s %s %d %d\n", site[0].proc, site[1].proc, site[0].pc == site[2].pc, site[2].length > 0);
    to += sprintf(to, "%d %d\n", GetSite(sites, 3, &none), GetSite(sites, -1, &none));
    to += sprintf(to, "%s %s\n", GetString(strings, key), strrchr(site[1].file, '/') + 1);
    to += sprintf(to, "%d %d %ld\n", FilesHaveProfile(files), FilesHaveJSON(files), FilesRows(files));

    Report *report = MakeReport("reports", "app");
    AddFact(report, BytesColumn("size"), 4096);
    AddFact(report, AddressColumn("start"), site[0].pc);
    AddRatioFact(report, SecondsColumn("time"), 2.5);
    AddRatioFact(report, RatioColumn("nothing"), 0.0 / counts[1][0]);
    AddTextFact(report, TextColumn("word"), GetString(strings, key));
    AddComputedFact(report, QuotientColumn("size per second", "size", "time"));
    AddPlaceTables(report, "all ", "calls", "slow", "slow %", sites, &counts[0][0]);
    Table *table = AddTable(report, ByOther, "things");
    AddColumn(table, KeyColumn(UnitColumn(CountColumn("n", "things"), "items")));
    AddColumn(table, LabelColumn(RatioColumn("height")));
    AddColumn(table, BytesColumn("bytes"));
    AddColumn(table, ShareColumn("%", "bytes"));
    AddColumn(table, FactPercentColumn("of size", "bytes", "size"));
    AddColumn(table, QuotientColumn("per", "bytes", "n"));
    AddColumn(table, SumColumn(SecondsColumn("longest"), SumMax));
    for (int n = 0; n < 3; n++) {
        AddRow(table);
        AddNumber(table, n);
        AddRatio(table, n / 4.0);
        AddNumber(table, 1024 << n);
        if (n == 1)
            AddNoValue(table);
        else
            AddRatio(table, n * 1.5);
    }
    SortTable(table, "bytes");
    LeaveOutRows(table, 7);
    SetReaders(AddTable(report, ByThread, "for people"), ReadersPeople);
    SetReaders(AddTable(report, ByArc, "for programs"), ReadersPrograms);
    /* The text, or the report for people. */
    if (FilesRows(files) == 0)
        WriteReportText(report, files, text);
    else
        WriteReport(report, files);
}
