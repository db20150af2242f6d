//! Adds 0x100 to a register, at every second call of each procedure whose name ends in its name.
use atom_tool::Place;
use atom_tool::prelude::*;

#[analysis]
fn add(outcome: Outcome, calls: Counter<1>, value: u64) {
    calls.add_to(0, 1);
    if calls.get()[0] % 2 == 0 {
        outcome.returns(value + 0x100);
    }
}

const REGISTERS: [(&str, Reg); 15] = [
    ("rax", Reg::Rax),
    ("rcx", Reg::Rcx),
    ("rdx", Reg::Rdx),
    ("rbx", Reg::Rbx),
    ("rbp", Reg::Rbp),
    ("rsi", Reg::Rsi),
    ("rdi", Reg::Rdi),
    ("r8", Reg::R8),
    ("r9", Reg::R9),
    ("r10", Reg::R10),
    ("r11", Reg::R11),
    ("r12", Reg::R12),
    ("r13", Reg::R13),
    ("r14", Reg::R14),
    ("r15", Reg::R15),
];

/// The place in a procedure at which its register is set.
fn place<'a>(proc: Proc<'a>, kind: &str) -> Option<(Inst<'a>, Place)> {
    let mut insts = proc.blocks().flat_map(|block| block.insts());
    let is_marked = |inst: &Inst<'a>| inst.bytes().windows(3).any(|bytes| bytes == [0x11, 0x5a, 0x5a]);
    match kind {
        "set" => Some((insts.find(is_marked)?, After)),
        "before" => Some((insts.find(is_marked)?, Before)),
        "call" => Some((insts.find(|inst| inst.is_type(InstType::Call))?, After)),
        "syscall" => Some((insts.find(|inst| inst.bytes() == [0x0f, 0x05])?, After)),
        "entry" => Some((insts.next()?, Before)),
        _ => None,
    }
}

fn instrument(program: &Program, _: &Args) -> Result {
    let counters = program.counters(program.procs().len());
    for (proc, calls) in program.procs().zip(counters.rows()) {
        let Some((kind, rest)) = proc.symbol().split_once('_') else {
            continue;
        };
        let name = rest.split('_').next();
        let register = REGISTERS.iter().find(|register| Some(register.0) == name);
        if let (Some(&(_, register)), Some((inst, place))) = (register, place(proc, kind)) {
            assert!(inst.offers(place, OutcomeFor(register)));
            assert!(!inst.offers(place, OutcomeFor(Reg::Rsp)));
            inst.add_call(place, add, (OutcomeFor(register), calls, register));
        }
    }
    Ok(())
}

atom_tool::tool!(instrument);
