//! What grew more than the user wants: `--fail-above`.
//!
//! Facts and measures are costs, with one exception: sizes of sets, such as the executed lines, and shares of them.
//! There more is better.

use profile::{Fact, Follows, Profile};

use super::super::grid::{Cell, Grid};
use output::message::say;

/// Number of lines that tell what grew.
const MOST_LINES: usize = 5;

/// What grew.
pub struct Growth {
    /// Growth in per cent that is too much.
    above: f64,
    /// Share of the whole in per cent below which a row's growth does not matter.
    floor: f64,
    found: Vec<String>,
}

impl Growth {
    /// Nothing yet.
    pub fn new(above: f64, floor: f64) -> Self {
        Self {
            above,
            floor,
            found: Vec::new(),
        }
    }

    /// True if something grew too much.
    pub fn is_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Tells on the error output what grew.
    pub fn tell(&self) {
        for line in self.found.iter().take(MOST_LINES) {
            say(&format!("grew more than {} %: {line}", self.above));
        }
        if let more @ 1.. = self.found.len().saturating_sub(MOST_LINES) {
            say(&format!("and {more} more"));
        }
    }

    /// Notes facts that grew.
    pub fn note_facts(&mut self, profile: &Profile, grid: &Grid) {
        for row in &grid.rows {
            let name = row[4].plain(profile);
            let is_cost = profile
                .fact(&name)
                .is_some_and(|fact| !is_of_set(profile, fact));
            if is_cost && self.is_too_much(row) {
                self.note(grid, row);
            }
        }
    }

    /// Notes rows that grew; `whole` is the sum of the measure before.
    pub fn note_rows(&mut self, grid: &Grid, whole: f64) {
        let least = whole * self.floor / 100.0;
        for row in &grid.rows {
            if row[2].number().is_some_and(|change| change >= least) && self.is_too_much(row) {
                self.note(grid, row);
            }
        }
    }

    /// True if a row grew too much, or was not there before.
    fn is_too_much(&self, row: &[Cell]) -> bool {
        match (row[2].number(), row[3].number()) {
            (_, Some(percent)) => percent > self.above,
            (Some(change), None) => change > 0.0,
            _ => false,
        }
    }

    fn note(&mut self, grid: &Grid, row: &[Cell]) {
        let names = row[4..].iter().map(|cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Place(file, line, _) if *line != 0 => format!("{file}:{line}"),
            _ => String::new(),
        });
        let names: Vec<String> = names.filter(|n| !n.is_empty()).collect();
        let number = |cell: &Cell| match cell.number() {
            Some(x) if x.fract() == 0.0 => tables::grouped_decimal(x, 0),
            Some(x) => tables::grouped_decimal(x, 2),
            None => "nothing".to_owned(),
        };
        let percent = match row[3].number() {
            Some(percent) => format!(", +{percent:.2} %"),
            None => String::new(),
        };
        self.found.push(format!(
            "{}: {}: {} -> {}{percent}",
            grid.name,
            names.join(" "),
            number(&row[0]),
            number(&row[1])
        ));
    }
}

/// True if a fact is the size of a set, or a share of one.
fn is_of_set(profile: &Profile, fact: &Fact) -> bool {
    let is_size = |fact: &Fact| {
        fact.from
            .as_ref()
            .is_some_and(|from| from.by == Follows::Rows)
    };
    let part = fact.part.as_deref().and_then(|part| profile.fact(part));
    is_size(fact) || part.is_some_and(is_size)
}
