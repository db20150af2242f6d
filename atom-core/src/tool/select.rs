//! Selection of what is instrumented, by patterns on the command line.
//!
//! A tool sees the whole program in any case. Calls that it adds to
//! code that is not selected are dropped afterwards. Calls on the program
//! itself stay, so that the tool's reports are written.

use std::ops::Range;

use atom_abi::names::{matches, without_parameters};

use super::calls::{Calls, Scope};
use super::marks::{self, End};
use super::{LineInfo, demangle};
use crate::cfg::{Cfg, Numbers};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;

const DOING: &str = "selecting what to instrument";

/// Similarity of names, from 0 to 1, from which on a name is suggested.
const MIN_SIMILARITY: f64 = 0.7;
/// Number of suggested names at most.
const MAX_SUGGESTIONS: usize = 3;

/// One pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Procedures by name: a glob over the symbol, the demangled name, or the demangled name
    /// without parameters.
    Proc(String),
    /// Procedures by source file: a glob over the path or, if it has no slash, the file name.
    File(String),
    /// Addresses of the original program.
    Addresses(Range<u64>),
    /// The code of a source line: a glob over the file as in [`Pattern::File`], and the line's number.
    Line(String, u32),
    /// A mark in the program's code, by its name: for windows.
    Mark(String),
    /// A pattern that holds in the objects whose file name a glob matches: `libz.so.1:deflate*`.
    In(String, Box<Pattern>),
}

impl Pattern {
    /// Parses `NAME`, `file:NAME`, `FILE:LINE`, `mark:NAME`, `0xADDRESS` or `0xSTART-0xEND`, perhaps with `OBJECT:` before it.
    pub fn parse(text: &str) -> Result<Self> {
        let fail = |reason: String| {
            Error::new(DOING, reason).advice(
                "a pattern is a procedure (main, 'std::*'), a source file ('file:*.c'), a line (app.c:12) \
                 or addresses (0x1000-0x2000), perhaps in an object ('libz.so.1:*')",
            )
        };
        if let Some(mark) = text.strip_prefix("mark:") {
            return Ok(Self::Mark(mark.into()));
        }
        if let Some(file) = text.strip_prefix("file:") {
            if file.is_empty() {
                return Err(fail(format!("`{text}` names no file")));
            }
            return Ok(Self::File(file.into()));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && let Ok(line) = line.parse()
            && !file.is_empty()
        {
            return Ok(match split_object(file) {
                Some((object, file)) => {
                    Self::In(object.into(), Box::new(Self::Line(file.into(), line)))
                }
                None => Self::Line(file.into(), line),
            });
        }
        if let Some((object, rest)) = split_object(text) {
            return Ok(Self::In(object.into(), Box::new(Self::parse(rest)?)));
        }
        if text.starts_with("0x") {
            let number = |t: &str| u64::from_str_radix(t.strip_prefix("0x")?, 16).ok();
            let range = match text.split_once('-') {
                Some((from, to)) => number(from).zip(number(to)).map(|(from, to)| from..to),
                None => number(text).map(|at| at..at.saturating_add(1)),
            };
            return match range {
                Some(range) if range.is_empty() => {
                    Err(fail(format!("the range `{text}` is empty")))
                }
                Some(range) => Ok(Self::Addresses(range)),
                None => Err(fail(format!("`{text}` is not a range of addresses"))),
            };
        }
        if text.is_empty() {
            return Err(fail("a pattern is empty".into()));
        }
        Ok(Self::Proc(text.into()))
    }
}

/// Takes the object off `OBJECT:PATTERN`. A `::` belongs to a name, and so does a colon after a bracket or a
/// space (`-[Shape scale:]`).
fn split_object(text: &str) -> Option<(&str, &str)> {
    let (object, rest) = text.split_once(':')?;
    let is_file_name = !object.is_empty() && !object.contains(['(', '[', '<', ' ', '/']);
    (is_file_name && !rest.starts_with(':')).then_some((object, rest))
}

/// Which parts of a program are instrumented.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// If not empty, only code that matches one of these patterns is instrumented.
    pub only: Vec<Pattern>,
    /// Code that matches one of these patterns is not instrumented.
    pub skip: Vec<Pattern>,
}

