//! ATOM's example: counts how many times each conditional branch is taken and not taken.
//!
//! `docs/tools/branch.md` describes options and output.

mod edges;

use std::io::{self, Write};

use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Sum};
use atom_tool::{AllTargets, WAYS};

/// Cells of a branch's counter: not taken, taken.
const NOT_TAKEN: usize = 0;
const TAKEN: usize = 1;

#[analysis]
fn branch(counter: Counter<2>, taken: Value) {
    counter.add_to(usize::from(taken.is_true()), 1);
}

#[analysis]
fn report(
    files: Files,
    atom: bool,
    program: Str,
    counters: Counters<2>,
    sites: Sites,
    edges: Array<edges::Edge>,
    blocks: Counters,
    targets: AllTargets,
    ways: Counters<WAYS>,
    pointers: Array<u64>,
) {
    let sum = |cell: usize| counters.rows().map(|counts| counts[cell]).sum::<u64>();
    let (taken, not_taken) = (sum(TAKEN), sum(NOT_TAKEN));
    // Executions that a perfect static prediction, with one direction for each branch, gets right.
    let constant: u64 = counters.rows().map(|[a, b]| a.max(b)).sum();
    let reached = counters.rows().filter(|counts| *counts != [0, 0]).count();
    let total = taken + not_taken;
    let mut report = Report::new("branch", &program);
    report
        .typed_fact(Column::count("executed", "branches"), total)
        .typed_fact(Column::count("taken", "branches"), taken)
        .typed_fact(
            Column::percent_of("taken %", "taken", "executed"),
            Cell::percent(taken, total),
        )
        .typed_fact(
            Column::ratio("usual direction %"),
            Cell::percent(constant, total),
        )
        .typed_fact(
            Column::count("branches", "branches").sum(Sum::Max),
            sites.len() as u64,
        )
        .typed_fact(
            Column::count("branches reached", "branches")
                .rows_of("conditional branches", "executed"),
            reached as u64,
        );
    let columns = [
        Column::count("executed", "branches"),
        Column::count("taken", "branches"),
        Column::count("not taken", "branches"),
        Column::percent_of("taken %", "taken", "executed"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Branch, "conditional branches", columns);
    let reached = |i: usize| Some(counters.at(i).get()).filter(|counts| *counts != [0, 0]);
    for (site, counts) in sites.with(reached) {
        let executed = counts[TAKEN] + counts[NOT_TAKEN];
        table.row([
            executed.into(),
            counts[TAKEN].into(),
            counts[NOT_TAKEN].into(),
            Cell::percent(counts[TAKEN], executed),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
    if !edges.is_empty() && files.has_profile() {
        let counts = edges::Counts {
            edges: &edges,
            branches: counters,
            blocks,
            targets,
            ways,
            pointers: &pointers,
        };
        counts.add_to(&mut report);
    }
    if atom {
        return report.write_with(files, |to| write_atom(to, counters, sites));
    }
    report.write(files);
}

/// Writes every branch in address order, as ATOM's example does.
fn write_atom(to: &mut dyn Write, counters: Counters<2>, sites: Sites) -> io::Result<()> {
    writeln!(to, "PC \t Taken \t Not Taken \t Procedure \t Location")?;
    for (counts, site) in counters.rows().zip(sites.iter()) {
        let (taken, not_taken) = (counts[TAKEN], counts[NOT_TAKEN]);
        let (pc, proc) = (site.pc, site.proc);
        write!(
            to,
            "{} \t {taken} \t {not_taken} \t {proc} \t ",
            Address(pc)
        )?;
        if site.line != 0 {
            write!(to, "{}:{}", site.file, site.line)?;
        }
        writeln!(to)?;
    }
    Ok(())
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let atom = options.choice("--format", &[("table", false), ("atom", true)])?;
    let with_edges = options.flag("--edges");
    options.finish()?;

    let branches: Vec<Inst> = program
        .procs()
        .flat_map(|proc| proc.blocks())
        .map(|block| block.last_inst())
        .filter(|inst| inst.is_type(InstType::CondBr))
        .collect();
    let counters = program.counters(branches.len());
    let mut sites = SiteList::new();
    for (inst, counter) in branches.iter().zip(counters.rows()) {
        inst.add_call(Before, branch, (counter, BrCondValue));
        sites.push(*inst);
    }
    let name = program.name();
    let edges::Counted {
        edges,
        blocks,
        targets,
        pointers,
    } = edges::count(program, with_edges);
    let ways = targets.counts;
    #[rustfmt::skip]
    let args = (&files, atom, name, counters, &sites, &edges, blocks, targets, ways, &pointers);
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "btaken.out" }
