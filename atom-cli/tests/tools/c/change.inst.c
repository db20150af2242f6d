/* Has `twice` return six more than its argument, and `sum` find one more in its own. */
#include <atom.h>

void Instrument(void) {
    Proc *twice = GetNamedProc("twice");
    Inst *first = GetFirstInst(GetFirstBlock(GetNamedProc("sum")));
    AddCallProto("Change(VALUE, REGV, int)");
    if (CanReplaceProc(twice))
        ReplaceProc(twice, "Change", OutcomeValue, REG_RDI, 6);
    if (InstOffers(first, InstBefore, OutcomeFor(REG_RDI)) && !InstOffers(first, InstBefore, OutcomeFor(REG_RSP)))
        AddCallInst(first, InstBefore, "Change", OutcomeFor(REG_RDI), REG_RDI, 1);
}
