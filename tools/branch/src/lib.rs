//! ATOM's example: how often each conditional branch is taken and how often not.
//!
//! Writes one line for each conditional branch of the program, in address
//! order, to `btaken.out` or the file of `--output`.

use std::io::{self, Write};

use atom_tool::prelude::*;

/// Cells of a branch's counter, by whether it was taken.
const NOT_TAKEN: usize = 0;
const TAKEN: usize = 1;

#[analysis]
fn branch(counter: Counter<2>, taken: Value) {
    counter.add_to(usize::from(taken.is_true()), 1);
}

/// `places` has four numbers for each branch: address, line, and the keys of its
/// procedure and its file among the `names`.
#[analysis]
fn report(output: Str, counters: Counters<2>, places: Array<[u64; 4]>, names: Strings) {
    if let Err(e) = write(&output, counters, &places, names) {
        eprintln!("branch: cannot write {e}");
    }
}

fn write(
    output: &str,
    counters: Counters<2>,
    places: &[[u64; 4]],
    names: Strings,
) -> io::Result<()> {
    let mut file = output::create(output)?;
    writeln!(file, "PC \t Taken \t Not Taken \t Procedure \t Location")?;
    for (counts, &[pc, line, proc, source]) in counters.rows().zip(places) {
        let (taken, not_taken) = (counts[TAKEN], counts[NOT_TAKEN]);
        let (proc, source) = (names.get(proc as u32), names.get(source as u32));
        write!(file, "{pc:#x} \t {taken} \t {not_taken} \t {proc} \t ")?;
        if line != 0 {
            write!(file, "{source}:{line}")?;
        }
        writeln!(file)?;
    }
    file.flush()
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("btaken.out");
    options.finish()?;

    let branches: Vec<Inst> = program
        .procs()
        .flat_map(|proc| proc.blocks())
        .map(|block| block.last_inst())
        .filter(|inst| inst.is_type(InstType::CondBr))
        .collect();
    let counters = program.counters(branches.len());
    let mut names = StringList::new();
    let mut places = Vec::new();
    for (inst, counter) in branches.iter().zip(counters.rows()) {
        inst.add_call(Before, branch, (counter, BrCondValue));
        let (file, line) = inst.line().unwrap_or(("", 0));
        let proc = names.intern(inst.proc().name());
        places.push([
            inst.pc(),
            line.into(),
            proc.into(),
            names.intern(file).into(),
        ]);
    }
    program.add_call(After, report, (output, counters, &places, &names));
    Ok(())
}

atom_tool::tool!(instrument);
