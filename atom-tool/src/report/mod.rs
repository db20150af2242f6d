//! The report of a tool: facts and tables, for people, as JSON, and as a profile.
//!
//! Tools differ in what they count, not in how they print it, so aligning,
//! sorting, shortening, JSON and the options that choose the file live here. A
//! [`Report`] is filled by the routine at ProgramAfter and written to the [`Files`]
//! that the instrument routine passed. Its head says what the tool did not see.

mod column;
pub mod estimate;
mod files;
mod json;
mod nameless;
pub mod output;
mod profile;
mod text;
mod ticks;
mod unseen;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use tables::{grouped, grouped_decimal};

use crate::Address;
use crate::data::sites::{LineProcs, Site, Sites};

pub use column::{By, Column, Sum};
use estimate::{Estimate, Figure};
pub use files::{Files, ReportFiles};
pub use profile::{FixedColumn, FixedColumns, FixedValues, arguments, fixed_columns};
use unseen::Unseen;

/// At the start of the process.
pub(crate) fn begin() {
    profile::begin();
    files::begin();
}

/// One cell of a table, or the value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(Cow<'static, str>),
    /// A count.
    Number(u64),
    /// A ratio, shown with two decimals.
    Ratio(f64),
    /// An address of the original program.
    Address(u64),
    /// A source line.
    Place {
        /// The source file.
        file: Cow<'static, str>,
        /// The line in it, from 1.
        line: u32,
        /// The number of the object whose code it is: two objects may contain code of one source file.
        object: u32,
    },
    /// The value is not known.
    Empty,
}

impl Cell {
    /// `part` in per cent of `whole`; empty if `whole` is 0.
    pub fn percent(part: u64, whole: u64) -> Self {
        if whole == 0 {
            Self::Empty
        } else {
            Self::Ratio(part as f64 * 100.0 / whole as f64)
        }
    }

    /// `file:line`; empty if the line is not known.
    pub fn place(file: &str, line: u32) -> Self {
        if line == 0 {
            Self::Empty
        } else {
            Self::Place {
                file: file.to_owned().into(),
                line,
                object: 0,
            }
        }
    }

    /// Its weight when rows are sorted.
    fn weight(&self) -> f64 {
        match self {
            Self::Number(n) | Self::Address(n) => *n as f64,
            Self::Ratio(r) => *r,
            Self::Text(_) | Self::Place { .. } | Self::Empty => 0.0,
        }
    }
}

impl Site {
    /// `file:line` as a cell of a table.
    pub fn place(&self) -> Cell {
        match self.line {
            0 => Cell::Empty,
            line => Cell::Place {
                file: self.file.into(),
                line,
                object: Address(self.proc_pc).object_number() as u32,
            },
        }
    }
}

impl From<u64> for Cell {
    fn from(n: u64) -> Self {
        Self::Number(n)
    }
}

impl From<&'static str> for Cell {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

/// The readers for whom a table is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// People and programs.
    All,
    /// People only: it is not in the JSON.
    People,
    /// Programs only: it is only in the JSON.
    Programs,
}

/// A table with a title and named columns.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    by: By,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    readers: Readers,
    /// Number of rows that the tool left out, as nobody reads them.
    left_out: usize,
    /// What is estimated of a run that is sampled.
    estimate: Option<Estimate>,
}

/// The values of a column of [`Report::column_table`], one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers; addresses of the original program in a column of addresses.
    Numbers(Vec<u64>),
    /// Texts.
    Texts(Vec<&'static str>),
    /// Source lines: cells made by [`Cell::place`] or [`Site::place`], or empty ones.
    Places(Vec<Cell>),
    /// Values that were compressed when the program was instrumented, and the values of further rows. [`FixedColumns::column`] makes
    /// it.
    Fixed(FixedColumn, Box<Values>),
}

