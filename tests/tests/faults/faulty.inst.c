/* A tool in C that fails at the n-th call before a procedure. Arguments: the routine, the procedure, n. */
#include <stdlib.h>
#include <string.h>
#include <instrument.h>

Instrument(int argc, char **argv)
{
    Proc *p;
    AddCallProto("divide(int)");
    AddCallProto("wild(int)");
    AddCallProto("aborts(int)");
    for (p = GetFirstProc(); p != NULL; p = GetNextProc(p))
        if (strcmp(ProcName(p), argv[2]) == 0)
            AddCallProc(p, ProcBefore, argv[1], atoi(argv[3]));
}
