//! Names of sections, contexts and sets of values.

use ::arp::analyse::{Analysis, Label};
use ::arp::{Section, Sid, ValueSet};

/// Number of sections of a path that are shown at most; the middle of longer paths is left out.
const MOST: usize = 64;

/// A section's name, or its number if it has none.
pub fn of_section(section: Option<&Section>, sid: Sid) -> String {
    match section {
        Some(section) if !section.name.is_empty() => clean(&section.name),
        _ => format!("section {sid}"),
    }
}

/// A section's kind, if the file describes the section.
pub fn kind(section: Option<&Section>) -> Option<String> {
    section.map(|s| s.kind.to_string())
}

/// Source file and lines: `filter.c:12-20`; empty if they are not known.
pub fn source(section: Option<&Section>) -> String {
    let Some(section) = section.filter(|s| !s.file.is_empty() || s.line > 0) else {
        return String::new();
    };
    let file = if section.file.is_empty() {
        "?".into()
    } else {
        clean(&section.file)
    };
    match (section.line, section.end_line) {
        (0, _) => file,
        (line, end) if end > line => format!("{file}:{line}-{end}"),
        (line, _) => format!("{file}:{line}"),
    }
}

/// A context's name, without the contexts around it.
pub fn of_context(analysis: &Analysis, label: Label) -> String {
    let name = |sid| of_section(analysis.section(sid), sid);
    match label {
        Label::Thread(Some(tid)) => format!("thread {tid}"),
        Label::Thread(None) => "thread ?".into(),
        Label::Section(sid) => name(sid),
        Label::Execution(step) => format!("{}@{}", name(step.sid), step.counter),
        Label::Rest(sid) => format!("{}@*", name(sid)),
    }
}

/// A context and all contexts around it, from the outermost.
pub fn path(analysis: &Analysis, context: usize) -> Vec<u32> {
    let mut path = Vec::new();
    let mut at = Some(context as u32);
    while let Some(index) = at {
        path.push(index);
        at = analysis.contexts()[index as usize].parent;
    }
    path.reverse();
    path
}

/// A path as text, with ` > ` between names.
pub fn joined(names: &[String]) -> String {
    if names.len() <= MOST {
        return names.join(" > ");
    }
    let (head, tail) = (&names[..MOST / 2], &names[names.len() - MOST / 2..]);
    let left = names.len() - MOST;
    format!(
        "{} > ({left} more) > {}",
        head.join(" > "),
        tail.join(" > ")
    )
}

/// Name and type of a set of values: `cycles (unsigned long)`.
pub fn of_set(sets: &[ValueSet], set: usize) -> String {
    let data_type = sets[set].data_type;
    match sets[set].name.as_str() {
        "" => format!("set {set} ({data_type})"),
        name => format!("{} ({data_type})", clean(name)),
    }
}

/// A text from a file for a terminal: control characters are replaced.
pub fn clean(text: &str) -> String {
    let keep = |c: char| !c.is_control();
    text.chars()
        .map(|c| if keep(c) { c } else { '\u{fffd}' })
        .collect()
}
