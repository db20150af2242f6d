//! The report: what was reached, by procedure, source file, line, branch and block.

use std::collections::BTreeMap;
use std::ops::Range;

use atom_tool::packed::{Code, groups};
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, FixedColumns, Readers, Sum, Values};
use coverage::{Block, Branch, Coverage, File, Function};

use crate::columns::{self, BLOCKS_COLUMN};
use crate::files::{self, Exports};
use crate::kind::Kind;
use crate::lines::{FilePart, Lines};
use crate::packed::{self, Head, Line};
use atom_cover::marks::Seen;

/// How often blocks and ways of branches were reached; with marks, 1 stands for any number.
pub struct Reached {
    blocks: Blocks,
    /// Ways of branches are known.
    has_ways: bool,
}

/// Executions of blocks, in the order of their numbers.
enum Blocks {
    /// And the counters of ways, in the order of branches: not taken, taken.
    Counted(Vec<u64>, Counters<2>),
    /// Each 0 or 1. Ways of branches that have marks follow.
    Marked(Vec<u8>),
}

/// What the report is made of.
pub struct Input<'a> {
    pub blocks: &'a [u8],
    pub lines: &'a [u8],
    /// The columns of the profile that are made already.
    pub fixed: &'static [u8],
    pub names: Strings,
    pub reached: Reached,
}

impl Reached {
    /// From counters of blocks and of the ways of branches.
    pub fn counted(counters: Counters, ways: Counters<2>, has_ways: bool) -> Self {
        Self {
            blocks: Blocks::Counted(counters.rows().map(|[n]| n).collect(), ways),
            has_ways,
        }
    }

    /// From marks and the packed rules.
    pub fn marked(marks: Marks, rules: &[u8], has_ways: bool) -> Self {
        let mut all = marks.copy();
        packed::apply_rules(rules, &mut all);
        Self {
            blocks: Blocks::Marked(all),
            has_ways,
        }
    }

    /// Executions of a block, or of a way with a mark; none if there is no such.
    fn get(&self, i: usize) -> Option<u64> {
        match &self.blocks {
            Blocks::Counted(all, _) => all.get(i).copied(),
            Blocks::Marked(all) => all.get(i).copied().map(u64::from),
        }
    }

    /// Number of blocks in a range that were executed.
    fn executed(&self, blocks: Range<usize>) -> usize {
        match &self.blocks {
            Blocks::Counted(all, _) => executed(all, blocks),
            Blocks::Marked(all) => executed(all, blocks),
        }
    }
}

/// Number of counts in a range that are not 0.
fn executed<N: Default + PartialEq>(all: &[N], range: Range<usize>) -> usize {
    let counts = all.get(range).unwrap_or_default();
    counts.iter().filter(|n| **n != N::default()).count()
}

/// What was found out about a procedure.
struct Proc {
    pc: u64,
    name: &'static str,
    line: Line,
    /// Executions of its first block.
    entries: u64,
    /// Number of its blocks that were executed, and of all.
    blocks: [u64; 2],
}

/// A conditional branch.
struct Way {
    pc: u64,
    proc: &'static str,
    line: Line,
    /// Taken, not taken; none where it is not seen.
    counts: [Option<u64>; 2],
}

impl Proc {
    fn is_executed(&self) -> bool {
        self.blocks[0] != 0
    }

    fn has_lines(&self) -> bool {
        self.line.1 != 0
    }
}

/// What there is in an object.
struct Object {
    /// Its first procedure.
    pc: u64,
    /// Numbers of its blocks and procedures.
    numbers: [u64; 2],
}

