//! Number of executed instructions: in all, by procedure, block or instruction.
//!
//! A basic block is executed from its first instruction to its last, so one
//! counter for each block is enough. (An instruction that faults or a system
//! call that does not return ends a block early; the other instructions of the block count all the same.)
//! `docs/tools/icount.md` describes options and output.

mod flow;
mod packed;

use std::io::{self, Write};

use atom_tool::packed::Code;
use atom_tool::prelude::*;
use atom_tool::report::{By, Column};

use flow::Flow;
use packed::BlockFacts;

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

/// `blocks` has the facts about blocks that [`packed`] describes. `lengths` has the length of each
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
    let per = choices.per;
    let mut sums = vec![0; sites.len()];
    let mut flow = files.has_profile().then(Flow::default);
    let (mut total, mut executed) = (0, 0);
    packed::executed(&blocks, counters, |count, block| {
        let insts = count * block.code.insts;
        total += insts;
        executed += count;
        if let Some(sum) = sums.get_mut(block.site) {
            *sum += insts;
        }
        if let Some(flow) = &mut flow {
            flow.push(count, block);
        }
    });
    let mut rows: Vec<Row> = Vec::new();
    if per == Per::Instruction {
        rows = instructions(counters, &blocks, sites, &lengths);
    } else {
        let is_executed = |(_, count): &(usize, u64)| *count != 0;
        let row_of = |(site, count)| {
            let site = sites.get(site)?;
            let pc = site.pc;
            Some(Row { site, pc, count })
        };
        let executed = sums.into_iter().enumerate().filter(is_executed);
        rows.extend(executed.filter_map(row_of));
    }
    let start = sites.get(0).map_or(0, |site| site.pc);
    let mut report = Report::new("icount", &program);
    report
        .typed_fact(Column::count("instructions", "instructions"), total)
        .typed_fact(Column::count("blocks executed", "blocks"), executed);
    if let Some(flow) = flow {
        report.column_table(By::Block, "flow", flow.columns(sites));
    }
    let (by, title) = match per {
        Per::Procedure => (By::Procedure, "procedures"),
        Per::Block => (By::Block, "blocks"),
        Per::Instruction => (By::Instruction, "instructions executed"),
        Per::Program if choices.is_tsv => {
            return report.write_with(files, |to| {
                writeln!(to, "{}\t{total}\t{}", Address(start), &*program)
            });
        }
        Per::Program => return report.write(files),
    };
    let columns = [
        Column::count("count", "instructions"),
        Column::share("%", "count"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(by, title, columns);
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
    if choices.is_tsv {
        return report.write_with(files, |to| write_rows(to, &rows));
    }
    report.write(files);
}

/// A row for each executed instruction.
fn instructions(counters: Counters, blocks: &[u8], sites: Sites, lengths: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut lengths = lengths.iter();
    let mut counts = counters.rows();
    packed::unpacked(blocks, |block| {
        let lengths = lengths.by_ref().take(block.code.insts as usize);
        let [count] = counts.next().unwrap_or([0]);
        let Some(site) = sites.get(block.site).filter(|_| count != 0) else {
            return lengths.for_each(drop);
        };
        let mut pc = site.pc;
        for length in lengths {
            rows.push(Row { site, pc, count });
            pc += u64::from(*length);
        }
    });
    rows
}

fn write_rows(to: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        writeln!(to, "{}\t{}\t{}", Address(row.pc), row.count, row.site.proc)?;
    }
    Ok(())
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
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
    let mut packed = Vec::new();
    let mut lengths: Vec<u8> = Vec::new();
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        let mut site = match per {
            Per::Program | Per::Procedure => sites.push_proc(proc),
            Per::Block | Per::Instruction => 0,
        };
        let mut blocks = Vec::new();
        for block in proc.blocks() {
            block.add_call(Before, self::block, (counters.at(block.index()),));
            if matches!(per, Per::Block | Per::Instruction) {
                site = sites.push_block(block);
            }
            blocks.push(BlockFacts {
                site,
                code: Code::of(block),
            });
            if per == Per::Instruction {
                lengths.extend(block.insts().map(|inst| inst.size() as u8));
            }
        }
        packed::push(&mut packed, &blocks);
    }
    let choices = Choices {
        per,
        is_tsv,
        _unused: [0; 3],
    };
    let name = program.name();
    let args = (&files, &choices, name, counters, &packed, &sites, &lengths);
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "icount.out" }
