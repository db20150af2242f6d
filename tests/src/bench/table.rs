//! The tables that are printed, and their place in the documentation.

use std::path::Path;
use std::process::Command;

use super::{Cell, Column, Row};
use crate::error::{Error, Result};

/// The middle value; the mean of the two in the middle if there are two.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|x| x.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

/// `1.234 (1.20-1.30)`: a value, and the range of others around it.
fn with_range(middle: f64, all: &[f64]) -> String {
    let low = all.iter().copied().fold(f64::MAX, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    format!("{middle:.3} ({low:.2}-{high:.2})")
}

fn ratio(cell: &Cell) -> String {
    median(&cell.ratios).map_or("-".into(), |middle| with_range(middle, &cell.ratios))
}

/// The geometric mean of the medians, and the range of the means of single turns.
fn mean(rows: &[Row], column: usize) -> String {
    let cells: Vec<&Cell> = rows.iter().map(|row| &row.cells[column]).collect();
    let medians: Vec<f64> = cells.iter().filter_map(|c| median(&c.ratios)).collect();
    let turns = cells.iter().map(|c| c.ratios.len()).min().unwrap_or(0);
    let means: Vec<f64> = (0..turns)
        .filter_map(|turn| {
            geometric_mean(&cells.iter().map(|c| c.ratios[turn]).collect::<Vec<_>>())
        })
        .collect();
    match geometric_mean(&medians) {
        Some(mean) if medians.len() == rows.len() => with_range(mean, &means),
        _ => "-".into(),
    }
}

/// Two tables: run time; time of instrumenting with the growth of the text.
pub fn tables(rows: &[Row], columns: &[Column]) -> String {
    let mut text = heading("| program | MB | user s |", columns.iter());
    for row in rows {
        let seconds = median(&row.seconds).unwrap_or(0.0);
        text += &format!(
            "| {} | {:.1} | {seconds:.2} |",
            row.name,
            row.bytes as f64 / 1e6
        );
        for cell in &row.cells {
            text += &format!(" {} |", ratio(cell));
        }
        text += "\n";
    }
    text += "| geometric mean | | |";
    for column in 0..columns.len() {
        text += &format!(" {} |", mean(rows, column));
    }
    text += "\n\n";

    let ours: Vec<usize> = (0..columns.len())
        .filter(|i| columns[*i].is_ours())
        .collect();
    text += &heading(
        "| instrumented in s, growth of text |",
        ours.iter().map(|i| &columns[*i]),
    );
    for row in rows {
        text += &format!("| {} |", row.name);
        for cell in ours.iter().map(|i| &row.cells[*i]) {
            let seconds = cell.seconds.map_or("-".into(), |s| format!("{s:.2}"));
            let growth = cell.growth.map_or("-".into(), |g| format!("{g:.2}"));
            text += &format!(" {seconds}, {growth} |");
        }
        text += "\n";
    }
    text
}

fn heading<'a>(start: &str, columns: impl Iterator<Item = &'a Column>) -> String {
    let names: Vec<String> = columns.map(Column::name).collect();
    let rules = " --- |".repeat(start.matches('|').count() - 1 + names.len());
    let mut text = start.to_string();
    for name in names {
        text += &format!(" {name} |");
    }
    format!("{text}\n|{rules}\n")
}

/// The place of a record in the page on performance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Programs whose user time is spent in their own text.
    Static,
    /// Dynamic programs with all that they load.
    Whole,
    /// Such programs with all tools, and what others have for the same.
    Tools,
    /// Programs of Go.
    Go,
}

impl Part {
    /// The lines around the record.
    fn markers(self) -> (String, String) {
        let name = match self {
            Self::Static => "run time",
            Self::Whole => "run time, whole processes",
            Self::Tools => "run time, all tools",
            Self::Go => "run time, Go",
        };
        let line = |start: &str| format!("<!-- {start}: {name} -->");
        (line("figures") + "\n", line("end of figures"))
    }
}

