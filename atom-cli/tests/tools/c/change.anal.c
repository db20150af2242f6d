#include <atom.h>

void Change(long outcome, long before, int more) {
    OutcomeReturns(outcome, before + more);
}
