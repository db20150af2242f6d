//! Compares counts derived from control flow with counts made at each point.
//!
//! Every block and every conditional branch is counted twice in one run: in
//! cells that are private, so that `atom` may derive their counts, and in cells
//! that a call at the start gets as an argument, so that it may not. In the end both are
//! compared. The output has one line for each difference, and a last line with the
//! number of cells, the number of cells that are not 0, and the number of differences.

use std::io::{self, Write};

use atom_tool::prelude::*;

#[analysis]
fn block(counter: Counter) {
    counter.increment();
}

#[analysis]
fn branch(counter: Counter<2>, taken: Value) {
    counter.add_to(usize::from(taken.is_true()), 1);
}

/// Gets the cells as arguments, so that they are not private.
#[analysis]
fn look(blocks: Counters, branches: Counters<2>) {
    std::hint::black_box((blocks.len(), branches.len()));
}

#[analysis]
fn compare(
    output: Str,
    derived: Counters,
    seen: Counters,
    pcs: Array<u64>,
    derived_branches: Counters<2>,
    seen_branches: Counters<2>,
    branch_pcs: Array<u64>,
) {
    let result = output::create(&output).and_then(|mut file| {
        let blocks = derived.rows().zip(seen.rows()).zip(pcs.iter());
        let one = write(&mut file, "block", blocks)?;
        let branches = derived_branches
            .rows()
            .zip(seen_branches.rows())
            .zip(branch_pcs.iter());
        let two = write(&mut file, "branch", branches)?;
        writeln!(
            file,
            "cells\t{}\t{}\t{}",
            one[0] + two[0],
            one[1] + two[1],
            one[2] + two[2]
        )?;
        file.flush()
    });
    if let Err(e) = result {
        eprintln!("flowjudge: cannot write {e}");
    }
}

/// Cells, cells that counted, differences.
fn write<'a, const N: usize>(
    file: &mut impl Write,
    what: &str,
    rows: impl Iterator<Item = (([u64; N], [u64; N]), &'a u64)>,
) -> io::Result<[u64; 3]> {
    let mut sums = [0; 3];
    for ((derived, seen), pc) in rows {
        sums[0] += N as u64;
        sums[1] += seen.iter().filter(|n| **n != 0).count() as u64;
        if derived != seen {
            sums[2] += 1;
            writeln!(file, "{what}\t{pc:#x}\t{derived:?}\t{seen:?}")?;
        }
    }
    Ok(sums)
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("flowjudge.out");
    options.finish()?;

    let blocks: Vec<Block> = program.procs().flat_map(|proc| proc.blocks()).collect();
    let branches: Vec<Inst> = blocks
        .iter()
        .map(|block| block.last_inst())
        .filter(|inst| inst.is_type(InstType::CondBr))
        .collect();
    let tables = [
        program.counters(blocks.len()),
        program.counters(blocks.len()),
    ];
    let branch_tables = [
        program.counters(branches.len()),
        program.counters(branches.len()),
    ];
    for (table, branch_table) in tables.iter().zip(&branch_tables) {
        for (b, counter) in blocks.iter().zip(table.rows()) {
            b.add_call(Before, block, (counter,));
        }
        for (inst, counter) in branches.iter().zip(branch_table.rows()) {
            inst.add_call(Before, branch, (counter, BrCondValue));
        }
    }
    let pcs: Vec<u64> = blocks.iter().map(|block| block.pc()).collect();
    let branch_pcs: Vec<u64> = branches.iter().map(|inst| inst.pc()).collect();
    program.add_call(Before, look, (tables[1], branch_tables[1]));
    let facts = (
        output,
        tables[0],
        tables[1],
        &pcs,
        branch_tables[0],
        branch_tables[1],
        &branch_pcs,
    );
    program.add_call(After, compare, facts);
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
