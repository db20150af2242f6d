//! Sections and contexts as tables of text.

use std::io::{Result, Write};
use std::path::Path;

use ::arp::analyse::{Analysis, Figures};
use ::arp::{Format, SectionKind, Unrecorded};

use super::numbers::{NONE, float, number, percent};
use super::rows::{count, walk};
use super::table::Table;
use super::{View, names};
use output::message;

/// Depth at which indentation stops growing.
const DEEPEST: u32 = 60;

/// Writes a heading, and a table for each set.
pub fn write(
    out: &mut dyn Write,
    file: &Path,
    analysis: &Analysis,
    args: &View,
    sets: &[usize],
) -> Result<()> {
    heading(out, file, analysis)?;
    for &set in sets {
        writeln!(out)?;
        writeln!(out, "{}", names::of_set(analysis.sets(), set))?;
        if analysis.records() == 0 {
            writeln!(out, "No records.")?;
        } else if args.tree {
            tree(out, analysis, args, set)?;
        } else {
            sections(out, analysis, args, set)?;
        }
    }
    Ok(())
}

/// Writes what is known of the file: mode, format, number of records and threads, notes.
pub fn heading(out: &mut dyn Write, file: &Path, analysis: &Analysis) -> Result<()> {
    let format = match analysis.format() {
        Format::Ascii => "ASCII",
        Format::Binary => "binary",
    };
    let gzip = if analysis.is_gzip() { ", gzip" } else { "" };
    let records = message::count(analysis.records() as usize, "record");
    let threads = analysis.threads().keys().flatten().count();
    let threads = match threads {
        0 => String::new(),
        n => format!(", {}", message::count(n, "thread")),
    };
    let file = names::clean(&file.display().to_string());
    let mode = analysis.mode();
    writeln!(out, "{file}: {mode}, {format}{gzip}, {records}{threads}")?;
    for (key, value) in analysis.info() {
        if !Unrecorded::is_note(key) {
            writeln!(out, "{}: {}", names::clean(key), names::clean(value))?;
        }
    }
    left_out(out, analysis)
}

/// Writes how often sections were entered without being recorded: one line for each section that is
/// measured, one line for all plain sections together.
fn left_out(out: &mut dyn Write, analysis: &Analysis) -> Result<()> {
    let (mut plain, mut times) = (0, 0);
    for (sid, left_out) in analysis.unrecorded() {
        let section = analysis.section(sid);
        let (folded, nested) = (left_out.folded, left_out.nested);
        if section.is_some_and(|s| s.kind == SectionKind::Plain) {
            (plain, times) = (plain + 1, times + folded);
            continue;
        }
        let name = names::of_section(section, sid);
        for (n, how) in [
            (
                folded,
                "while it was open, which is a part of the outer execution",
            ),
            (nested, "within another kernel"),
        ] {
            if n > 0 {
                let many = message::count(n as usize, "time");
                writeln!(out, "not recorded: {name} ({sid}) was entered {many} {how}")?;
            }
        }
    }
    if plain > 0 {
        let many = message::count(times as usize, "time");
        let sections = message::count(plain, "plain section");
        writeln!(
            out,
            "not recorded: {sections} entered {many} while they were open, by recursion"
        )?;
    }
    Ok(())
}

/// The cells for total, part of the whole in percent, and self.
fn sums(figures: &Figures, whole: f64) -> Vec<String> {
    vec![
        number(figures.total),
        percent(figures.total.as_f64(), whole),
        number(figures.self_value),
    ]
}

fn range(figures: &Figures) -> (String, String) {
    match figures.range() {
        Some((min, max)) => (number(min), number(max)),
        None => (NONE.into(), NONE.into()),
    }
}

fn sections(out: &mut dyn Write, analysis: &Analysis, args: &View, set: usize) -> Result<()> {
    let mut rows = analysis.sections();
    args.sort.sort(analysis, &mut rows, set);
    let heads = ["TOTAL", "%", "SELF", "COUNT", "MEAN", "MIN"].map(String::from);
    let quantiles = args.quantiles.iter().map(|q| quantile_name(*q));
    let rest = ["MAX", "ID", "KIND", "SECTION", "SOURCE"].map(String::from);
    let mut table = Table::new(heads.into_iter().chain(quantiles).chain(rest), 3);
    let whole = analysis.total(set);
    let limit = args.limit.unwrap_or(usize::MAX);
    for row in rows.iter().take(limit) {
        let figures = &row.figures[set];
        let mut cells = sums(figures, whole.as_f64());
        cells.push(count(row.count));
        cells.push(figures.mean().map_or(NONE.into(), float));
        let (min, max) = range(figures);
        cells.push(min);
        for q in &args.quantiles {
            cells.push(row.quantile(set, *q).map_or(NONE.into(), float));
        }
        cells.push(max);
        let section = analysis.section(row.sid);
        cells.push(row.sid.to_string());
        cells.push(names::kind(section).unwrap_or_default());
        cells.push(names::of_section(section, row.sid));
        cells.push(names::source(section));
        table.row(cells);
    }
    table.write(out)?;
    end(out, rows.len(), limit, "section")?;
    writeln!(out, "All: {}", number(whole))
}

/// Name of a quantile, such as `P50` for 0.5.
pub fn quantile_name(q: f64) -> String {
    // A product such as 28.999999999999996 is meant to be 29.
    let percent = format!("{:.6}", q * 100.0);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    format!("P{percent}")
}

fn tree(out: &mut dyn Write, analysis: &Analysis, args: &View, set: usize) -> Result<()> {
    let heads = ["TOTAL", "%", "SELF", "COUNT", "MEAN", "MIN", "MAX"];
    let mut table = Table::new(heads.into_iter().chain(["SECTION", "SOURCE"]), 2);
    let whole = analysis.total(set);
    let children = args.sort.children(analysis, set);
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut shown = 0;
    walk(&children, |index| {
        shown += 1;
        let context = &analysis.contexts()[index];
        if shown <= limit {
            let figures = analysis.figures(index, set);
            let mut cells = sums(&figures, whole.as_f64());
            cells.push(count(analysis.count(index)));
            cells.push(figures.mean().map_or(NONE.into(), float));
            let (min, max) = range(&figures);
            cells.extend([min, max]);
            let indent = "  ".repeat(context.depth.min(DEEPEST) as usize);
            let deeper = if context.depth > DEEPEST {
                format!("({}) ", context.depth)
            } else {
                String::new()
            };
            let name = names::of_context(analysis, context.label);
            cells.push(format!("{indent}{deeper}{name}"));
            let section = context.label.sid().and_then(|sid| analysis.section(sid));
            cells.push(names::source(section));
            table.row(cells);
        }
        args.depth.is_none_or(|most| context.depth + 1 < most)
    });
    table.write(out)?;
    end(out, shown, limit, "context")?;
    writeln!(out, "All: {}", number(whole))
}

/// Writes how many rows are not shown.
pub fn end(out: &mut dyn Write, all: usize, limit: usize, noun: &str) -> Result<()> {
    if all > limit {
        writeln!(out, "... and {} more", message::count(all - limit, noun))?;
    }
    Ok(())
}
