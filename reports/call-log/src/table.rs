//! The report as a table, laid out as the first figure of the exercise shows it, as CSV and as JSON.

use std::borrow::Cow;
use std::fmt::Write;

use tables::{csv_field, grouped, grouped_decimal};

use crate::Result;
use crate::account::{Account, Figures};
use crate::indat::{Listed, Wanted};
use crate::reader::Log;

/// A line of a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The procedure's number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its figures; `None` if it is excluded.
    pub figures: Option<Figures>,
}

/// A report.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The heading.
    pub heading: String,
    /// The procedures.
    pub lines: Vec<Line>,
    /// Ticks per second.
    pub ticks_per_second: f64,
    /// Number of threads in the log.
    pub threads: usize,
    /// Warnings for the reader: the program was killed, events are missing.
    pub notes: Vec<String>,
}

impl Report {
    /// Makes a wanted report.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn make(wanted: &Wanted) -> Result<Self> {
        let mut log = Log::open(&wanted.data)?;
        Self::of(&mut log, &wanted.heading, &wanted.procs)
    }

    /// Makes a report on all procedures that occur in a log, sorted by time, longest first.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn of_all(log: &mut Log, heading: &str) -> Result<Self> {
        let account = Account::of(log, |_| true)?;
        let mut listed: Vec<Listed> = account
            .procedures()
            .into_iter()
            .map(|number| Listed {
                number,
                name: log
                    .procedure(number)
                    .map_or_else(|| format!("procedure {number}"), |p| p.name.clone()),
                is_included: true,
            })
            .collect();
        listed.sort_by_key(|p| std::cmp::Reverse(account.figures(p.number).own));
        Self::from(log, &account, heading, &listed)
    }

    /// Makes a report on the listed procedures.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn of(log: &mut Log, heading: &str, listed: &[Listed]) -> Result<Self> {
        let mut included: Vec<u32> = listed
            .iter()
            .filter(|p| p.is_included)
            .map(|p| p.number)
            .collect();
        included.sort_unstable();
        let account = Account::of(log, |proc| included.binary_search(&proc).is_ok())?;
        Self::from(log, &account, heading, listed)
    }

    fn from<F: FnMut(u32) -> bool>(
        log: &Log,
        account: &Account<F>,
        heading: &str,
        listed: &[Listed],
    ) -> Result<Self> {
        let mut notes = Vec::new();
        if !log.is_ended() {
            notes.push(
                "the program was killed: what is open ends with its thread's last event".into(),
            );
        }
        let tail = log.tail().copied().unwrap_or_default();
        if tail.lost != 0 {
            notes.push(format!(
                "{} entries or exits are missing in the log",
                tail.lost
            ));
        }
        Ok(Self {
            heading: heading.to_owned(),
            lines: listed
                .iter()
                .map(|p| Line {
                    number: p.number,
                    name: p.name.clone(),
                    figures: p.is_included.then(|| account.figures(p.number)),
                })
                .collect(),
            ticks_per_second: log.ticks_per_second()?,
            threads: account.threads(),
            notes,
        })
    }

    /// Number of calls of all included procedures.
    pub fn calls(&self) -> u64 {
        self.figures().map(|f| f.calls).sum()
    }

    /// Ticks of all included procedures.
    pub fn ticks(&self) -> u64 {
        self.figures().fold(0, |sum, f| sum.saturating_add(f.own))
    }

    /// Ticks as milliseconds.
    pub fn millis(&self, ticks: u64) -> f64 {
        ticks as f64 * 1000.0 / self.ticks_per_second
    }

    fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.lines.iter().filter_map(|line| line.figures.as_ref())
    }

    /// The report as a table. A line takes at most `width` columns, if names can be shortened that far; in
    /// full without a width.
    pub fn text(&self, width: Option<usize>) -> String {
        let names: Vec<&str> = self.lines.iter().map(|l| &*l.name).collect();
        let names = fitted(&names, width.map(|w| w.saturating_sub(FIGURES)));
        let width = width_of(&names);
        let mut text = String::from("-----\n");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}\n", self.heading);
        let _ = writeln!(
            text,
            "{:width$}  {:^19}          Execution Time (ms.)",
            "Procedure Name", "Calls"
        );
        let _ = writeln!(
            text,
            "{:width$}  {:>10}  {:>7}  {:>13}  {:>12}  {:>7}",
            "", "Total", "Pct.", "Total", "Avg./Call", "Pct."
        );
        let (calls, ticks) = (self.calls(), self.ticks());
        for (line, name) in self.lines.iter().zip(names) {
            let Some(f) = line.figures else {
                let _ = writeln!(text, "{name}");
                continue;
            };
            let _ = writeln!(
                text,
                "{name:width$}  {:>10}  {:>7}  {:>13}  {:>12}  {:>7}",
                grouped(f.calls),
                percent(f.calls, calls),
                grouped_decimal(self.millis(f.own), 3),
                grouped_decimal(self.millis(f.own) / f.calls.max(1) as f64, 3),
                percent(f.own, ticks),
            );
        }
        let total = self.millis(ticks);
        let _ = writeln!(
            text,
            "\nTotal running time in milliseconds: {}",
            grouped_decimal(total, 3)
        );
        for note in &self.notes {
            let _ = writeln!(text, "Note: {note}.");
        }
        text
    }

    /// The report as comma-separated values, quoted where needed, with a line of names.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "heading,number,procedure,included,calls,calls_percent,time_ms,average_ms,time_percent,inclusive_ms,left\n",
        );
        let (calls, ticks) = (self.calls(), self.ticks());
        for line in &self.lines {
            let (heading, name) = (csv_field(&self.heading), csv_field(&line.name));
            let _ = write!(text, "{heading},{},{name}", line.number);
            let _ = match line.figures {
                None => writeln!(text, ",0,,,,,,,"),
                Some(f) => writeln!(
                    text,
                    ",1,{},{:.4},{:.6},{:.6},{:.4},{:.6},{}",
                    f.calls,
                    share(f.calls, calls),
                    self.millis(f.own),
                    self.millis(f.own) / f.calls.max(1) as f64,
                    share(f.own, ticks),
                    self.millis(f.inclusive),
                    f.left,
                ),
            };
        }
        text
    }

    /// The report as JSON.
    pub fn json(&self) -> serde_json::Value {
        let (calls, ticks) = (self.calls(), self.ticks());
        let lines: Vec<_> = self
            .lines
            .iter()
            .map(|line| match line.figures {
                None => serde_json::json!({
                    "number": line.number, "procedure": line.name, "included": false,
                }),
                Some(f) => serde_json::json!({
                    "number": line.number, "procedure": line.name, "included": true,
                    "calls": f.calls, "calls_percent": share(f.calls, calls),
                    "time_ms": self.millis(f.own),
                    "average_ms": self.millis(f.own) / f.calls.max(1) as f64,
                    "time_percent": share(f.own, ticks),
                    "inclusive_ms": self.millis(f.inclusive),
                    "left": f.left,
                }),
            })
            .collect();
        serde_json::json!({
            "heading": self.heading,
            "calls": calls,
            "time_ms": self.millis(ticks),
            "threads": self.threads,
            "procedures": lines,
            "notes": self.notes,
        })
    }
}