/// Everything that was reached.
#[derive(Default)]
struct Found<'a> {
    /// Number of procedures that were executed, and of all.
    entered: [u64; 2],
    /// Number of blocks that were executed, and of all.
    blocks: [u64; 2],
    /// What there is in each object, by its number.
    objects: BTreeMap<usize, Object>,
    /// The executed procedures, and of the others with lines those that somebody reads.
    procs: Vec<Proc>,
    /// Number of procedures with lines that were left out.
    left_out: usize,
    /// Executed blocks, and executions of the first block, of each procedure with lines.
    with_lines: [Vec<u64>; 2],
    ways: Vec<Way>,
    lines: Lines<'a>,
    /// Columns of the executed blocks: address, executed instructions, executions, instructions, bytes.
    block_columns: [Vec<u64>; 5],
    names: Vec<&'static str>,
}

impl Found<'_> {
    /// Adds a procedure, given the number of its executed blocks and of all, and the executions of the first one.
    fn add_proc(
        &mut self,
        head: Head,
        blocks: [u64; 2],
        entries: u64,
        most: usize,
        names: Strings,
    ) {
        let is_executed = blocks[0] != 0;
        self.entered[0] += u64::from(is_executed);
        self.entered[1] += 1;
        let object = self.objects.entry(Address(head.pc).object_number());
        let object = object.or_insert(Object {
            pc: head.pc,
            numbers: [0; 2],
        });
        object.numbers[0] += blocks[1];
        object.numbers[1] += 1;
        for (sum, n) in self.blocks.iter_mut().zip(blocks) {
            *sum += n;
        }
        if head.has_lines {
            for (column, n) in self.with_lines.iter_mut().zip([blocks[0], entries]) {
                column.push(n);
            }
        }
        if is_executed || head.has_lines && self.procs.len() < most {
            self.procs.push(Proc {
                pc: head.pc,
                name: names.get(head.name),
                line: head.line,
                entries,
                blocks,
            });
        } else {
            self.left_out += usize::from(head.has_lines);
        }
    }
}

impl Input<'_> {
    fn kind(&self) -> Kind {
        let is_counted = matches!(self.reached.blocks, Blocks::Counted(..));
        Kind { is_counted }
    }

    /// Finds out what was reached. At least `most` procedures are told if there are as many, also if they were not executed.
    fn found(&self, most: usize) -> Found<'_> {
        let mut found = Found {
            lines: Lines::new(self.lines),
            ..Found::default()
        };
        let (kind, mut branches) = (self.kind(), 0);
        let count = |block: u32| self.reached.get(block as usize).unwrap_or(0);
        let groups = || groups(self.blocks);
        let all = groups().map(|group| group.len).sum::<usize>();
        for group in groups() {
            let Some(head) = packed::head(&mut { group.bytes }) else {
                continue;
            };
            let first = group.first as u32;
            let executed = self.reached.executed(group.first..group.first + group.len) as u64;
            found.lines.add(first, executed != 0, count, kind);
            let entries = if group.len == 0 { 0 } else { count(first) };
            found.add_proc(
                head,
                [executed, group.len as u64],
                entries,
                most,
                self.names,
            );
            if executed == 0 && !self.reached.has_ways {
                continue;
            }
            let name = self.names.get(head.name);
            packed::each(&group, |i, block| {
                let count = count(first + i as u32);
                if count != 0 {
                    let Code { pc, bytes, insts } = block.code;
                    let row = [pc, count * insts, count, insts, bytes];
                    for (column, value) in found.block_columns.iter_mut().zip(row) {
                        column.push(value);
                    }
                    found.names.push(name);
                }
                let Some(branch) = block.branch else { return };
                let counts = self.ways(branch.ways, branches, all);
                branches += 1;
                let line = branch.line;
                if line.1 != 0 || counts.iter().any(|n| n.is_some_and(|n| n != 0)) {
                    let (pc, proc) = (branch.pc, name);
                    found.ways.push(Way {
                        pc,
                        proc,
                        line,
                        counts,
                    });
                }
            });
        }
        found
    }

    /// Counts of the ways of a branch, taken and not taken. `all` is the number of blocks, after which the marks of
    /// ways have their numbers.
    fn ways(&self, ways: [Seen; 2], number: usize, all: usize) -> [Option<u64>; 2] {
        if let Blocks::Counted(_, counters) = self.reached.blocks {
            let [not_taken, taken] = counters.at(number).get();
            return [Some(taken), Some(not_taken)];
        }
        let count = |i: usize| self.reached.get(i);
        ways.map(|way| match way {
            Seen::Block(block) => count(block as usize),
            Seen::Mark(mark) => count(all + mark as usize),
            Seen::Nowhere => None,
        })
    }
}

