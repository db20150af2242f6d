//! Number of executed instructions: in all, by procedure, block or instruction.
//!
//! A basic block is executed from its first instruction to its last, so one
//! counter for each block is enough. (An instruction that faults or a system
//! call that does not return ends a block early; the other instructions of the block count all the same.)
//! `docs/tools/icount.md` describes options and output.

mod packed;

use std::io::{self, Write};

use atom_tool::prelude::*;

use packed::{Packed, unpacked};

plain_data! {
    /// The unit that a row of the result stands for.
    #[derive(PartialEq, Eq)]
    enum Per {
        Procedure,
        Program,
        Block,
        Instruction,
    }

    /// What the user has chosen.
    struct Choices {
        per: Per,
        /// The result is tab-separated values instead of tables.
        is_tsv: bool,
        _unused: [u8; 3],
    }
}

#[analysis]
fn block(counter: Counter) {
    counter.increment();
}

/// A row of the result.
struct Row {
    site: Site,
    pc: u64,
    /// Number of executed instructions.
    count: u64,
}

/// `blocks` has the facts about blocks that [`Packed`] describes. `lengths` has the length of each
/// instruction in bytes, block after block, if the result is per instruction.
#[analysis]
fn report(
    files: Files,
    choices: Record<Choices>,
    program: Str,
    counters: Counters,
    blocks: Array<u8>,
    sites: Sites,
    lengths: Array<u8>,
) {
    let counts: Vec<u64> = counters.rows().map(|[count]| count).collect();
    // For each block the number of its executions, the number of its site, the number of its instructions.
    let blocks = || {
        let facts = unpacked(&blocks);
        counts
            .iter()
            .zip(facts)
            .map(|(count, (site, insts))| (*count, site, insts))
    };
    let total = blocks().map(|(count, _, insts)| count * insts as u64).sum();
    let mut rows: Vec<Row> = Vec::new();
    let per = choices.per;
    if per == Per::Instruction {
        let mut lengths = lengths.iter();
        for (count, site, insts) in blocks() {
            let Some(site) = sites.get(site) else {
                continue;
            };
            let mut pc = site.pc;
            for length in lengths.by_ref().take(insts) {
                rows.push(Row { site, pc, count });
                pc += u64::from(*length);
            }
        }
    } else {
        let mut sums = vec![0; sites.len()];
        for (count, site, insts) in blocks() {
            sums[site] += count * insts as u64;
        }
        let rows_of = |(site, count): (Site, u64)| Row {
            site,
            pc: site.pc,
            count,
        };
        rows.extend(sites.iter().zip(sums).map(rows_of));
    }
    let start = rows.first().map_or(0, |row| row.pc);
    rows.retain(|row| row.count != 0);
    if choices.is_tsv {
        let written = files.write_with(|to| {
            if per == Per::Program {
                return writeln!(to, "{}\t{total}\t{}", Address(start), &*program);
            }
            write_rows(to, &rows)
        });
        if let Err(e) = written {
            output::cannot_write("icount", e);
        }
        return;
    }

    let mut report = Report::new("icount", &program);
    report
        .fact("instructions", total)
        .fact("blocks executed", counts.iter().sum::<u64>());
    let title = match per {
        Per::Procedure => "procedures",
        Per::Block => "blocks",
        Per::Instruction => "instructions executed",
        Per::Program => return report.write(files),
    };
    let columns = ["count", "%", "pc", "line", "procedure"];
    let table = report.table(title, columns);
    for row in &rows {
        // The site of a block has the line of the first instruction only.
        let place = if row.pc == row.site.pc {
            row.site.place()
        } else {
            Cell::Empty
        };
        table.row([
            row.count.into(),
            Cell::percent(row.count, total),
            Cell::Address(row.pc),
            place,
            row.site.proc.into(),
        ]);
    }
    table.sort(0);
    report.write(files);
}

fn write_rows(to: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        writeln!(to, "{}\t{}\t{}", Address(row.pc), row.count, row.site.proc)?;
    }
    Ok(())
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "icount.out")?;
    let is_tsv = options.choice("--format", &[("table", false), ("tsv", true)])?;
    let per = options.choice(
        "--per",
        &[
            ("procedure", Per::Procedure),
            ("program", Per::Program),
            ("block", Per::Block),
            ("instruction", Per::Instruction),
        ],
    )?;
    options.finish()?;

    let counters = program.counters(program.block_count());
    let mut sites = SiteList::new();
    let mut blocks = Packed::default();
    let mut lengths: Vec<u8> = Vec::new();
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        let mut site = match per {
            Per::Program | Per::Procedure => sites.push_proc(proc),
            Per::Block | Per::Instruction => 0,
        };
        for block in proc.blocks() {
            block.add_call(Before, self::block, (counters.at(block.index()),));
            if matches!(per, Per::Block | Per::Instruction) {
                site = sites.push_block(block);
            }
            let insts = block.insts();
            blocks.push(site, insts.len());
            if per == Per::Instruction {
                lengths.extend(insts.map(|inst| inst.size() as u8));
            }
        }
    }
    let choices = Choices {
        per,
        is_tsv,
        _unused: [0; 3],
    };
    let (name, blocks) = (program.name(), &blocks.bytes);
    let args = (&files, &choices, name, counters, blocks, &sites, &lengths);
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
