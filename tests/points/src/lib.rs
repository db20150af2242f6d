//! How often each point is passed: for the tests of what the points mean.
//!
//! `--output FILE` gets, for each named procedure, `NAME BEFORE AFTER BLOCKS
//! CALLS`: how often the calls before and after it were made, those after its
//! blocks, and those after its call instructions. Routines are called in the
//! order of their addition; `order` counts the times that they were not.

use std::io::Write;

use atom_tool::prelude::*;

/// Cells of a procedure.
const BEFORE: u64 = 0;
const AFTER: u64 = 1;
const BLOCKS: u64 = 2;
const CALLS: u64 = 3;
const ORDER: u64 = 4;
const LAST: usize = 5;

#[analysis]
fn add(counter: Counter<6>, cell: u64) {
    counter.add_to(cell as usize, 1);
}

/// Called as number 0, 1, 2 at one point.
#[analysis]
fn in_order(counter: Counter<6>, number: u64) {
    if counter.get()[LAST] != number {
        counter.add_to(ORDER as usize, 1);
    }
    let next = (number + 1) % 3;
    counter.add_to(LAST, next.wrapping_sub(counter.get()[LAST]));
}

#[analysis]
fn report(output: Str, names: Strings, counters: Counters<6>) {
    let write = || -> std::io::Result<()> {
        let mut file = output::create(&output)?;
        for (name, row) in names.iter().zip(counters.rows()) {
            writeln!(
                file,
                "{name} {} {} {} {} {}",
                row[0], row[1], row[2], row[3], row[4]
            )?;
        }
        file.flush()
    };
    if let Err(e) = write() {
        eprintln!("points: {e}");
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("points.out");
    options.finish()?;
    let table = program.counters::<6>(program.procs().len());
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
        for block in proc.blocks() {
            block.add_call(After, add, (row, BLOCKS));
            let last = block.last_inst();
            if last.is_type(InstType::Call) {
                last.add_call(After, add, (row, CALLS));
            }
        }
    }
    program.add_call(After, report, (output, &names, table));
    Ok(())
}

atom_tool::tool!(instrument);
