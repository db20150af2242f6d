//! Reports: `include/atom.report.h`.
//!
//! A table is kept until the report is written, and checked then: C's compiler does not know how many cells a row has. Cells of computed
//! columns are computed here, so a tool cannot give others.

mod column;
mod table;

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::io::Write;

use atom_tool::report::Readers;
use atom_tool::{Cell, Files, Sites};

use super::handles::fail;
use super::sites;
use crate::varargs::bytes;
use column::{CColumn, Column, Kind, Scope};
use table::Table;

/// A copy of a text, which is never freed: a report's names are few. Empty for NULL.
///
/// # Safety
/// It is NULL or a string of C.
unsafe fn kept(text: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(text) };
    String::leak(String::from_utf8_lossy(text).into_owned())
}

/// A report, with the tables that are not complete yet.
pub struct Report {
    report: atom_tool::Report,
    facts: Vec<(&'static str, Cell)>,
    parts: Vec<Part>,
}

/// Tables in the order in which they were added.
enum Part {
    /// Made by [`Box::into_raw`], as C has its address.
    Table(*mut Table),
    Places(Places),
}

/// Tables by place.
struct Places {
    prefix: &'static str,
    columns: [&'static str; 3],
    sites: Sites,
    /// For each site, all events, and those of the kind that is looked at.
    counts: Vec<[u64; 2]>,
}

/// The cell for a part of a whole; empty where that has no value.
fn quotient(kind: Kind, part: &Cell, whole: &Cell) -> Cell {
    let value = |cell: &Cell| match cell {
        Cell::Number(n) => Some(*n as f64),
        Cell::Ratio(r) => Some(*r),
        _ => None,
    };
    match (kind, part, whole) {
        (Kind::Percent, Cell::Number(part), Cell::Number(whole)) => Cell::percent(*part, *whole),
        _ => match (value(part), value(whole)) {
            (Some(_), Some(0.0)) | (None, _) | (_, None) => Cell::Empty,
            (Some(part), Some(whole)) if kind == Kind::Percent => Cell::Ratio(part * 100.0 / whole),
            (Some(part), Some(whole)) => Cell::Ratio(part / whole),
        },
    }
}

impl Report {
    fn fact_named(&self, name: &str) -> Option<&Cell> {
        let found = self.facts.iter().find(|(of, _)| *of == name)?;
        Some(&found.1)
    }

    fn add_fact(&mut self, column: &Column, value: Cell) {
        self.facts.push((column.name, value.clone()));
        self.report.typed_fact(column.made, value);
    }

    /// Completes the tables and gives them to the report.
    fn complete(mut self: Box<Self>) -> atom_tool::Report {
        for part in std::mem::take(&mut self.parts) {
            match part {
                Part::Table(table) => {
                    // SAFETY: each table is made once and in one report, which is written once.
                    let table = unsafe { Box::from_raw(table) };
                    table.complete(&self.facts, &mut self.report);
                }
                Part::Places(of) => {
                    let counts = |i: usize| of.counts[i];
                    self.report.places(of.prefix, of.columns, of.sites, counts);
                }
            }
        }
        self.report
    }
}

/// # Safety
/// The texts are strings of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn MakeReport(tool: *const c_char, program: *const c_char) -> *mut Report {
    // SAFETY: the caller's promise.
    let [tool, program] = [tool, program].map(|text| unsafe { kept(text) });
    Box::into_raw(Box::new(Report {
        report: atom_tool::Report::new(tool, program),
        facts: Vec::new(),
        parts: Vec::new(),
    }))
}

/// A report of C.
///
/// # Safety
/// NULL, or a report that was not written.
unsafe fn report<'a>(at: *mut Report, function: &str) -> &'a mut Report {
    // SAFETY: the caller's promise.
    match unsafe { at.as_mut() } {
        Some(report) => report,
        None => fail(function, "the report is NULL"),
    }
}

/// A table of C.
///
/// # Safety
/// NULL, or a table of a report that was not written.
unsafe fn table<'a>(at: *mut Table, function: &str) -> &'a mut Table {
    // SAFETY: the caller's promise.
    match unsafe { at.as_mut() } {
        Some(table) => table,
        None => fail(function, "the table is NULL"),
    }
}

/// What a parameter `FILES` is.
///
/// # Safety
/// It is an argument of that type.
unsafe fn files(at: *const c_void, function: &str) -> Files {
    if at.is_null() {
        fail(function, "the files are NULL");
    }
    // SAFETY: the caller's promise: the type is transparent over a pointer.
    unsafe { std::mem::transmute(at) }
}

/// # Safety
/// A report that was not written, and an argument of type `FILES`.
#[unsafe(no_mangle)]
unsafe extern "C" fn WriteReport(at: *mut Report, to: *const c_void) {
    const NAME: &str = "WriteReport";
    // SAFETY: the caller's promise.
    unsafe {
        let to = files(to, NAME);
        report(at, NAME);
        Box::from_raw(at).complete().write(to);
    }
}

/// # Safety
/// As for [`WriteReport`]; the text is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn WriteReportText(at: *mut Report, to: *const c_void, text: *const c_char) {
    const NAME: &str = "WriteReportText";
    // SAFETY: the caller's promise.
    unsafe {
        let (to, text) = (files(to, NAME), bytes(text));
        report(at, NAME);
        let report = Box::from_raw(at).complete();
        report.write_with(to, |file| Write::write_all(file, text));
    }
}

