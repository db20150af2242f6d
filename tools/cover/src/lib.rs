//! Code coverage: which blocks, branches and source lines were executed, or how often.
//!
//! Without counts a block sets a mark, which is one store, and most blocks need none (`marks`). With counts there is a
//! counter for each block and for each way of a conditional branch, and `atom` derives them from fewer.
//! `docs/tools/cover.md` describes options and output.

mod columns;
mod files;
mod kind;
mod lines;
mod packed;
mod report;

use atom_cover::afl;
use atom_cover::marks::{self, Plan, Seen};
use atom_tool::packed::Code;
use atom_tool::prelude::*;

use files::{ExportFiles, Exports};
use lines::LineList;
use packed::{BlockFacts, Branch, Head, Line};
use report::{Input, Reached};

#[analysis]
fn count(counter: Counter) {
    counter.increment();
}

#[analysis]
fn count_ways(counter: Counter<2>, taken: Value) {
    counter.add_to(usize::from(taken.is_true()), 1);
}

#[analysis]
fn mark(mark: Mark) {
    mark.set();
}

#[analysis]
fn report_counts(
    files: Files,
    exports: Exports,
    program: Str,
    blocks: Array<u8>,
    lines: Array<u8>,
    fixed: Array<u8>,
    names: Strings,
    counters: Counters,
    ways: Counters<2>,
    edges: bool,
) {
    let reached = Reached::counted(counters, ways, edges);
    report::write(
        files,
        exports,
        &program,
        Input {
            blocks: &blocks,
            lines: &lines,
            fixed: fixed.as_slice(),
            names,
            reached,
        },
    );
}

#[analysis]
fn report_marks(
    files: Files,
    exports: Exports,
    program: Str,
    blocks: Array<u8>,
    lines: Array<u8>,
    fixed: Array<u8>,
    names: Strings,
    marks: Marks,
    rules: Array<u8>,
    edges: bool,
) {
    let reached = Reached::marked(marks, &rules, edges);
    report::write(
        files,
        exports,
        &program,
        Input {
            blocks: &blocks,
            lines: &lines,
            fixed: fixed.as_slice(),
            names,
            reached,
        },
    );
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let is_for_fuzzers = options.flag("--afl");
    let settings = afl::Settings::from_options(&options, "--afl-")?;
    if is_for_fuzzers {
        options.finish()?;
        eprintln!("cover: `--afl` is the tool `afl` now; this option stays for one more release");
        return afl::instrument(program, &settings);
    }
    if let Some(name) = settings.given() {
        return Err(WrongOption::new(format!("{name} needs --afl")).into());
    }
    let files = ReportFiles::from_options(&options)?;
    let has_counts = options.flag("--counts");
    let has_edges = options.flag("--edges");
    let exports = files::from_options(program, &options)?;
    options.finish()?;

    let mut names = StringList::new();
    let mut blocks = Vec::new();
    let (mut rules, mut marked, mut ways) = (Vec::new(), Vec::new(), Vec::new());
    let (mut edges, mut last) = (0, 0);
    let mut with_lines = Vec::new();
    let mut lines = LineList::default();
    for proc in program.procs() {
        let Some(first) = proc.first_block() else {
            continue;
        };
        if !proc.is_selected() {
            packed::leave_out(&mut blocks, proc.blocks().len());
            marked.extend(proc.blocks().map(|_| false));
            continue;
        }
        let plan = if has_counts {
            Plan::default()
        } else {
            marks::plan(proc, has_edges.then_some(&mut edges))
        };
        let name = names.intern(proc.name());
        let mut line = None;
        let list: Vec<BlockFacts> = (proc.blocks())
            .map(|block| {
                let own = lines_of(block, &mut names);
                lines.push(block, first.index() as u32, name, &own);
                line = line.or(own.first().copied());
                let last = own.last().copied().unwrap_or_default();
                facts(block, &plan, has_counts && has_edges, last)
            })
            .collect();
        let head = Head {
            pc: first.pc(),
            name,
            line: line.unwrap_or_default(),
            has_lines: line.is_some(),
        };
        if head.has_lines {
            with_lines.push((head, list.len()));
        }
        let first = first.index() as u32;
        packed::push(&mut blocks, head, first, &list);
        if !plan.rules.is_empty() {
            packed::push_rules(&mut rules, (last, first), list.len(), &plan.rules);
            last = first;
        }
        marked.extend(plan.marked);
        ways.extend(plan.ways);
    }
    let lines = lines.finish(&mut names);
    let objects = program.objects().count();
    let fixed = columns::make(objects, &lines, &with_lines, &names);
    let report = Passed {
        files: &files,
        exports: &exports,
        blocks: &blocks,
        lines: &lines.packed,
        fixed: &fixed,
        names: &names,
    };
    if has_counts {
        add_counts(program, has_edges, &report)
    } else {
        let placed = Placed {
            marked,
            ways,
            edges: edges as usize,
            rules,
        };
        add_marks(program, has_edges, placed, &report);
    }
    Ok(())
}

