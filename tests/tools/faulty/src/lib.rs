//! A routine that fails, for tests of what the process says then.
//!
//! `--how WAY` names the routine, `--proc NAME` the procedure before which it is called, and `--at N` the number of the call that
//! fails, from 1. `--output FILE` gets the number of calls at the end.

use std::hint::black_box;
use std::io::Write;

use atom_tool::prelude::*;

/// Counts the calls.
type Calls = Counter<1>;

/// True at the call that is to fail.
#[inline(always)]
fn is_due(calls: Calls, at: u64) -> bool {
    calls.add_to(0, 1);
    calls.get()[0] == at
}

/// An address at which there is nothing.
const NOWHERE: *const u64 = std::ptr::without_provenance(0x10);

/// Divides by zero.
#[analysis]
fn divide(calls: Calls, at: u64) {
    if is_due(calls, at) {
        let zero: u32 = black_box(0);
        // SAFETY: the fault is the aim.
        unsafe {
            std::arch::asm!("div {0:e}", in(reg) zero, inout("eax") 1 => _, inout("edx") 0 => _)
        };
    }
}

/// Reads where no memory is. Small enough to stand in line.
#[analysis]
fn wild(calls: Calls, at: u64) {
    if is_due(calls, at) {
        // SAFETY: the fault is the aim.
        let found = unsafe { NOWHERE.read_volatile() };
        calls.add_to(0, found);
    }
}

/// Panics.
#[analysis]
fn panics(calls: Calls, at: u64) {
    if is_due(calls, at) {
        let none: Option<u64> = black_box(None);
        none.expect("there is one");
    }
}

/// Aborts, in a function that it calls.
#[analysis]
fn aborts(calls: Calls, at: u64) {
    #[inline(never)]
    fn deeper(due: bool) {
        if black_box(due) {
            std::process::abort();
        }
    }
    deeper(is_due(calls, at));
    black_box(());
}

/// Jumps to where no code is.
#[analysis]
fn jumps(calls: Calls, at: u64) {
    if is_due(calls, at) {
        let nowhere: extern "C" fn(u64) -> u64 = black_box({
            // SAFETY: the fault is the aim.
            unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(0x10) }
        });
        black_box(nowhere(1) + 1);
    }
}

/// Executes an instruction that there is not.
#[analysis]
fn traps(calls: Calls, at: u64) {
    if is_due(calls, at) {
        // SAFETY: the fault is the aim.
        unsafe { std::arch::asm!("ud2") };
    }
}

/// Reads where no memory is while it may hold a lock.
#[analysis(uninterrupted)]
fn locked(calls: Calls, at: u64) {
    if is_due(calls, at) {
        // SAFETY: the fault is the aim.
        let _ = unsafe { NOWHERE.read_volatile() };
    }
}

/// Counts.
#[analysis]
fn counts(calls: Calls, at: u64) {
    let _ = is_due(calls, at);
}

/// Fails at the end of the program.
#[analysis]
fn late() {
    // SAFETY: the fault is the aim.
    let _ = unsafe { NOWHERE.read_volatile() };
}

#[analysis]
fn report(output: Str, calls: Calls) {
    let write = || -> std::io::Result<()> {
        let mut file = output::create(&output)?;
        writeln!(file, "{}", calls.get()[0])?;
        file.flush()
    };
    if let Err(e) = write() {
        eprintln!("faulty: {e}");
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let how = options.value("--how")?.unwrap_or("wild");
    let name = options.value("--proc")?.unwrap_or("main");
    let at = options.given_size("--at")?.unwrap_or(1);
    let output = options.value("--output")?.unwrap_or("faulty.out");
    options.finish()?;
    let routine = match how {
        "divide" => divide,
        "wild" => wild,
        "panics" => panics,
        "aborts" => aborts,
        "jumps" => jumps,
        "traps" => traps,
        "locked" => locked,
        "late" => counts,
        _ => return Err("--how names no way to fail".into()),
    };
    let calls = program.counters::<1>(1);
    for proc in program.procs().filter(|p| p.name() == name) {
        proc.add_call(Before, routine, (calls.at(0), at));
    }
    if how == "late" {
        program.add_call(After, late, ());
    }
    program.add_call(After, report, (output, calls.at(0)));
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