/// Writes all files.
pub fn write(files: Files, exports: Exports, program: &str, input: Input<'_>) {
    let fixed = FixedColumns::new(input.fixed);
    // Whoever reads all procedures gets them all.
    let is_long =
        files.has_json() || files.rows() == 0 || files::is_wanted(exports) || fixed.is_none();
    let most = if is_long { usize::MAX } else { files.rows() };
    let (mut found, kind) = (input.found(most), input.kind());
    if files::is_wanted(exports) {
        files::write(exports, &coverage(&input, &found, exports));
    }
    let mut report = Report::new("cover", program);
    let share = |report: &mut Report, [some, all]: [Column; 2], name, numbers: [u64; 2]| {
        let [part, whole] = numbers;
        report
            .typed_fact(some, part)
            .typed_fact(all, whole)
            .typed_fact(name, Cell::percent(part, whole));
    };
    let columns = [
        EXECUTED.rows_of("blocks", kind.executions()),
        Column::count("blocks", "blocks").total_of(OBJECTS, "blocks"),
    ];
    let percent = Column::percent_of("blocks executed %", "blocks executed", "blocks");
    share(&mut report, columns, percent, found.blocks);
    let columns = [
        Column::count("procedures executed", "procedures").rows_of(PROCEDURES, "blocks executed"),
        Column::count("procedures", "procedures").total_of(OBJECTS, "procedures"),
    ];
    let percent = Column::percent_of("procedures executed %", "procedures executed", "procedures");
    share(&mut report, columns, percent, found.entered);
    let lines = &found.lines.counts;
    if !lines.is_empty() {
        let executed = executed(lines, 0..lines.len());
        let columns = [
            Column::count("lines executed", "lines").rows_of("lines", kind.executions()),
            Column::count("lines", "lines").all_rows_of("lines"),
        ];
        let percent = Column::percent_of("lines executed %", "lines executed", "lines");
        let numbers = [executed as u64, lines.len() as u64];
        share(&mut report, columns, percent, numbers);
    }
    if input.reached.has_ways {
        let counts = || {
            found
                .ways
                .iter()
                .flat_map(|way| way.counts.into_iter().flatten())
        };
        let gone = counts().filter(|n| *n != 0).count();
        let column = Column::count("ways of branches gone", "ways").sum(Sum::None);
        report.typed_fact(column, gone as u64);
    }
    add_files(&mut report, &found, input.names, kind);
    let has_all = add_procs(&mut report, &found, input.names, kind);
    if let Some(fixed) = fixed.filter(|_| files.has_profile()) {
        if !has_all {
            add_fixed_procs(&mut report, &mut found, fixed, kind);
        }
        let counts = Values::Numbers(std::mem::take(&mut found.lines.counts));
        let mut columns = vec![(kind.column("executions", "executed", "lines"), counts)];
        columns.extend(columns::of_lines(fixed));
        report.column_table(By::Line, "lines", columns);
    }
    if files.has_profile() {
        if input.reached.has_ways {
            add_branches(&mut report, &found, input.names, kind);
        }
        add_objects(&mut report, &found);
        add_blocks(&mut report, found, kind);
    }
    report.write(files);
}

