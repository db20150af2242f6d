//! Coverage for fuzzers that speak AFL's protocol: AFL++, LibAFL and others.
//!
//! Each way between blocks has a cell of 8 bits that counts how often it was gone, or shares it where one follows from
//! the other (`crate::marks`). Before the program's own work begins, the fuzzer's shared memory takes the place of the
//! cells (`map`), and the process becomes a fork server (`server`). Each child that the server makes is a run of the
//! program. `docs/tools/afl.md` describes options and use. Test cases may be in shared memory, too (`input`), and what
//! the program compares with what may be logged (`compare`).
//!
//! Cells have a fixed place in the program's data, so a count is in line code without a base register. The place need
//! not be the start of a page, and memory is mapped by pages: the first cell that is used is a page after the
//! table's start, so that no other data shares its page.

mod compare;
mod input;
mod map;
mod persistent;
mod server;
mod shared;
mod start;
mod sys;

use atom_tool::prelude::*;
use atom_tool::{MarkTable, Options};

use crate::marks::{self, Seen};
use map::{MARGIN, Map};
use persistent::Loop;

/// Number of cells of the largest map that the handshake can announce, less the margin in front.
const MOST_CELLS: u64 = (8 << 20) - MARGIN as u64;

#[analysis]
fn hit(cell: Mark) {
    cell.count();
}

plain_data! {
    /// What the routines that begin get.
    struct Begin {
        /// Number of cells.
        cells: u32,
        /// Version of the protocol, or [`ANY_PROTOCOL`].
        protocol: u32,
        /// Cycles of a persistent process.
        cycles: u64,
        /// The procedure of a persistent process takes the test case as its arguments.
        has_input: bool,
        _unused: [u8; 7],
    }
}

/// The protocol that fits the map of comparisons, and else the one that all fuzzers know.
const ANY_PROTOCOL: u32 = u32::MAX;

#[analysis]
fn begin(marks: Marks, done: Marks, how: Record<Begin>) {
    server::begin(Map::of(marks, how.cells), done, how.protocol, None);
}

#[analysis]
fn cycle(
    marks: Marks,
    done: Marks,
    how: Record<Begin>,
    proc: u64,
    first: RegV,
    second: RegV,
    third: RegV,
    fourth: RegV,
    fifth: RegV,
    sixth: RegV,
) {
    let words = [first, second, third, fourth, fifth, sixth].map(|value| value.0);
    persistent::run(
        Map::of(marks, how.cells),
        done,
        Loop {
            proc,
            words,
            cycles: how.cycles,
            protocol: how.protocol,
            has_input: how.has_input,
        },
    );
}

/// The options.
pub struct Settings {
    /// What is in front of the options' names: `--`, or more for *cover*.
    prefix: &'static str,
    start: Option<String>,
    persistent: Option<String>,
    most_cells: u64,
    has_comparisons: bool,
    cycles: u64,
    protocol: u32,
    has_input: bool,
}

impl Settings {
    /// Reads the options, whose names have `prefix` in front.
    pub fn from_options(options: &Options<'_>, prefix: &'static str) -> Result<Self> {
        let name = |word| format!("{prefix}{word}");
        let settings = Self {
            prefix,
            start: options.value(&name("start"))?.map(str::to_owned),
            persistent: options.value(&name("persistent"))?.map(str::to_owned),
            most_cells: options.given_size(&name("map"))?.unwrap_or(MOST_CELLS),
            has_comparisons: options.flag(&name("cmplog")),
            cycles: options.size(&name("cycles"))?,
            protocol: options.choice(
                &name("protocol"),
                &[("auto", ANY_PROTOCOL), ("0", 0), ("1", 1)],
            )?,
            has_input: options.flag(&name("input")),
        };
        if settings.start.is_some() && settings.persistent.is_some() {
            return Err(format!(
                "{prefix}start and {prefix}persistent cannot be used together: a persistent \
                 process begins at its procedure"
            )
            .into());
        }
        if settings.has_input && settings.persistent.is_none() {
            let text = "persistent: the procedure that takes it";
            return Err(format!("{prefix}input needs {prefix}{text}").into());
        }
        if !(1..=MOST_CELLS).contains(&settings.most_cells) {
            return Err(format!("{prefix}map takes 1 to {MOST_CELLS} cells").into());
        }
        if !(1..=u64::from(u32::MAX)).contains(&settings.cycles) {
            return Err(format!("{prefix}cycles takes a number from 1 to 4294967295").into());
        }
        Ok(settings)
    }

