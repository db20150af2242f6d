/* The shipped tool `branch`, in C. */
#include <stdio.h>
#include <atom.report.h>

void Instrument(int argc, char **argv) {
    Data *files = MakeReportFiles(&argc, argv, "btaken.out");
    RefuseOptions(argc, argv);

    Data *sites = MakeSites();
    long branches = 0;
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p))
        for (Block *b = GetFirstBlock(p); b; b = GetNextBlock(b))
            if (IsInstType(GetLastInst(b), InstTypeCondBr))
                branches = PushSite(sites, GetLastInst(b)) + 1;

    /* Two counters for each branch: not taken, taken. */
    Data *counters = MakeCounters(2 * branches);
    AddCallProto("Branch(COUNTER, VALUE)");
    AddCallProto("End(FILES, char *, COUNTERS, SITES)");
    long n = 0;
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p))
        for (Block *b = GetFirstBlock(p); b; b = GetNextBlock(b))
            if (IsInstType(GetLastInst(b), InstTypeCondBr))
                AddCallInst(GetLastInst(b), InstBefore, "Branch", CounterAt(counters, 2 * n++), BrCondValue);
    AddCallProgram(ProgramAfter, "End", files, GetProgramName(), counters, sites);
}