/// The table of source files.
fn add_files(report: &mut Report, found: &Found<'_>, names: Strings, kind: Kind) {
    if found.lines.files.is_empty() {
        return;
    }
    let row = |part: &FilePart| {
        let executed = executed(&found.lines.counts, part.first..part.first + part.rows);
        (names.get(part.file), [executed as u64, part.rows as u64])
    };
    let mut files: Vec<_> = found.lines.files.iter().map(row).collect();
    files.sort_unstable();
    let columns = [
        Column::count("lines executed", "lines").rows_of("lines", kind.executions()),
        Column::count("lines", "lines").all_rows_of("lines"),
        Column::percent_of("%", "lines executed", "lines"),
        Column::text("file").key(),
    ];
    let table = report.typed_table(By::File, "source files", columns);
    for (file, [some, all]) in files {
        table.row([
            some.into(),
            all.into(),
            Cell::percent(some, all),
            file.into(),
        ]);
    }
    table.sort(1);
}

fn place(names: Strings, pc: u64, line: Line) -> Cell {
    match line.1 {
        0 => Cell::Empty,
        number => Cell::Place {
            file: names.get(line.0).into(),
            line: number,
            object: Address(pc).object_number() as u32,
        },
    }
}

/// The share of the executed blocks.
const PERCENT: Column = Column::percent_of("%", "blocks executed", "blocks");
/// The column of executed blocks.
const EXECUTED: Column = Column::count("blocks executed", "blocks");
/// The title of the table of what there is in each object.
const OBJECTS: &str = "objects";
/// The title of the tables of procedures, for people and in the profile.
const PROCEDURES: &str = "procedures";

