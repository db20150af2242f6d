/* What the tools beside it do not use of reports and call paths. */
#include <stdio.h>
#include <atom.report.h>
#include <atom.paths.h>

void Instrument(int argc, char **argv) {
    int loud = TakeFlag(&argc, argv, "--loud"), flags = TakeFlag(&argc, argv, "--other");
    char *word = TakeOption(&argc, argv, "--word"), *none = TakeOption(&argc, argv, "--none");
    Data *files = MakeReportFiles(&argc, argv, "reports.out");
    printf("%d %d %s %s %d %s %d\n", loud, flags, word, none ? none : "none", argc, argv[1], argv[2] == NULL);

    PathOptions options = {1, 0, 1000};
    Data *paths = AddCallPaths(&options), *sites = MakeSites(), *strings = MakeStrings();
    Proc *work = GetNamedProc("work"), *main = GetNamedProc("main");
    int number = PathProcNumber(paths, work);
    int key = PushString(strings, "größe"), same = PushString(strings, "größe");
    long first = PushProcSite(sites, work), second = PushBlockSite(sites, GetFirstBlock(main));
    long third = PushSite(sites, GetFirstInst(GetFirstBlock(work)));
    printf("%ld %ld %ld %d\n", first, second, third, key == same);
    AddCallProto("Entered(PATH, int, REGV, REGV)");
    AddCallProto("End(FILES, PATHS, SITES, SITES, SITES, STRINGS, int)");
    AddCallProc(work, ProcBefore, "Entered", paths, number, REG_RSP, REG_RBP);
    AddCallProgram(ProgramAfter, "End", files, paths, PathProcs(paths), PathCalls(paths), sites, strings, key);
}
