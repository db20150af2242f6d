/* Instructions by call path. */
#include <atom.report.h>
#include <atom.paths.h>

static long insts_of(Block *b) {
    long insts = 0;
    for (Inst *i = GetFirstInst(b); i; i = GetNextInst(i))
        insts++;
    return insts;
}

void Instrument(int argc, char **argv) {
    PathOptions options = {0, 1, 1 << 20};
    char *repeats = TakeOption(&argc, argv, "--recursion");
    if (repeats)
        options.repeats = repeats[0] - '0';
    int with_amounts = TakeFlag(&argc, argv, "--amounts");
    char *output = TakeOption(&argc, argv, "--output");
    RefuseOptions(argc, argv);
    Data *paths = AddCallPaths(&options);
    AddCallProto("Executed(PATH, long)");
    AddCallProto("End(PATHS, SITES, char *)");
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p)) {
        if (with_amounts && GetFirstBlock(p))
            AddCallAmounts(p, paths, "Executed", insts_of);
        for (Block *b = GetFirstBlock(p); b && !with_amounts; b = GetNextBlock(b))
            AddCallBlock(b, BlockBefore, "Executed", paths, insts_of(b));
    }
    AddCallProgram(ProgramAfter, "End", paths, PathProcs(paths), output ? output : "paths.out");
}
