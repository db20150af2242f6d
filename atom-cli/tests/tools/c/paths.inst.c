/* Instructions by call path. */
#include <atom.report.h>
#include <atom.paths.h>

void Instrument(int argc, char **argv) {
    PathOptions options = {0, 1, 1 << 20};
    char *repeats = TakeOption(&argc, argv, "--recursion");
    if (repeats)
        options.repeats = repeats[0] - '0';
    char *output = TakeOption(&argc, argv, "--output");
    RefuseOptions(argc, argv);
    Data *paths = AddCallPaths(&options);
    AddCallProto("Executed(PATH, long)");
    AddCallProto("End(PATHS, SITES, char *)");
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p))
        for (Block *b = GetFirstBlock(p); b; b = GetNextBlock(b)) {
            long insts = 0;
            for (Inst *i = GetFirstInst(b); i; i = GetNextInst(i))
                insts++;
            AddCallBlock(b, BlockBefore, "Executed", paths, insts);
        }
    AddCallProgram(ProgramAfter, "End", paths, PathProcs(paths), output ? output : "paths.out");
}