    /// The name of an option that was given, if any was.
    pub fn given(&self) -> Option<String> {
        let all = [
            ("start", self.start.is_some()),
            ("persistent", self.persistent.is_some()),
            ("cmplog", self.has_comparisons),
            ("input", self.has_input),
        ];
        let given = all.iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| format!("{}{name}", self.prefix))
    }
}

/// Adds the calls.
pub fn instrument(program: &Program, settings: &Settings) -> Result {
    let points = points(program);
    if points.is_empty() {
        return Err("no code is selected: there is nothing to see for a fuzzer".into());
    }
    let cells = settings.most_cells.min(points.len() as u64) as usize;
    // The fuzzer takes a program for one of its kind if its file has this text.
    program.sign(map::SIGNATURE.to_bytes_with_nul());
    let marks = program.marks(cells + map::SPARE);
    for (number, point) in points.iter().enumerate() {
        let cell = (marks.at(MARGIN + number % cells),);
        match point.way {
            None => point.block.add_call(Before, hit, cell),
            Some(way) => point.block.add_call_on(way, hit, cell),
        }
    }
    if points.len() > cells {
        let share = points.len().div_ceil(cells);
        eprintln!(
            "afl: {} ways between blocks share {cells} cells, up to {share} in each",
            points.len()
        );
    }
    let done = if settings.has_comparisons {
        compare::instrument(program)
    } else {
        program.marks(0)
    };
    let how = Begin {
        cells: cells as u32,
        protocol: settings.protocol,
        cycles: settings.cycles,
        has_input: settings.has_input,
        _unused: [0; 7],
    };
    match &settings.persistent {
        Some(pattern) => add_cycles(program, settings, pattern, [marks, done], &how)?,
        None => {
            for point in start::find(program, settings)? {
                point.add_call((marks, done, &how));
            }
        }
    }
    Ok(())
}

/// Adds the calls of a persistent process at the procedures of a pattern.
fn add_cycles(
    program: &Program,
    settings: &Settings,
    pattern: &str,
    [marks, done]: [MarkTable; 2],
    how: &Begin,
) -> Result {
    for proc in program.procs_matching(pattern)? {
        if proc.is_opaque() {
            let name = proc.name();
            let option = format!("{}persistent", settings.prefix);
            return Err(format!("{option}: {name} is not instrumented").into());
        }
        let words = [Reg::Rdi, Reg::Rsi, Reg::Rdx, Reg::Rcx, Reg::R8, Reg::R9];
        let [a, b, c, d, e, f] = words;
        let at = ImageAddress(proc.pc());
        proc.add_call(Before, cycle, (marks, done, how, at, a, b, c, d, e, f));
    }
    Ok(())
}

/// A place at which a cell counts: before a block, or on a way out of it.
struct Point<'a> {
    block: Block<'a>,
    way: Option<Way>,
}

/// The places that tell all ways between blocks of the selected procedures.
fn points<'a>(program: &Program<'a>) -> Vec<Point<'a>> {
    let mut points = Vec::new();
    // Which way a PLT entry goes tells whether its function is bound already: that is none of the input's doing.
    let is_wanted = |proc: &Proc<'_>| proc.is_selected() && !proc.is_stub();
    let selected = program.procs().filter(is_wanted);
    for proc in selected.filter(|proc| proc.first_block().is_some()) {
        let plan = marks::plan(proc, Some(&mut 0));
        for (block, is_marked) in proc.blocks().zip(&plan.marked) {
            if *is_marked {
                points.push(Point { block, way: None });
            }
            let Some(ways) = plan.ways.get(&(block.index() as u32)) else {
                continue;
            };
            for (seen, way) in ways.iter().zip([Way::Taken, Way::Falling]) {
                if let Seen::Mark(_) = seen {
                    let way = Some(way);
                    points.push(Point { block, way });
                }
            }
        }
    }
    points
}
