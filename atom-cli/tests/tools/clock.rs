//! Has the instruction `rdtsc` answer 0.
use atom_tool::prelude::*;

#[analysis]
fn zero(outcome: Outcome) {
    outcome.returns(0);
}

fn instrument(program: &Program, _: &Args) -> Result {
    for proc in program.procs() {
        for inst in proc.blocks().flat_map(|block| block.insts()) {
            if inst.bytes() == [0x0f, 0x31] {
                inst.add_call(After, zero, (OutcomeFor(Reg::Rax),));
                inst.add_call(After, zero, (OutcomeFor(Reg::Rdx),));
            }
        }
    }
    Ok(())
}

atom_tool::tool!(instrument);