impl Values {
    /// Number of rows.
    fn rows(&self) -> usize {
        match self {
            Self::Numbers(all) => all.len(),
            Self::Texts(all) => all.len(),
            Self::Places(all) => all.len(),
            Self::Fixed(fixed, more) => fixed.rows + more.rows(),
        }
    }
}

/// A table that only the profile has, made by [`Report::column_table`].
#[derive(Clone, Debug)]
pub struct ColumnTable {
    title: &'static str,
    by: By,
    columns: Vec<(Column, Values)>,
    readers: Readers,
}

impl ColumnTable {
    fn rows(&self) -> usize {
        let first = self.columns.first();
        first.map_or(0, |(_, values)| values.rows())
    }

    /// Sets the readers: with [`Readers::All`] `atom report` shows the table unasked. By default it is for programs.
    pub fn readers(&mut self, readers: Readers) -> &mut Self {
        self.readers = readers;
        self
    }
}

impl Table {
    /// What a row stands for.
    fn by(&self) -> By {
        self.by
    }

    /// Appends a row; it should have a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) -> &mut Self {
        self.row_of(cells.into())
    }

    /// Appends a row; the number of its cells may be known at run time only.
    pub fn row_of(&mut self, mut cells: Vec<Cell>) -> &mut Self {
        if let Some(estimate) = self.estimate {
            for (cell, column) in cells.iter_mut().zip(&self.columns) {
                column.estimate(cell, &estimate);
            }
        }
        self.rows.push(cells);
        self
    }

    /// Sorts by the numbers of a column, largest first; equal rows keep their order.
    pub fn sort(&mut self, column: usize) -> &mut Self {
        let weight = |row: &Vec<Cell>| row.get(column).map_or(0.0, Cell::weight);
        self.rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        self
    }

    /// Says how many further rows there are that were not appended, because the table has enough for people
    /// ([`Files::rows`]). They are counted among those that are not shown.
    pub fn leave_out(&mut self, rows: usize) -> &mut Self {
        self.left_out = rows;
        self
    }

    /// Sets the readers; by default the table is for all.
    pub fn readers(&mut self, readers: Readers) -> &mut Self {
        self.readers = readers;
        self
    }
}

/// What was counted at a site, or at several ones together.
#[derive(Clone, Copy)]
pub(crate) struct Counted<const K: usize> {
    /// The site, or the first one.
    pub site: Site,
    /// The counts.
    pub counts: [u64; K],
    /// Half the width of the interval of the second count, in a run that is sampled.
    pub spread: Option<f64>,
}

