//! Number of times that each point is passed, for tests of the meaning of points.
//!
//! `--output FILE` gets, for each named procedure, `NAME BEFORE AFTER BLOCKS
//! CALLS`: the numbers of calls before it, after it, after its
//! blocks, and after its call instructions. Routines are called in the
//! order of their addition; `order` is the number of times that they were not. `ways`
//! is 0 if the calls on the edges out of conditional branches agree with
//! the branches' conditions, and `entries` is 0 if the calls on the edges into procedures agree with the entries.
//! With `--tell` the start and the end of the program are reported on standard error.

use std::io::Write;

use atom_tool::Way;
use atom_tool::prelude::*;

/// Cells of a procedure.
const BEFORE: u64 = 0;
const AFTER: u64 = 1;
const BLOCKS: u64 = 2;
const CALLS: u64 = 3;
const ORDER: u64 = 4;
const LAST: usize = 5;
const TAKEN: u64 = 6;
const FALLING: u64 = 7;
const ENTRIES: u64 = 8;

type Row = Counter<9>;

#[analysis]
fn add(counter: Row, cell: u64) {
    counter.add_to(cell as usize, 1);
}

#[analysis]
fn subtract(counter: Row, cell: u64) {
    counter.add_to(cell as usize, u64::MAX);
}

#[analysis]
fn branch(counter: Row, taken: Value) {
    let cell = if taken.is_true() { TAKEN } else { FALLING };
    counter.add_to(cell as usize, u64::MAX);
}

/// Called as number 0, 1, 2 at one point.
#[analysis]
fn in_order(counter: Row, number: u64) {
    if counter.get()[LAST] != number {
        counter.add_to(ORDER as usize, 1);
    }
    let next = (number + 1) % 3;
    counter.add_to(LAST, next.wrapping_sub(counter.get()[LAST]));
}

#[analysis]
fn report(output: Str, names: Strings, counters: Counters<9>) {
    let write = || -> std::io::Result<()> {
        let mut file = output::create(&output)?;
        for (name, row) in names.iter().zip(counters.rows()) {
            writeln!(
                file,
                "{name} {} {} {} {} {} {} {}",
                row[0],
                row[1],
                row[2],
                row[3],
                row[4],
                row[6] | row[7],
                row[8]
            )?;
        }
        file.flush()
    };
    if let Err(e) = write() {
        eprintln!("points: {e}");
    }
}

#[analysis]
fn tell(what: Str) {
    eprintln!("points: {}", what.as_str());
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("points.out");
    if options.flag("--tell") {
        program.add_call(Before, tell, ("start",));
        program.add_call(After, tell, ("end",));
    }
    options.finish()?;
    let table = program.counters::<9>(program.procs().len());
    let mut names = StringList::new();
    for (i, proc) in program.procs().enumerate() {
        names.push(proc.name());
        if proc.blocks().len() == 0 {
            continue;
        }
        let row = table.at(i);
        for number in 0..3 {
            proc.add_call(Before, in_order, (row, number));
        }
        proc.add_call(Before, add, (row, BEFORE));
        proc.add_call(After, add, (row, AFTER));
        proc.add_call(Before, subtract, (row, ENTRIES));
        for block in proc.blocks() {
            block.add_call(After, add, (row, BLOCKS));
            let last = block.last_inst();
            if block.has_way(Way::Entry) {
                block.add_call_on(Way::Entry, add, (row, ENTRIES));
            }
            if last.is_type(InstType::CondBr) {
                last.add_call(Before, branch, (row, BrCondValue));
                block.add_call_on(Way::Taken, add, (row, TAKEN));
                block.add_call_on(Way::Falling, add, (row, FALLING));
            }
            if last.is_type(InstType::Call) {
                last.add_call(After, add, (row, CALLS));
            }
        }
    }
    program.add_call(After, report, (output, &names, table));
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