/// The table of procedures. Procedures without lines that were not executed have no row. True if all others have one;
/// else the table is for people.
fn add_procs(report: &mut Report, found: &Found<'_>, names: Strings, kind: Kind) -> bool {
    let columns = [
        EXECUTED.rows_of("blocks", kind.executions()),
        BLOCKS_COLUMN,
        PERCENT,
        kind.column("entries", "entered", "entries"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Procedure, PROCEDURES, columns);
    for proc in &found.procs {
        let [some, all] = proc.blocks;
        table.row([
            some.into(),
            all.into(),
            Cell::percent(some, all),
            proc.entries.into(),
            Cell::Address(proc.pc),
            place(names, proc.pc, proc.line),
            proc.name.into(),
        ]);
    }
    table.sort(0);
    if found.left_out != 0 {
        table.leave_out(found.left_out).readers(Readers::People);
    }
    found.left_out == 0
}

/// The profile's table of procedures, if the one for people is too short.
fn add_fixed_procs(report: &mut Report, found: &mut Found<'_>, fixed: FixedColumns, kind: Kind) {
    let [mut executed, mut entries] = std::mem::take(&mut found.with_lines);
    let (mut blocks, mut pcs, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let others = found
        .procs
        .iter()
        .filter(|p| p.is_executed() && !p.has_lines());
    for proc in others {
        executed.push(proc.blocks[0]);
        entries.push(proc.entries);
        blocks.push(proc.blocks[1]);
        pcs.push(proc.pc);
        names.push(proc.name);
    }
    let [blocks, pc, line, name] = columns::of_procs(fixed, (blocks, pcs, names));
    let columns = vec![
        (
            EXECUTED.rows_of("blocks", kind.executions()),
            Values::Numbers(executed),
        ),
        blocks,
        (PERCENT, Values::Numbers(Vec::new())),
        (
            kind.column("entries", "entered", "entries"),
            Values::Numbers(entries),
        ),
        pc,
        line,
        name,
    ];
    let table = report.column_table(By::Procedure, PROCEDURES, columns);
    table.readers(Readers::All);
}

/// The profile's table of conditional branches. Those whose ways are not all seen are left out.
fn add_branches(report: &mut Report, found: &Found<'_>, names: Strings, kind: Kind) {
    let mut numbers: [Vec<u64>; 3] = Default::default();
    let (mut places, mut procs) = (Vec::new(), Vec::new());
    for way in &found.ways {
        let [Some(taken), Some(not_taken)] = way.counts else {
            continue;
        };
        for (column, number) in numbers.iter_mut().zip([way.pc, taken, not_taken]) {
            column.push(number);
        }
        places.push(place(names, way.pc, way.line));
        procs.push(way.proc);
    }
    let columns = [
        Column::address("pc"),
        kind.column("taken", "taken", "branches"),
        kind.column("not taken", "not taken", "branches"),
    ];
    let mut columns: Vec<_> = columns
        .into_iter()
        .zip(numbers.map(Values::Numbers))
        .collect();
    columns.push((Column::place("line"), Values::Places(places)));
    columns.push((Column::text("procedure"), Values::Texts(procs)));
    report.column_table(By::Branch, "conditional branches", columns);
}

/// The profile's table of what there is in each object, by the first procedure.
fn add_objects(report: &mut Report, found: &Found<'_>) {
    let columns = [
        Column::count("blocks", "blocks").sum(Sum::Max),
        Column::count("procedures", "procedures").sum(Sum::Max),
        Column::address("pc"),
    ];
    let table = report.typed_table(By::Object, OBJECTS, columns);
    table.readers(Readers::Programs);
    for object in found.objects.values() {
        let [blocks, procedures] = object.numbers;
        table.row([blocks.into(), procedures.into(), Cell::Address(object.pc)]);
    }
}

/// The profile's table of executed blocks.
fn add_blocks(report: &mut Report, found: Found<'_>, kind: Kind) {
    let [pc, count, executions, insts, bytes] = found.block_columns;
    let mut columns = vec![(Column::address("pc"), Values::Numbers(pc))];
    if kind.is_counted {
        let column = Column::count("count", "instructions");
        columns.push((column, Values::Numbers(count)));
    }
    columns.extend([
        (
            kind.column("executions", "executed", "blocks"),
            Values::Numbers(executions),
        ),
        (
            Column::count("insts", "instructions").label(),
            Values::Numbers(insts),
        ),
        (Column::bytes("bytes").label(), Values::Numbers(bytes)),
        (Column::text("procedure"), Values::Texts(found.names)),
    ]);
    report.column_table(By::Block, "blocks", columns);
}

/// What the files for other programs are made of.
fn coverage(input: &Input<'_>, found: &Found<'_>, exports: Exports) -> Coverage {
    let (names, kind) = (input.names, input.kind());
    let starts = files::starts(exports);
    let block = |(pc, bytes): (&u64, &u64)| {
        let module = Address(*pc).object_number();
        let start = pc.wrapping_sub(*starts.get(module)?);
        Some(Block {
            module,
            start,
            size: *bytes,
        })
    };
    let mut coverage = Coverage {
        modules: files::modules(exports),
        blocks: found.block_columns[0]
            .iter()
            .zip(&found.block_columns[4])
            .filter_map(block)
            .collect(),
        has_counts: kind.is_counted,
        ..Coverage::default()
    };
    for row in found.lines.all() {
        let (file, line) = row.line;
        let name = names.get(file).to_owned();
        let file: &mut File = coverage.files.entry(name).or_default();
        let known = file.lines.entry(line.into()).or_default();
        *known = kind.sum(*known, row.count);
    }
    for proc in found.procs.iter().filter(|p| p.has_lines()) {
        let file = coverage
            .files
            .entry(names.get(proc.line.0).to_owned())
            .or_default();
        file.functions.push(Function {
            name: proc.name.to_owned(),
            line: proc.line.1.into(),
            entries: proc.entries,
        });
    }
    for way in found.ways.iter().filter(|w| w.line.1 != 0) {
        let [Some(taken), Some(not_taken)] = way.counts else {
            continue;
        };
        let file = coverage
            .files
            .entry(names.get(way.line.0).to_owned())
            .or_default();
        file.branches.push(Branch {
            line: way.line.1.into(),
            ways: [taken, not_taken],
        });
    }
    coverage
}
