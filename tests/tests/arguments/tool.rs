//! Writes the arguments of `nine`, and whether procedures return to the instruction after the last call.
use atom_tool::prelude::*;

thread_state! {
    /// What the last call pushed.
    struct Last {
        pushed: ThreadCell<u64>,
    }
}

#[analysis]
fn called(last: PerThread<Last>, pushed: Value) {
    last.pushed.set(pushed.0);
}

#[analysis]
fn nine(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: Value) {
    let [b, h, i] = [b as u32 as u64, h as u16 as u64, i.0];
    eprintln!("{a:x} {b:x} {c:x} {d:x} {e:x} {f:x} {g:x} {h:x} {i:x}");
}

#[analysis]
fn returns(last: PerThread<Last>, name: Str, to: u64) {
    let is_last = last.pushed.get() == to;
    eprintln!("{name} {}", if is_last { "returns" } else { "returns elsewhere" });
}

fn instrument(program: &Program, _: &Args) -> Result {
    let last = program.thread_data(Last::zero());
    for inst in program.procs().flat_map(|proc| proc.blocks()).map(|block| block.last_inst()) {
        if inst.is_type(InstType::Call) && inst.offers(Before, StoredValue) {
            inst.add_call(Before, called, (last, StoredValue));
        }
        assert!(!inst.offers(Before, ArgumentOf(0)) && !inst.offers(After, ReturnAddress));
        let is_call = inst.mnemonic() == "syscall";
        assert_eq!(inst.offers(Before, SystemCallNumber), is_call, "{}", inst.text());
        assert_eq!(inst.offers(Before, SystemCallArgument(5)), is_call);
        assert_eq!(inst.offers(After, SystemCallResult), is_call);
        assert!(!inst.offers(After, SystemCallArgument(0)) && !inst.offers(Before, SystemCallArgument(6)));
        assert!(!inst.offers(Before, SystemCallResult) && !inst.offers(After, SystemCallNumber));
    }
    for proc in program.procs_named("nine") {
        let [a, b, c, d, e, f, g, h, i] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(ArgumentOf);
        proc.add_call(Before, nine, (a, b, c, d, e, f, g, h, i));
    }
    for name in ["none", "nine", "compare"] {
        for proc in program.procs_named(name).into_iter().filter(|proc| proc.object().is_program()) {
            proc.add_call(Before, returns, (last, name, ReturnAddress));
        }
    }
    Ok(())
}

atom_tool::tool!(instrument);
