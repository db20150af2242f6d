//! Annotated procedures as text, in colours where the reader is a terminal.

use std::fmt::Write;

use profile::Profile;

use super::code::{Annotated, Inst};
use super::counts::{CodeCounts, Measure};
use super::source::{File, Sources};
use output::message::number;

/// Shares of the procedure from which a line counts as hot and as warm, in per cent.
const HOT: f64 = 10.0;
const WARM: f64 = 1.0;

/// How the text is made.
pub struct Style {
    /// True for colours.
    pub is_coloured: bool,
    /// True if the instructions' bytes are shown.
    pub has_bytes: bool,
}

/// The colours of a text.
#[derive(Clone, Copy)]
enum Colour {
    Hot,
    Warm,
    Dim,
    Heading,
    Plain,
}

impl Style {
    /// Puts the codes of a colour around a text.
    fn paint(&self, colour: Colour, text: &str) -> String {
        let code = match colour {
            _ if !self.is_coloured => return text.to_owned(),
            Colour::Hot => "1;31",
            Colour::Warm => "33",
            Colour::Dim => "2",
            Colour::Heading => "1",
            Colour::Plain => return text.to_owned(),
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One procedure's text in the making.
struct Text<'a> {
    style: &'a Style,
    measures: &'a [Measure],
    sums: Vec<u64>,
    widths: Vec<usize>,
    out: String,
}

/// The text of a procedure: its source, then its instructions.
pub fn procedure(
    profile: &Profile,
    counts: &CodeCounts,
    annotated: &Annotated,
    sources: &mut Sources,
    style: &Style,
) -> String {
    let files = sources.of(annotated, counts.measures.len());
    let sums = annotated.sums(counts.measures.len());
    let largest = |i: usize| {
        let lines = files.iter().flat_map(|f| &f.lines);
        let values = lines.filter_map(|line| line.values.as_ref()?.get(i));
        values.copied().max().unwrap_or(0)
    };
    let widths = counts.measures.iter().enumerate().map(|(i, m)| {
        let insts = annotated.insts.iter().map(|inst| inst.values[i]).max();
        let largest = largest(i).max(insts.unwrap_or(0));
        number(largest).len().max(m.name.chars().count()) + 2
    });
    let mut text = Text {
        style,
        measures: &counts.measures,
        sums,
        widths: widths.collect(),
        out: String::new(),
    };
    let object = profile.objects.get(annotated.object);
    let object = object.map_or("", |object| &object.name);
    text.head(annotated, object);
    for file in files.iter().filter(|file| file.is_found) {
        text.source(file);
    }
    text.instructions(annotated, sources);
    text.out
}

impl Text<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn heading(&mut self, text: &str) {
        let text = self.style.paint(Colour::Heading, text);
        self.line(&text);
    }

    fn head(&mut self, annotated: &Annotated, object: &str) {
        let (start, end) = (annotated.start, annotated.end);
        self.heading(&format!(
            "{} ({object}, {start:#x} to {end:#x})",
            annotated.name
        ));
        for (i, measure) in self.measures.iter().enumerate() {
            let share = percent(self.sums[i], measure.total);
            let unit = match measure.unit.as_str() {
                "" => &measure.name,
                unit => unit,
            };
            let line = format!("  {} {unit}, {share} % of all", number(self.sums[i]));
            self.out.push_str(&line);
            self.out.push('\n');
        }
        if annotated.insts.is_empty() {
            let reason = annotated.reason.as_deref().unwrap_or("it has no code");
            self.line(&format!("  no instructions: {reason}"));
        }
        for (i, found) in annotated.loops.iter().enumerate() {
            let mut line = format!("  loop {i} at {:#x}, depth {}", found.header, found.depth);
            if let Some(parent) = found.parent {
                let _ = write!(line, ", in loop {parent}");
            }
            if let Some(rounds) = found.rounds {
                let _ = write!(line, ": {} rounds", number(rounds));
                if let Some(entries) = found.entries.filter(|n| *n != 0) {
                    let each = rounds as f64 / entries as f64;
                    let _ = write!(line, ", entered {} times ({each:.1} each)", number(entries));
                }
            }
            self.line(&line);
        }
    }

    /// Heads of the columns with values.
    fn columns(&mut self, last: &str) {
        let mut line = String::new();
        for (measure, width) in self.measures.iter().zip(&self.widths) {
            let _ = write!(line, "{:>width$}", measure.name);
        }
        if !self.measures.is_empty() {
            line.push_str("       %");
        }
        let _ = write!(line, "  {last}");
        self.out.push('\n');
        self.heading(&line);
    }

    /// The cells with values, and the colour of the row.
    fn cells(&self, values: Option<&[u64]>) -> (String, Colour) {
        let mut cells = String::new();
        for (i, width) in self.widths.iter().enumerate() {
            let cell = values.map_or(String::new(), |values| match values[i] {
                0 => "0".to_owned(),
                n => number(n),
            });
            let _ = write!(cells, "{cell:>width$}");
        }
        let (Some(value), Some(sum)) = (values.and_then(|v| v.first()), self.sums.first()) else {
            if !self.measures.is_empty() {
                cells.push_str("        ");
            }
            return (cells, Colour::Plain);
        };
        let share = *value as f64 * 100.0 / (*sum).max(1) as f64;
        let text = percent(*value, *sum);
        let _ = write!(cells, "{:>8}", if *value == 0 { "" } else { &text });
        let colour = match share {
            s if s >= HOT => Colour::Hot,
            s if s >= WARM => Colour::Warm,
            _ if *value == 0 => Colour::Dim,
            _ => Colour::Plain,
        };
        (cells, colour)
    }

    fn source(&mut self, file: &File) {
        self.columns(&file.path);
        let mut next = None;
        for line in &file.lines {
            if next.is_some_and(|next| next != line.number) {
                self.line(&self.style.paint(Colour::Dim, "..."));
            }
            next = Some(line.number + 1);
            let (cells, colour) = self.cells(line.values.as_deref());
            let colour = match line.values {
                None => Colour::Dim,
                Some(_) => colour,
            };
            let cells = self.style.paint(colour, &cells);
            self.line(&format!("{cells}  {:>5}  {}", line.number, line.text));
        }
    }

    fn instructions(&mut self, annotated: &Annotated, sources: &mut Sources) {
        if annotated.insts.is_empty() {
            return;
        }
        self.columns("address");
        let deepest = annotated.loops.iter().map(|l| l.depth).max().unwrap_or(0) as usize;
        let mut last = None;
        let mut end = None;
        for inst in &annotated.insts {
            if end.is_some_and(|end| end != inst.address) {
                self.line(&self.style.paint(Colour::Dim, "..."));
            }
            end = Some(inst.address + inst.bytes.len() as u64 / 2);
            if let Some((file, line)) = inst.place.filter(|place| last != Some(*place)) {
                last = inst.place;
                let path = &annotated.files[file];
                let text = sources.lines(path).and_then(|l| l.get(line as usize - 1));
                let name = path.rsplit('/').next().unwrap_or(path);
                let (cells, _) = self.cells(None);
                let text = text.map_or("", |text| text.trim());
                let place = format!("; {name}:{line}  {text}");
                let place = self.style.paint(Colour::Dim, place.trim_end());
                self.line(&format!("{cells}  {place}"));
            }
            self.instruction(annotated, inst, deepest);
        }
    }

    fn instruction(&mut self, annotated: &Annotated, inst: &Inst, deepest: usize) {
        let (cells, colour) = self.cells(Some(&inst.values));
        let depth = inst
            .innermost
            .map_or(0, |i| annotated.loops[i as usize].depth as usize);
        let bars = format!("{}{}", "|".repeat(depth), " ".repeat(deepest - depth));
        let mut line = self.style.paint(colour, &cells);
        let _ = write!(line, "  {bars} {:>8x}  ", inst.address);
        if self.style.has_bytes {
            let _ = write!(line, "{:<31}", inst.bytes);
        }
        line.push_str(&self.style.paint(colour, &inst.text));
        let mut notes = Vec::new();
        notes.extend(inst.comment.clone());
        if let Some(branch) = inst.branch {
            let all = branch.taken + branch.not_taken;
            let arrow = match inst.target {
                Some(target) if target <= inst.address => "↑",
                _ => "↓",
            };
            let share = percent(branch.taken, all);
            notes.push(format!(
                "{arrow} taken {} ({share} %)",
                number(branch.taken)
            ));
        }
        for (_, address, count) in inst.targets.iter().take(4) {
            notes.push(format!("{address:#x}: {}", number(*count)));
        }
        if !notes.is_empty() {
            let notes = format!("  ; {}", notes.join(", "));
            line.push_str(&self.style.paint(Colour::Dim, &notes));
        }
        self.line(&line);
    }
}

/// `part` in per cent of `whole` with two decimals.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.2}", part as f64 * 100.0 / whole as f64),
    }
}