/// # Safety
/// An argument of type `FILES`.
#[unsafe(no_mangle)]
unsafe extern "C" fn FilesHaveProfile(of: *const c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { files(of, "FilesHaveProfile").has_profile().into() }
}

/// # Safety
/// An argument of type `FILES`.
#[unsafe(no_mangle)]
unsafe extern "C" fn FilesHaveJSON(of: *const c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { files(of, "FilesHaveJSON").has_json().into() }
}

/// # Safety
/// An argument of type `FILES`.
#[unsafe(no_mangle)]
unsafe extern "C" fn FilesRows(of: *const c_void) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { files(of, "FilesRows").rows() as c_long }
}

/// Adds a fact whose value is of one of some types.
///
/// # Safety
/// As for [`report`] and [`Column::read`].
unsafe fn fact(at: *mut Report, column: &CColumn, value: Cell, fits: &[Kind], function: &str) {
    // SAFETY: the caller's promise.
    let (report, column) = unsafe { (report(at, function), Column::read(column, function)) };
    if !fits.contains(&column.kind) {
        let name = column.name;
        let kind = column.kind;
        fail(
            function,
            format!("the fact `{name}` has the type {kind:?}, which takes another value"),
        );
    }
    report.add_fact(&column, value);
}

/// # Safety
/// A report that was not written; the column's texts are NULL or strings of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddFact(at: *mut Report, column: CColumn, value: u64) {
    let (value, fits) = if column.is_address() {
        (Cell::Address(value), Kind::Address)
    } else {
        (Cell::Number(value), Kind::Count)
    };
    // SAFETY: the caller's promise.
    unsafe { fact(at, &column, value, &[fits, Kind::Bytes], "AddFact") }
}

/// # Safety
/// As for [`AddFact`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddRatioFact(at: *mut Report, column: CColumn, value: f64) {
    let fits = [Kind::Ratio, Kind::Seconds];
    let value = table::ratio(value);
    // SAFETY: the caller's promise.
    unsafe { fact(at, &column, value, &fits, "AddRatioFact") }
}

/// # Safety
/// As for [`AddFact`]; the value is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddTextFact(at: *mut Report, column: CColumn, value: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe {
        let value = Cell::from(kept(value));
        fact(at, &column, value, &[Kind::Text], "AddTextFact");
    }
}

/// # Safety
/// As for [`AddFact`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddComputedFact(at: *mut Report, column: CColumn) {
    const NAME: &str = "AddComputedFact";
    // SAFETY: the caller's promise.
    let (report, column) = unsafe { (report(at, NAME), Column::read(&column, NAME)) };
    let name = column.name;
    if !column.kind.is_computed() || column.scope == Scope::Rows {
        fail(NAME, format!("the fact `{name}` is not one of two facts"));
    }
    let of = |fact: &str| match report.fact_named(fact) {
        Some(value) => value.clone(),
        None => fail(NAME, format!("for `{name}` there is no fact `{fact}` yet")),
    };
    let value = quotient(column.kind, &of(column.part), &of(column.whole));
    report.add_fact(&column, value);
}

/// # Safety
/// A report that was not written; the title is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddTable(at: *mut Report, by: c_int, title: *const c_char) -> *mut Table {
    const NAME: &str = "AddTable";
    // SAFETY: the caller's promise.
    let (report, title) = unsafe { (report(at, NAME), kept(title)) };
    let Some(by) = table::by(by) else {
        fail(NAME, format!("the table `{title}` is by nothing known"));
    };
    let table = Box::into_raw(Box::new(Table::new(title, by)));
    report.parts.push(Part::Table(table));
    table
}