/// Puts the tables into the page on performance, with date, commit and command. The previous tables
/// become the last of the older records in the lab notes.
pub fn record(part: Part, tables: &str, command: &str) -> Result<()> {
    let date = output_of("date", &["-u", "+%F"]);
    let commit = output_of("git", &["rev-parse", "--short", "HEAD"]);
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let newest = format!(
        "### {date}, commit {commit}\n\n`{command}`, {processors} processors\n\n{tables}\n"
    );
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let (page, notes) = (docs.join("performance.md"), docs.join("lab-notes.md"));
    let fail = |path: &Path, reason: String| Error::new("recording the figures", reason).file(path);
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| fail(path, e.to_string()));
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|e| fail(path, e.to_string()))
    };
    let (text, older) =
        replace_newest(part, &read(&page)?, &newest).map_err(|reason| fail(&page, reason))?;
    let kept = append_older(&read(&notes)?, &older).map_err(|reason| fail(&notes, reason))?;
    write(&notes, kept)?;
    write(&page, text)
}

/// Standard output of a command that runs in this crate's folder, trimmed; empty if it fails.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    output.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).trim().to_string()
    })
}

/// The page with another record between its markers, and the previous record.
fn replace_newest(
    part: Part,
    page: &str,
    newest: &str,
) -> std::result::Result<(String, String), String> {
    let (start, end) = part.markers();
    let (before, rest) = page
        .split_once(&start)
        .ok_or(format!("no line {start:?}"))?;
    let (older, after) = rest.split_once(&end).ok_or(format!("no line {end:?}"))?;
    let text = format!("{before}{start}\n{newest}{end}{after}");
    Ok((text, older.trim_start().to_string()))
}

/// The lab notes with one more of the older records.
fn append_older(notes: &str, older: &str) -> std::result::Result<String, String> {
    const END: &str = "<!-- end of older figures: run time -->";
    let (before, after) = notes.split_once(END).ok_or(format!("no line {END:?}"))?;
    Ok(format!("{before}{older}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_ranges() {
        let cell = |ratios: &[f64]| Cell {
            ratios: ratios.to_vec(),
            seconds: Some(0.5),
            growth: Some(2.0),
        };
        let row = |name, ratios: &[f64]| Row {
            name,
            bytes: 1_500_000,
            seconds: vec![1.0, 3.0],
            cells: vec![cell(ratios), Cell::default()],
        };
        let rows = [row("a", &[1.0, 4.0, 2.0]), row("b", &[8.0, 8.0, 8.0])];
        let columns = [Column::Empty, Column::ProfileArcs];
        let text = tables(&rows, &columns);
        assert!(
            text.contains("| a | 1.5 | 2.00 | 2.000 (1.00-4.00) | - |"),
            "{text}"
        );
        // Means of the turns: sqrt(8), sqrt(32), sqrt(16).
        assert!(
            text.contains("| geometric mean | | | 4.000 (2.83-5.66) | - |"),
            "{text}"
        );
        assert!(text.contains("| b | 0.50, 2.00 |\n"), "{text}");
        assert!(text.contains("| program | MB | user s | empty | gcc -fprofile-arcs |\n| --- | --- | --- | --- | --- |\n"));
    }
    /// The present pages take a record, and lose nothing of their contents.
    #[test]
    fn a_record_replaces_the_newest() {
        let page = include_str!("../../../docs/performance.md");
        let notes = include_str!("../../../docs/lab-notes.md");
        let part = Part::Static;
        let (text, older) = replace_newest(part, page, "### today\n\nfigures\n\n").unwrap();
        assert!(
            older.starts_with("### ") && older.ends_with("|\n\n"),
            "{older:?}"
        );
        assert!(
            text.contains("-->\n\n### today\n\nfigures\n\n<!-- end"),
            "{text}"
        );
        let kept = append_older(notes, &older).unwrap();
        assert!(kept.contains(&format!("|\n\n{older}<!-- end")), "{kept}");
        assert_eq!(kept.len(), notes.len() + older.len());
        let (back, newest) = replace_newest(part, &text, &older).unwrap();
        assert_eq!(
            (back.as_str(), newest.as_str()),
            (page, "### today\n\nfigures\n\n")
        );
    }
}