/// The marks of all procedures.
struct Placed {
    /// For each block, whether it has a mark.
    marked: Vec<bool>,
    /// For each conditional branch, by its block, where its ways are seen.
    ways: Vec<(u32, [Seen; 2])>,
    /// Number of marks of ways.
    edges: usize,
    /// The packed rules.
    rules: Vec<u8>,
}

/// Marks blocks, and the ways of conditional branches if they are wanted.
fn add_marks(program: &Program, has_edges: bool, placed: Placed, passed: &Passed<'_>) {
    let Placed {
        marked,
        mut ways,
        edges,
        rules,
    } = placed;
    let marks = program.marks(marked.len() + edges);
    let mut all = program.procs().flat_map(|proc| proc.blocks());
    let each = all.clone().zip(&marked);
    for (block, _) in each.filter(|(_, is_marked)| **is_marked) {
        block.add_call(Before, mark, (marks.at(block.index()),));
    }
    ways.sort_unstable_by_key(|(block, _)| *block);
    for (number, ways) in ways {
        let block = all.find(|block| block.index() == number as usize);
        for (seen, way) in ways.into_iter().zip([Way::Taken, Way::Falling]) {
            if let (Seen::Mark(i), Some(block)) = (seen, block) {
                let at = marks.at(marked.len() + i as usize);
                block.add_call_on(way, mark, (at,));
            }
        }
    }
    let (name, p) = (program.name(), passed);
    let args = (
        p.files, p.exports, name, p.blocks, p.lines, p.fixed, p.names, marks, &rules, has_edges,
    );
    program.add_call(After, report_marks, args);
}

/// What the report gets in both cases.
struct Passed<'a> {
    files: &'a ReportFiles,
    exports: &'a ExportFiles,
    blocks: &'a Vec<u8>,
    lines: &'a Vec<u8>,
    /// The columns of the profile that are made already.
    fixed: &'a Vec<u8>,
    names: &'a StringList,
}

/// Counts the executions of all blocks, and the ways of all conditional branches if they are wanted.
fn add_counts(program: &Program, has_edges: bool, passed: &Passed<'_>) {
    let counters = program.counters(program.block_count());
    let all = || program.procs().flat_map(|proc| proc.blocks());
    let branches = || {
        let selected = program
            .procs()
            .filter(|proc| has_edges && proc.is_selected());
        let ends = selected
            .flat_map(|proc| proc.blocks())
            .map(|block| block.last_inst());
        ends.filter(|inst| inst.is_type(InstType::CondBr))
    };
    let ways = program.counters(branches().count());
    for block in all() {
        block.add_call(Before, count, (counters.at(block.index()),));
    }
    for (branch, counter) in branches().zip(ways.rows()) {
        branch.add_call(Before, count_ways, (counter, BrCondValue));
    }
    let (name, p) = (program.name(), passed);
    let args = (
        p.files, p.exports, name, p.blocks, p.lines, p.fixed, p.names, counters, ways, has_edges,
    );
    program.add_call(After, report_counts, args);
}

/// The facts about a block. Ways of its branch are counted (`is_counted`), or seen where the plan says; `line` is the
/// branch's line.
fn facts(block: Block<'_>, plan: &Plan, is_counted: bool, line: Line) -> BlockFacts {
    let last = block.last_inst();
    let is_branch = last.is_type(InstType::CondBr);
    let ways = match plan.ways.get(&(block.index() as u32)) {
        Some(ways) => Some(*ways),
        None => is_counted.then_some([Seen::Nowhere; 2]),
    };
    BlockFacts {
        code: Code::of(block),
        branch: ways.filter(|_| is_branch).map(|ways| Branch {
            pc: last.pc(),
            ways,
            line,
        }),
    }
}

/// The lines of a block's instructions in their order, each once in a row; the last one is the last instruction's.
fn lines_of(block: Block<'_>, names: &mut StringList) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut last = None;
    for inst in block.insts() {
        let line = inst.line();
        if line != last
            && let Some((file, line)) = line
        {
            lines.push((names.intern(file), line));
        }
        last = line.or(last);
    }
    lines
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "cover.out" }