/// # Safety
/// A table of a report that was not written; the column's texts are NULL or strings of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddColumn(at: *mut Table, column: CColumn) {
    const NAME: &str = "AddColumn";
    // SAFETY: the caller's promise.
    unsafe { table(at, NAME).add_column(Column::read(&column, NAME)) }
}

/// # Safety
/// A table of a report that was not written.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddRow(at: *mut Table) {
    // SAFETY: the caller's promise.
    unsafe { table(at, "AddRow").add_row() }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddNumber(at: *mut Table, number: u64) {
    const NAME: &str = "AddNumber";
    let fits = [Kind::Count, Kind::Bytes];
    // SAFETY: the caller's promise.
    unsafe { table(at, NAME).add_cell(Cell::Number(number), &fits, NAME) }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddRatio(at: *mut Table, ratio: f64) {
    const NAME: &str = "AddRatio";
    let fits = [Kind::Ratio, Kind::Seconds];
    // SAFETY: the caller's promise.
    unsafe { table(at, NAME).add_cell(table::ratio(ratio), &fits, NAME) }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddAddress(at: *mut Table, pc: u64) {
    const NAME: &str = "AddAddress";
    // SAFETY: the caller's promise.
    unsafe { table(at, NAME).add_cell(Cell::Address(pc), &[Kind::Address], NAME) }
}

/// # Safety
/// As for [`AddRow`]; the site is from a list.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddPlace(at: *mut Table, site: *const sites::CSite) {
    const NAME: &str = "AddPlace";
    // SAFETY: the caller's promise.
    unsafe {
        let Some(site) = site.as_ref() else {
            fail(NAME, "the site is NULL");
        };
        table(at, NAME).add_cell(site.site().place(), &[Kind::Place], NAME);
    }
}

/// # Safety
/// As for [`AddRow`]; the text is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddText(at: *mut Table, text: *const c_char) {
    const NAME: &str = "AddText";
    // SAFETY: the caller's promise.
    unsafe {
        if text.is_null() {
            fail(NAME, "the text is NULL");
        }
        let text = CStr::from_ptr(text).to_string_lossy().into_owned();
        table(at, NAME).add_cell(text.into(), &[Kind::Text], NAME);
    }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn AddNoValue(at: *mut Table) {
    // SAFETY: the caller's promise.
    unsafe { table(at, "AddNoValue").add_cell(Cell::Empty, &[], "AddNoValue") }
}

/// # Safety
/// As for [`AddRow`]; the name is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn SortTable(at: *mut Table, column: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { table(at, "SortTable").sort_by(kept(column)) }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn SetReaders(at: *mut Table, readers: c_int) {
    const NAME: &str = "SetReaders";
    let readers = match readers {
        0 => Readers::All,
        1 => Readers::People,
        2 => Readers::Programs,
        _ => fail(NAME, format!("there are no readers {readers}")),
    };
    // SAFETY: the caller's promise.
    unsafe { table(at, NAME).readers = readers }
}

/// # Safety
/// As for [`AddRow`].
#[unsafe(no_mangle)]
unsafe extern "C" fn LeaveOutRows(at: *mut Table, rows: c_long) {
    // SAFETY: the caller's promise.
    unsafe { table(at, "LeaveOutRows").left_out = usize::try_from(rows).unwrap_or(0) }
}

/// # Safety
/// A report that was not written; the texts are strings of C, `sites` is an argument of type `SITES`, and `counts` has two numbers
/// for each site.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddPlaceTables(
    at: *mut Report,
    prefix: *const c_char,
    all: *const c_char,
    some: *const c_char,
    ratio: *const c_char,
    of: *const c_void,
    counts: *const [u64; 2],
) {
    const NAME: &str = "AddPlaceTables";
    // SAFETY: the caller's promise.
    unsafe {
        let columns = [all, some, ratio].map(|name| kept(name));
        let sites = sites::sites(of, NAME);
        if counts.is_null() && !sites.is_empty() {
            fail(NAME, "the counts are NULL");
        }
        let counts = (0..sites.len()).map(|i| counts.add(i).read()).collect();
        report(at, NAME).parts.push(Part::Places(Places {
            prefix: kept(prefix),
            columns,
            sites,
            counts,
        }));
    }
}
