#include <atom.report.h>

void Branch(unsigned long *counter, long taken) {
    ++counter[taken != 0];
}

void End(Files *files, char *program, Counters *counters, Sites *sites) {
    const unsigned long (*counts)[2] = (const unsigned long (*)[2])counters->value;
    unsigned long sums[2] = {0, 0}, usual = 0, reached = 0;
    Site site;
    long n;
    for (n = 0; GetSite(sites, n, &site); n++) {
        unsigned long not_taken = counts[n][0], taken = counts[n][1];
        sums[0] += not_taken;
        sums[1] += taken;
        usual += taken > not_taken ? taken : not_taken;
        reached += taken + not_taken != 0;
    }

    Report *report = MakeReport("branch", program);
    AddFact(report, CountColumn("executed", "branches"), sums[0] + sums[1]);
    AddFact(report, CountColumn("taken", "branches"), sums[1]);
    AddComputedFact(report, PercentColumn("taken %", "taken", "executed"));
    AddRatioFact(report, RatioColumn("usual direction %"), usual * 100.0 / (sums[0] + sums[1]));
    AddFact(report, SumColumn(CountColumn("branches", "branches"), SumMax), n);
    Column reached_column = CountColumn("branches reached", "branches");
    AddFact(report, RowsColumn(reached_column, "conditional branches", "executed"), reached);

    Table *table = AddTable(report, ByBranch, "conditional branches");
    AddColumn(table, CountColumn("executed", "branches"));
    AddColumn(table, CountColumn("taken", "branches"));
    AddColumn(table, CountColumn("not taken", "branches"));
    AddColumn(table, PercentColumn("taken %", "taken", "executed"));
    AddColumn(table, AddressColumn("pc"));
    AddColumn(table, PlaceColumn("line"));
    AddColumn(table, TextColumn("procedure"));
    for (n = 0; GetSite(sites, n, &site); n++) {
        unsigned long not_taken = counts[n][0], taken = counts[n][1];
        if (taken + not_taken == 0)
            continue;
        AddRow(table);
        AddNumber(table, taken + not_taken);
        AddNumber(table, taken);
        AddNumber(table, not_taken);
        AddAddress(table, site.pc);
        AddPlace(table, &site);
        AddText(table, site.proc);
    }
    SortTable(table, "executed");
    WriteReport(report, files);
}
