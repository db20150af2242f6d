//! Sections that are named on the command line, without any mark in the source.

use std::collections::HashSet;

use atom_tool::names::matches;
use atom_tool::{Result, Status};

use super::labels;
use super::region::{Border, Region};
use super::view::{View, base, is_stub};
use super::{Found, How, MeasuredKind, Section, Unplaced};

/// Sections that an option names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Procedures by name, each a section.
    Procedures(String),
    /// The loop at a source line, or else the code of that line.
    Line(String, u32),
    /// All code from the first address up to, not including, the second.
    Addresses(u64, u64),
}

impl Pattern {
    /// Reads `NAME`, `FILE:LINE` or `0xSTART-0xEND`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("0x") {
            let number = |t: &str| u64::from_str_radix(t.strip_prefix("0x")?, 16).ok();
            let range = text
                .split_once('-')
                .and_then(|(from, to)| Some((number(from)?, number(to)?)));
            return match range {
                Some((from, to)) if from < to => Ok(Self::Addresses(from, to)),
                _ => Err(format!("`{text}` is no range of addresses (0x1000-0x2000)").into()),
            };
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.ends_with(':')
            && let Ok(line) = line.parse()
        {
            return Ok(Self::Line(file.to_owned(), line));
        }
        match text {
            "" => Err("an empty name was given".into()),
            _ => Ok(Self::Procedures(text.to_owned())),
        }
    }

    /// Adds the sections that the pattern names to `found`. It is an error if there are none, because the user
    /// asked for them.
    pub fn find<'a>(&self, view: &View<'a>, kind: MeasuredKind, found: &mut Found<'a>) -> Result {
        match self {
            Self::Procedures(name) => procedures(view, kind, name, found),
            Self::Line(file, line) => {
                if let Err(reason) = line_of(view, kind, (file, *line), found) {
                    found.unplaced.push(Unplaced {
                        kind,
                        name: format!("{}:{line}", base(file)),
                        file: Some(file.clone()),
                        line: Some(*line),
                        function: None,
                        reason,
                    });
                }
                Ok(())
            }
            Self::Addresses(from, to) => addresses(view, kind, (*from, *to), found),
        }
    }
}

fn procedures<'a>(
    view: &View<'a>,
    kind: MeasuredKind,
    name: &str,
    found: &mut Found<'a>,
) -> Result {
    let mut any = false;
    let mut seen = HashSet::new();
    for proc in view.program.procs() {
        let fits = matches(name, proc.name()) || matches(name, proc.symbol());
        if !fits || is_stub(proc) || proc.symbol().ends_with(".cold") {
            continue;
        }
        any = true;
        let unplaced = |reason: &str| Unplaced {
            kind,
            name: proc.name().to_owned(),
            file: None,
            line: None,
            function: None,
            reason: reason.to_owned(),
        };
        if proc.status() == Status::Opaque || proc.first_block().is_none() {
            found.unplaced.push(unplaced(
                "its code is not understood, so it stays as it is; `atom show APP` tells why",
            ));
            continue;
        }
        let family = view.family(proc);
        if !seen.insert(family.proc.index()) {
            continue;
        }
        let line = |inst: Option<atom_tool::Inst<'a>>| inst.and_then(|i| i.line());
        let first = line(proc.first_block().map(|b| b.first_inst()));
        let last = line(proc.last_block().map(|b| b.last_inst()));
        found.sections.push(Section {
            kind,
            how: How::Procedure,
            name: proc.name().to_owned(),
            function: proc.name().to_owned(),
            file: first.map(|f| f.0.to_owned()),
            lines: first
                .zip(last)
                .filter(|(f, l)| f.0 == l.0)
                .map(|(f, l)| (f.1, l.1.max(f.1))),
            regions: vec![Region::whole(family)],
            border: Border::default(),
            outside: Vec::new(),
        });
    }
    if any {
        Ok(())
    } else {
        Err(format!("no procedure is called `{name}`; `atom show APP` lists them").into())
    }
}

fn line_of<'a>(
    view: &View<'a>,
    kind: MeasuredKind,
    (file, line): (&str, u32),
    found: &mut Found<'a>,
) -> Result<(), String> {
    let mut section = Section {
        kind,
        how: How::Line,
        name: format!("{}:{line}", base(file)),
        function: String::new(),
        file: Some(file.to_owned()),
        lines: Some((line, line)),
        regions: Vec::new(),
        border: Border::default(),
        outside: Vec::new(),
    };
    let families = view.with_lines(file, line, line);
    if families.is_empty() {
        return Err(if view.has_file(file) {
            "no code comes from this line".to_owned()
        } else {
            "no code is known to come from this file: compile it with -g, and name it as \
                 the compiler saw it"
                .to_owned()
        });
    }
    if let Ok(placed) = labels::at_line(view, file, line) {
        section.lines = Some((placed.first, placed.last));
        section.regions = placed.regions;
        section.outside = placed.outside;
    } else {
        // No loop: the instructions of that line.
        for family in families {
            let own = family.insts().filter(|i| {
                i.line()
                    .is_some_and(|(f, l)| l == line && base(f) == base(file))
            });
            let insts: HashSet<usize> = own.map(|i| i.index()).collect();
            section.regions.push(Region { family, insts });
        }
    }
    if let Some(first) = section.regions.first() {
        section.function = first.family.proc.name().to_owned();
        let inst = first.family.insts().find(|i| first.has(*i));
        if let Some((path, _)) = inst.and_then(|i| i.line()) {
            section.file = Some(path.to_owned());
        }
    }
    found.sections.push(section);
    Ok(())
}

fn addresses<'a>(
    view: &View<'a>,
    kind: MeasuredKind,
    (from, to): (u64, u64),
    found: &mut Found<'a>,
) -> Result {
    let mut regions = Vec::new();
    let mut seen = HashSet::new();
    for proc in view.program.procs() {
        if proc.pc() >= to || proc.pc() + proc.size() <= from || proc.first_block().is_none() {
            continue;
        }
        let family = view.family(proc);
        if !seen.insert(family.proc.index()) {
            continue;
        }
        let inside = family.insts().filter(|i| (from..to).contains(&i.pc()));
        let insts: HashSet<usize> = inside.map(|i| i.index()).collect();
        if !insts.is_empty() {
            regions.push(Region { family, insts });
        }
    }
    let Some(first) = regions.first() else {
        return Err(format!("no code that is understood lies in {from:#x}-{to:#x}").into());
    };
    let at = |inst: Option<atom_tool::Inst<'a>>| inst.and_then(|i| i.line());
    let place = at(first.family.insts().find(|i| first.has(*i)));
    found.sections.push(Section {
        kind,
        how: How::Addresses,
        name: format!("{from:#x}-{to:#x}"),
        function: first.family.proc.name().to_owned(),
        file: place.map(|p| p.0.to_owned()),
        lines: place.map(|p| (p.1, p.1)),
        regions,
        border: Border::default(),
        outside: Vec::new(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let parse = |text| Pattern::parse(text).unwrap();
        assert_eq!(parse("0x10-0x20"), Pattern::Addresses(0x10, 0x20));
        assert_eq!(parse("a.c:12"), Pattern::Line("a.c".into(), 12));
        assert_eq!(parse("std::*"), Pattern::Procedures("std::*".into()));
        assert_eq!(parse("A::7"), Pattern::Procedures("A::7".into()));
        for wrong in ["", "0x10", "0x20-0x10", "0xg-0xh"] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