impl Selection {
    /// True if everything is instrumented.
    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.skip.is_empty()
    }

    /// Compares the patterns with the objects of a process. A pattern that nothing matches in any
    /// object is an error.
    pub fn resolve(&self, objects: &[Candidate<'_>]) -> Result<Vec<Selected>> {
        let sides = |patterns: &[Pattern]| -> Result<Vec<Side>> {
            let mut sides: Vec<Side> = objects.iter().map(|o| Side::none_of(o.cfg)).collect();
            for pattern in patterns {
                mark_all(pattern, End::Begin, objects, &mut sides)?;
            }
            Ok(sides)
        };
        let pairs = sides(&self.only)?.into_iter().zip(sides(&self.skip)?);
        Ok(pairs
            .map(|(only, skip)| Selected {
                only: (!self.only.is_empty()).then_some(only),
                skip,
            })
            .collect())
    }
}

/// An object of a process whose code may be selected.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// The names that a pattern's object is compared with: the name by which the process loads the
    /// file, and the file's real name.
    pub names: &'a [String; 2],
    /// Its file.
    pub image: &'a Image,
    /// Its procedures.
    pub cfg: &'a Cfg,
    /// Its source lines.
    pub lines: &'a dyn LineInfo,
}

/// The blocks that contain the first instructions of what a pattern matches, with the numbers of their objects.
pub(super) fn places(
    pattern: &Pattern,
    end: End,
    objects: &[Candidate<'_>],
) -> Result<Vec<(usize, BlockId)>> {
    let mut sides: Vec<Side> = objects.iter().map(|o| Side::none_of(o.cfg)).collect();
    mark_all(pattern, end, objects, &mut sides)?;
    let mut found = Vec::new();
    for (i, (object, side)) in objects.iter().zip(&sides).enumerate() {
        let cfg = object.cfg;
        let procs = cfg.procs.iter().zip(&side.procs);
        let starts = procs
            .filter(|(_, is_marked)| **is_marked)
            .map(|(p, _)| p.start);
        let starts = starts.chain(side.ranges.iter().map(|r| r.start));
        let insts = starts.filter_map(|at| cfg.inst_at(at));
        found.extend(insts.map(|inst| (i, cfg.block_of(inst))));
    }
    found.retain(|(object, block)| {
        let cfg = objects[*object].cfg;
        cfg.proc(cfg.block(*block).proc).is_movable()
    });
    if found.is_empty() {
        let reason = "what a pattern names for a window is not instrumented";
        return Err(Error::new(DOING, reason)
            .advice("`atom show APP --opaque` lists the procedures that are not understood"));
    }
    Ok(found)
}

/// Marks what a pattern matches in the objects of a process.
fn mark_all(
    pattern: &Pattern,
    end: End,
    objects: &[Candidate<'_>],
    sides: &mut [Side],
) -> Result<()> {
    let (object, inner) = match pattern {
        Pattern::In(object, inner) => (Some(object), &**inner),
        other => (None, other),
    };
    let is_meant = |names: &[String; 2]| {
        object.is_none_or(|glob| names.iter().any(|name| matches(glob, name)))
    };
    let pairs = objects.iter().zip(sides);
    let tried: Vec<Result<()>> = pairs
        .filter(|(candidate, _)| is_meant(candidate.names))
        .map(|(candidate, side)| {
            let Candidate {
                image, cfg, lines, ..
            } = *candidate;
            Names { image, cfg, lines }.mark(inner, end, side)
        })
        .collect();
    if tried.iter().any(Result::is_ok) {
        return Ok(());
    }
    let none = || {
        let object = object.map_or("", String::as_str);
        let names: Vec<&str> = objects.iter().map(|o| o.names[0].as_str()).collect();
        match names[..] {
            [_] => not_the_program(object),
            _ => Error::new(
                DOING,
                format!("no object of the process is called `{object}`"),
            )
            .advice(format!("its objects are {}", names.join(", "))),
        }
    };
    Err(tried.into_iter().find_map(Result::err).unwrap_or_else(none))
}

/// The error for a pattern that names another object than the program, where there is no other.
fn not_the_program(object: &str) -> Error {
    Error::new(DOING, format!("{object} is not the program"))
        .advice("a whole process has objects: atom run, or --libs")
}

/// The code that the patterns of one option match.
#[derive(Debug)]
struct Side {
    procs: Vec<bool>,
    ranges: Vec<Range<u64>>,
}

impl Side {
    /// Nothing of an object.
    fn none_of(cfg: &Cfg) -> Self {
        Self {
            procs: vec![false; cfg.procs.len()],
            ranges: Vec::new(),
        }
    }

    fn covers(&self, proc: ProcId, address: u64) -> bool {
        self.procs[proc.index()] || self.ranges.iter().any(|r| r.contains(&address))
    }
}

/// A [`Selection`] in terms of one program.
#[derive(Debug)]
pub struct Selected {
    only: Option<Side>,
    skip: Side,
}

impl Selected {
    /// True if calls at this address of this procedure are made.
    pub fn contains(&self, proc: ProcId, address: u64) -> bool {
        self.only.as_ref().is_none_or(|s| s.covers(proc, address))
            && !self.skip.covers(proc, address)
    }

    /// Drops the calls on code that is not selected; returns their number. Each object of the process has its own
    /// selection.
    pub fn filter(objects: &[(&Cfg, Self)], calls: &mut Calls) -> usize {
        let numbers = Numbers::of(objects.iter().map(|o| o.0));
        let before = calls.calls.len();
        let Calls { calls, args, .. } = calls;
        calls.retain(|call| {
            let Some((object, id)) = call.scope.locate(call.id, &numbers) else {
                return true;
            };
            let (cfg, selected) = &objects[object];
            // What changes the program does not depend on what the user looks at.
            call.sets(args).is_some() || selected.has(cfg, call.scope, id)
        });
        before - calls.len()
    }

    /// True if a call on this thing is made.
    fn has(&self, cfg: &Cfg, scope: Scope, id: u32) -> bool {
        let (proc, address) = match scope {
            // What changes the program does not depend on what the user looks at.
            Scope::Program | Scope::Instead => return true,
            Scope::Proc => (ProcId(id), cfg.proc(ProcId(id)).start),
            Scope::Block | Scope::Entry | Scope::Falling | Scope::Taken => {
                let id = BlockId(id);
                (cfg.block(id).proc, cfg.block_pc(id))
            }
            Scope::Inst => {
                let id = InstId(id);
                (cfg.block(cfg.block_of(id)).proc, cfg.inst_pc(id))
            }
        };
        self.contains(proc, address)
    }
}

/// The procedures that a pattern names; a range of addresses names the procedures that start in it.
pub(super) fn procs_matching(
    pattern: &Pattern,
    (image, cfg): (&Image, &Cfg),
    lines: &dyn LineInfo,
) -> Result<Vec<ProcId>> {
    let mut side = Side::none_of(cfg);
    Names { image, cfg, lines }.mark(pattern, End::Begin, &mut side)?;
    let ids = (0..cfg.procs.len() as u32).map(ProcId);
    let found: Vec<ProcId> = ids
        .filter(|id| side.covers(*id, cfg.proc(*id).start))
        .collect();
    if found.is_empty() {
        Err(Error::new(DOING, "no procedure starts in that range"))
    } else {
        Ok(found)
    }
}

/// A program's procedures with the names that patterns are compared with.
struct Names<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    lines: &'a dyn LineInfo,
}

impl Names<'_> {
    /// Marks what a pattern matches. `end` says which marks of the program are meant.
    fn mark(&self, pattern: &Pattern, end: End, side: &mut Side) -> Result<()> {
        let cfg = self.cfg;
        let mut found = false;
        match pattern {
            // Of another object, unless the patterns are compared with all objects.
            Pattern::In(..) => {}
            Pattern::Mark(name) => {
                let places = marks::find(self.image, cfg, name, end);
                found = !places.is_empty();
                side.ranges.extend(places.iter().map(|at| *at..at + 1));
            }
            Pattern::Addresses(range) => {
                found = cfg
                    .procs
                    .iter()
                    .any(|p| p.start < range.end && range.start < p.end);
                side.ranges.push(range.clone());
            }
            Pattern::Line(glob, line) => {
                side.ranges.extend(self.code_of(glob, *line));
                found = !side.ranges.is_empty();
            }
            Pattern::Proc(glob) => {
                for (proc, marked) in cfg.procs.iter().zip(&mut side.procs) {
                    if is_named(&proc.display_name(), glob) {
                        (*marked, found) = (true, true);
                    }
                }
            }
            Pattern::File(glob) => {
                for (proc, marked) in cfg.procs.iter().zip(&mut side.procs) {
                    let file = self.lines.line_at(proc.start).map(|l| l.0);
                    if file.is_some_and(|file| is_file(file, glob)) {
                        (*marked, found) = (true, true);
                    }
                }
            }
        }
        if found {
            Ok(())
        } else {
            Err(self.nothing(pattern))
        }
    }

    /// The pieces of code of a source line, in the procedures whose first line is in its file.
    fn code_of(&self, glob: &str, line: u32) -> Vec<Range<u64>> {
        let is_there = |at: u64| {
            let found = self.lines.line_at(at);
            found.is_some_and(|(file, number)| number == line && is_file(file, glob))
        };
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for (i, proc) in self.cfg.procs.iter().enumerate() {
            let first = self.lines.line_at(proc.start);
            if !first.is_some_and(|(file, _)| is_file(file, glob)) {
                continue;
            }
            let insts = self.cfg.proc_insts(ProcId::from_index(i));
            for inst in insts.map(InstId::from_index) {
                let at = self.cfg.inst_pc(inst)..self.cfg.inst_end(inst);
                if !is_there(at.start) {
                    continue;
                }
                match pieces.last_mut() {
                    Some(last) if last.end == at.start => last.end = at.end,
                    _ => pieces.push(at),
                }
            }
        }
        pieces
    }

    /// The error for a pattern that matches nothing.
    fn nothing(&self, pattern: &Pattern) -> Error {
        let (reason, wanted, candidates) = match pattern {
            Pattern::In(object, _) => {
                return not_the_program(object);
            }
            Pattern::Mark(name) => {
                let reason = format!("no mark of the program is called `{name}`");
                return Error::new(DOING, reason).advice(
                    "marks are those of ato.h by their names, `mov ebx, N; fs addr32 nop` as mark:N, \
                     and `xchg bx, bx` as mark:magic",
                );
            }
            Pattern::Addresses(range) => {
                let reason = format!("no procedure lies in {:#x}-{:#x}", range.start, range.end);
                let (first, last) = (self.cfg.procs.first(), self.cfg.procs.last());
                let error = Error::new(DOING, reason);
                return match (first, last) {
                    (Some(first), Some(last)) => error.advice(format!(
                        "the program's procedures lie in {:#x}-{:#x}",
                        first.start, last.end
                    )),
                    _ => error,
                };
            }
            Pattern::Line(file, line) => {
                let reason = format!("no code comes from line {line} of {file}");
                return Error::new(DOING, reason)
                    .advice("the program needs line information (-g), and the line needs code");
            }
            Pattern::Proc(glob) => {
                let names = self.cfg.procs.iter().map(|p| demangle(&p.display_name()));
                let reason = format!("no procedure is called `{glob}`");
                (reason, glob, names.collect::<Vec<_>>())
            }
            Pattern::File(glob) => {
                let files = self.cfg.procs.iter();
                let mut files: Vec<_> = files
                    .filter_map(|p| Some(self.lines.line_at(p.start)?.0.to_owned()))
                    .collect();
                files.sort_unstable();
                files.dedup();
                if files.is_empty() {
                    return Error::new(DOING, format!("no source file is known for `{glob}`"))
                        .advice("the program has no line information: select by procedure");
                }
                let reason = format!("no procedure comes from a file called `{glob}`");
                (reason, glob, files)
            }
        };
        let error = Error::new(DOING, reason);
        match near(wanted, &candidates).as_slice() {
            [] => error.advice("`atom show APP` lists the program's procedures"),
            near => error.advice(format!("did you mean {}?", near.join(" or "))),
        }
    }
}

