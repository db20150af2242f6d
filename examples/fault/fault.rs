//! Has the n-th call of `malloc` fail.
use std::sync::atomic::{AtomicU64, Ordering};

use atom_tool::prelude::*;

static CALLS: AtomicU64 = AtomicU64::new(0);

#[analysis]
fn malloc(outcome: Outcome, size: u64, nth: u64) {
    if CALLS.fetch_add(1, Ordering::Relaxed) + 1 == nth {
        eprintln!("fault: malloc({size}) fails");
        outcome.returns(0);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let nth: u64 = options.value("--nth")?.unwrap_or("1").parse()?;
    options.finish()?;
    let procs = program.procs_named("malloc").into_iter();
    for proc in procs.filter(Proc::can_be_replaced) {
        proc.replace(malloc, (OutcomeValue, Reg::Rdi, nth));
    }
    Ok(())
}

atom_tool::tool!(instrument);