/// A share of a whole in percent; 0 if the whole is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 * 100.0 / whole as f64,
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", share(part, whole))
}

/// Columns of a line after the name.
const FIGURES: usize = 59;

/// The column of names has at least this width: its title.
const NAME_WIDTH: usize = 14;

/// Names for one column, in at most `width` columns or little more, so that those that differ stay different.
pub(crate) fn fitted<'a>(names: &[&'a str], width: Option<usize>) -> Vec<Cow<'a, str>> {
    let width = width.map_or(usize::MAX, |width| width.max(NAME_WIDTH));
    tables::shorten_all(names, width)
}

/// The width of a column with these names.
pub(crate) fn width_of(names: &[Cow<'_, str>]) -> usize {
    let widest = names.iter().map(|name| tables::columns(name)).max();
    widest.unwrap_or(0).max(NAME_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second report of the exercise has these figures.
    #[test]
    fn the_layout() {
        let figures = |calls, own| {
            Some(Figures {
                calls,
                own,
                inclusive: own,
                left: 0,
            })
        };
        let line = |number, name: &str, figures| Line {
            number,
            name: name.into(),
            figures,
        };
        let report = Report {
            heading: "This is a sample run with two procedures profiled.".into(),
            lines: vec![
                line(0, "Main", figures(1, 0)),
                line(1, "A", None),
                line(2, "B1", figures(600, 4_120_000)),
            ],
            ticks_per_second: 1e6,
            threads: 1,
            notes: vec![],
        };
        let want = "\
-----
This is a sample run with two procedures profiled.

Procedure Name         Calls                 Execution Time (ms.)
                     Total     Pct.          Total     Avg./Call     Pct.
Main                     1    0.17%          0.000         0.000    0.00%
A
B1                     600   99.83%      4,120.000         6.867  100.00%

Total running time in milliseconds: 4,120.000
";
        assert_eq!(report.text(Some(80)), want);
        assert!(
            report
                .csv()
                .contains(",2,B1,1,600,99.8336,4120.000000,6.866667,100.0000,")
        );
        assert_eq!(report.json()["procedures"][2]["calls"], 600);
    }
}