fn is_named(symbol: &str, glob: &str) -> bool {
    if matches(glob, symbol) {
        return true;
    }
    let plain = demangle(symbol);
    matches(glob, &plain) || without_parameters(&plain).is_some_and(|name| matches(glob, name))
}

fn is_file(path: &str, glob: &str) -> bool {
    matches(glob, path)
        || (!glob.contains('/') && matches(glob, path.rsplit('/').next().unwrap_or(path)))
}

fn near(wanted: &str, candidates: &[String]) -> Vec<String> {
    let wanted = wanted.replace(['*', '?'], "");
    let plain = |name: &str| without_parameters(name).unwrap_or(name).to_owned();
    let mut found: Vec<(f64, &String)> = candidates
        .iter()
        .map(|name| {
            let last = plain(name);
            let last = last.rsplit(['/', ':']).next().unwrap_or(&last);
            let score =
                strsim::jaro_winkler(&wanted, name).max(strsim::jaro_winkler(&wanted, last));
            (score, name)
        })
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    found.dedup_by_key(|f| f.1);
    found
        .into_iter()
        .take(MAX_SUGGESTIONS)
        .map(|(_, name)| format!("`{name}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_each_form() {
        let symbol = "_ZNSt6vectorIiSaIiEE9push_backEOi";
        for glob in [symbol, "std::vector*", "*push_back", "*::push_back(int&&)"] {
            assert!(is_named(symbol, glob), "{glob}");
        }
        assert!(!is_named(symbol, "push_back"));
        assert!(is_file("/a/b/c.c", "c.c") && is_file("/a/b/c.c", "*/b/*"));
        assert!(!is_file("/a/b/c.c", "b/c.c"));
    }

    #[test]
    fn patterns() {
        let range = Pattern::parse("0x10-0x20").unwrap();
        assert_eq!(range, Pattern::Addresses(0x10..0x20));
        let address = Pattern::parse("0x10").unwrap();
        assert_eq!(address, Pattern::Addresses(0x10..0x11));
        let line = Pattern::Line("a.c".into(), 12);
        assert_eq!(Pattern::parse("a.c:12").unwrap(), line);
        let object = Pattern::In("liba.so".into(), Box::new(line));
        assert_eq!(Pattern::parse("liba.so:a.c:12").unwrap(), object);
        let mark = Pattern::parse("mark:solve").unwrap();
        assert_eq!(mark, Pattern::Mark("solve".into()));
        assert_eq!(
            Pattern::parse("main").unwrap(),
            Pattern::Proc("main".into())
        );
        let file = Pattern::parse("file:a.c").unwrap();
        assert_eq!(file, Pattern::File("a.c".into()));
        let inner = Box::new(Pattern::Proc("BZ2_*".into()));
        let object = Pattern::In("libbz2*".into(), inner);
        assert_eq!(Pattern::parse("libbz2*:BZ2_*").unwrap(), object);
        for name in ["std::vector*", "-[Shape scale:]", "a::b(int)::c"] {
            assert_eq!(Pattern::parse(name).unwrap(), Pattern::Proc(name.into()));
        }
        for wrong in [
            "",
            "file:",
            "0x1g",
            "0x20-0x10",
            "0x10-20",
            "0x10-0xg",
            "libz.so:",
        ] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn near_names_are_ranked() {
        let names = ["compress", "decompress", "main"].map(String::from);
        assert_eq!(near("compres*", &names)[0], "`compress`");
        assert!(near("zzzz", &names).is_empty());
    }
}