impl<const K: usize> Counted<K> {
    fn add(&mut self, other: &Self) {
        for (sum, n) in self.counts.iter_mut().zip(other.counts) {
            *sum += n;
        }
        self.spread = match (self.spread, other.spread) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

/// A report: the results of a tool.
#[derive(Clone, Debug)]
pub struct Report {
    tool: &'static str,
    program: String,
    unseen: Option<Unseen>,
    /// What is estimated of a run that is sampled.
    estimate: Option<Estimate>,
    facts: Vec<(Column, Cell)>,
    tables: Vec<Table>,
    column_tables: Vec<ColumnTable>,
}

impl Report {
    /// An empty report of a tool on a program.
    pub fn new(tool: &'static str, program: &str) -> Self {
        Self {
            tool,
            program: program.to_owned(),
            unseen: Unseen::of_program(),
            estimate: Estimate::of_process(),
            facts: Vec::new(),
            tables: Vec::new(),
            column_tables: Vec::new(),
        }
    }

    /// Adds a fact about the whole run.
    pub fn fact(&mut self, name: &'static str, value: impl Into<Cell>) -> &mut Self {
        self.typed_fact(Column::new(name), value)
    }

    /// Adds a fact about the whole run, with its type and unit.
    pub fn typed_fact(&mut self, column: Column, value: impl Into<Cell>) -> &mut Self {
        let mut value = value.into();
        if let Some(estimate) = &self.estimate {
            column.estimate(&mut value, estimate);
        }
        self.facts.push((column, value));
        self
    }

    /// In a run that is sampled: adds half the width of the interval of the fact that was added last, which is a figure of
    /// the simulation, or in per cent of another one.
    pub fn interval(&mut self, figure: Figure, whole: Option<Figure>) -> &mut Self {
        let (Some(estimate), Some((column, _))) = (self.estimate, self.facts.last()) else {
            return self;
        };
        let (column, cell) = match whole {
            Some(whole) => {
                let half = estimate.of_percent(figure as usize, whole as usize);
                (column.spread(), half.map(Cell::Ratio))
            }
            None => {
                let half = estimate.of_figure(figure as usize);
                (
                    column.spread(),
                    half.map(|half| Cell::Number(half.ceil() as u64)),
                )
            }
        };
        self.facts.extend(cell.map(|cell| (column, cell)));
        self
    }

    /// Adds an empty table, given the names of its columns.
    pub fn table(
        &mut self,
        title: impl Into<String>,
        columns: impl IntoIterator<Item = &'static str>,
    ) -> &mut Table {
        self.typed_table(By::Other, title, columns.into_iter().map(Column::new))
    }

    /// Adds an empty table. `by` says what a row stands for.
    pub fn typed_table(
        &mut self,
        by: By,
        title: impl Into<String>,
        columns: impl IntoIterator<Item = Column>,
    ) -> &mut Table {
        self.tables.push(Table {
            title: title.into(),
            by,
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            readers: Readers::All,
            left_out: 0,
            estimate: self.estimate,
        });
        let last = self.tables.len() - 1;
        &mut self.tables[last]
    }

    /// Adds a table that only the profile has. It takes less time and memory than rows of cells, so it suits tables
    /// by block or by instruction. All columns have the same number of values; those of derived columns are not looked at.
    ///
    /// Values that are known when the program is instrumented, such as source lines, may be made then
    /// ([`FixedColumns`]). All such columns of a report are of one [`fixed_columns`].
    pub fn column_table(
        &mut self,
        by: By,
        title: &'static str,
        mut columns: Vec<(Column, Values)>,
    ) -> &mut ColumnTable {
        if let Some(estimate) = &self.estimate {
            for (column, values) in &mut columns {
                if let (true, Values::Numbers(all)) = (column.is_estimated(), values) {
                    all.iter_mut().for_each(|n| *n = estimate.count(*n));
                }
            }
        }
        self.column_tables.push(ColumnTable {
            title,
            by,
            columns,
            readers: Readers::Programs,
        });
        let last = self.column_tables.len() - 1;
        &mut self.column_tables[last]
    }

    /// Adds tables by procedure and by source line, and for programs by instruction. `of` gives two
    /// counts of a site, which `columns` names: all events, and the events that the second
    /// column counts. Sites without events have no row.
    pub fn places(
        &mut self,
        prefix: &str,
        columns: [&'static str; 3],
        sites: Sites,
        of: impl Fn(usize) -> [u64; 2],
    ) {
        let counted = |i: usize| Some(of(i)).filter(|n| *n != [0, 0]);
        let counted = sites.with(counted).map(|(site, counts)| Counted {
            site,
            counts,
            spread: None,
        });
        self.places_of(prefix, columns, &[], counted);
    }

    /// As [`Report::places`]; only sites with events are given. Counts after the first two are those of the columns
    /// `more`.
    pub(crate) fn places_of<const K: usize>(
        &mut self,
        prefix: &str,
        columns: [&'static str; 3],
        more: &[&'static str],
        counted: impl Iterator<Item = Counted<K>>,
    ) {
        let [all, some, ratio] = columns;
        let mut procs: BTreeMap<u64, Counted<K>> = BTreeMap::new();
        // Two objects may contain code of one source file.
        let mut lines: BTreeMap<(&str, u32, usize), Counted<K>> = BTreeMap::new();
        let mut has_spread = false;
        let mut line_procs = LineProcs::default();
        let counts = |name: &'static str| Column::count(name, name);
        let names = [all, some].into_iter().chain(more.iter().copied());
        let columns = names.map(counts).chain([Column::address("pc")]);
        let title = format!("{prefix}instructions");
        let table = self.typed_table(By::Instruction, title, columns);
        table.readers(Readers::Programs);
        for one in counted {
            let site = one.site;
            let cells = one.counts.into_iter().map(Cell::Number);
            table.row_of(cells.chain([Cell::Address(site.pc)]).collect());
            has_spread |= one.spread.is_some();
            let nothing = || Counted {
                counts: [0; K],
                spread: None,
                ..one
            };
            procs.entry(site.proc_pc).or_insert_with(nothing).add(&one);
            if site.line != 0 {
                let object = Address(site.proc_pc).object_number();
                let line = lines.entry((site.file, site.line, object));
                line.or_insert_with(nothing).add(&one);
                line_procs.add(&site);
            }
        }
        let total: u64 = procs.values().map(|one| one.counts[1]).sum();
        let measures = [
            counts(some),
            Column::share("%", some),
            counts(all),
            Column::percent_of(ratio, some, all),
        ];
        let spread = Column::count("±", some).sum(Sum::None);
        let spread = has_spread.then_some(spread);
        let measures = || {
            let (main, others) = measures.split_at(1);
            let main = main.iter().copied().chain(spread);
            main.chain(others.iter().copied())
                .chain(more.iter().copied().map(counts))
        };
        let values = |one: &Counted<K>| -> Vec<Cell> {
            let n = one.counts;
            let spread = has_spread.then(|| Cell::Number(one.spread.unwrap_or(0.0).ceil() as u64));
            let others = [
                Cell::percent(n[1], total),
                n[0].into(),
                Cell::percent(n[1], n[0]),
            ];
            let more = n.into_iter().skip(2).map(Cell::Number);
            let main = [Cell::Number(n[1])].into_iter().chain(spread);
            main.chain(others).chain(more).collect()
        };
        let references = if has_spread { 3 } else { 2 };
        let columns = measures().chain([Column::address("pc"), Column::text("procedure")]);
        let title = format!("{prefix}procedures");
        let table = self.typed_table(By::Procedure, title, columns);
        for (pc, one) in procs {
            let mut row = values(&one);
            row.extend([Cell::Address(pc), one.site.proc.into()]);
            table.row_of(row);
        }
        table.sort(references).sort(0);
        if lines.is_empty() {
            return;
        }
        let columns = measures().chain([Column::place("line").key(), Column::text("procedure")]);
        let title = format!("{prefix}lines");
        let table = self.typed_table(By::Line, title, columns);
        for one in lines.into_values() {
            let mut row = values(&one);
            let site = one.site;
            row.extend([site.place(), Cell::Text(line_procs.label(&site))]);
            table.row_of(row);
        }
        table.sort(references).sort(0);
    }

    /// Writes the report to the files; an error goes to standard error.
    pub fn write(&self, files: Files) {
        let extent = files.extent();
        let written = files.write(self, |to| {
            text::write(to, self, extent)?;
            text::write_note(to, files.nameless(), extent)
        });
        match written {
            Ok(()) => files.tell_summed(),
            Err(e) => output::cannot_write(self.tool, e),
        }
    }

    /// Writes the report to the files as [`Report::write`] does, but for the file for people: `write` writes that one,
    /// in a format of the tool's own.
    pub fn write_with(&self, files: Files, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if let Err(e) = files.write(self, write) {
            output::cannot_write(self.tool, e);
        }
    }
}

/// A cell as people read it.
fn shown(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Text(text) => Cow::Borrowed(text),
        Cell::Number(n) => grouped(*n).into(),
        Cell::Ratio(r) => grouped_decimal(*r, 2).into(),
        Cell::Address(a) => Address(*a).to_string().into(),
        Cell::Place { file, line, .. } => format!("{file}:{line}").into(),
        Cell::Empty => Cow::Borrowed(""),
    }
}
