//! A whole process, one instruction at a time: from the first instruction of the program interpreter to
//! the end, in every object. Ground truth for what tools count in whole processes.
//!
//! Only one process with one thread is followed. An instruction that repeats (`rep movsb`) counts once
//! each time that control reaches it, as tools count it. The vDSO, which nobody instruments, is left out.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment};

use crate::error::{Error, Result};
use crate::source::End;
use crate::stepper::ptrace;

/// Counts by object and address in the object's file. The key is what tools print for the address:
/// `0x1234` in the program, `libc.so.6+0x1234` elsewhere.
pub type Counts = BTreeMap<String, u64>;

/// A part of an object that can be executed, as it is mapped.
struct Mapped {
    start: u64,
    end: u64,
    /// Object's number in [`Stepper::names`].
    object: usize,
    /// Run-time address minus address in the file.
    bias: u64,
}

struct Stepper {
    pid: i32,
    program: PathBuf,
    names: Vec<String>,
    mapped: Vec<Mapped>,
    /// Number of times that control reached each address, by object.
    counts: Vec<BTreeMap<u64, u64>>,
    last: usize,
}

/// Runs a command that way; returns how it ended and the counts. At most `most` steps are made.
pub fn step(program: &Path, command: &mut Command, most: u64) -> Result<(End, Counts)> {
    let fail = |e: std::io::Error| Error::new("stepping through a process", e).file(program);
    // SAFETY: between fork and exec two system calls are made.
    unsafe {
        command.pre_exec(|| {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let child = command.spawn().map_err(fail)?;
    let pid = child.id() as i32;
    let program = std::fs::canonicalize(program).map_err(fail)?;
    let mut stepper = Stepper {
        pid,
        program,
        names: Vec::new(),
        mapped: Vec::new(),
        counts: Vec::new(),
        last: 0,
    };
    let end = stepper.run(most)?;
    Ok((end, stepper.counts()))
}

impl Stepper {
    fn run(&mut self, most: u64) -> Result<End> {
        let fail = |e: std::io::Error| Error::new("stepping through a process", e);
        let mut before = 0;
        let mut signal = 0;
        let (_, mut status) = ptrace::wait(self.pid).map_err(fail)?;
        for _ in 0..most {
            if libc::WIFEXITED(status) {
                return Ok(End::Exit(libc::WEXITSTATUS(status)));
            }
            if libc::WIFSIGNALED(status) {
                return Ok(End::Signal(libc::WTERMSIG(status)));
            }
            let stopped = libc::WSTOPSIG(status);
            if stopped != libc::SIGTRAP {
                signal = stopped;
            }
            let pc = ptrace::pc(self.pid).map_err(fail)?;
            if pc != before {
                self.count(pc)?;
            }
            before = pc;
            ptrace::step(self.pid, signal).map_err(fail)?;
            signal = 0;
            (_, status) = ptrace::wait(self.pid).map_err(fail)?;
        }
        Err(Error::new(
            "stepping through a process",
            "it takes too many steps",
        ))
    }

    fn count(&mut self, pc: u64) -> Result<()> {
        let holds = |m: &Mapped| (m.start..m.end).contains(&pc);
        if !self.mapped.get(self.last).is_some_and(holds) {
            self.last = match self.mapped.iter().position(holds) {
                Some(at) => at,
                None => {
                    self.read_maps()?;
                    match self.mapped.iter().position(holds) {
                        Some(at) => at,
                        None => return Ok(()),
                    }
                }
            };
        }
        let mapped = &self.mapped[self.last];
        *self.counts[mapped.object]
            .entry(pc - mapped.bias)
            .or_default() += 1;
        Ok(())
    }

    /// Notes the executable maps of files that are not known yet.
    fn read_maps(&mut self) -> Result<()> {
        let file = format!("/proc/{}/maps", self.pid);
        let maps = std::fs::read_to_string(&file)
            .map_err(|e| Error::new("reading a process's maps", e).file(&file))?;
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (Some(range), Some(flags)) = (fields.next(), fields.next()) else {
                continue;
            };
            let offset = fields.next().unwrap_or("0");
            let path = fields.nth(2).unwrap_or("");
            if !flags.contains('x') || !path.starts_with('/') {
                continue;
            }
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
            let (start, end) = range.split_once('-').unwrap_or(("0", "0"));
            let (start, end, offset) = (number(start), number(end), number(offset));
            if self.mapped.iter().any(|m| m.start == start) {
                continue;
            }
            let in_file = address_at(Path::new(path), offset)?;
            let own = Path::new(path).file_name().unwrap_or_default();
            let name = if Path::new(path) == self.program {
                String::new()
            } else {
                format!("{}+", plain(&own.to_string_lossy()))
            };
            let object = self
                .names
                .iter()
                .position(|n| *n == name)
                .unwrap_or_else(|| {
                    self.names.push(name);
                    self.counts.push(BTreeMap::new());
                    self.names.len() - 1
                });
            let bias = start.wrapping_sub(in_file);
            self.mapped.push(Mapped {
                start,
                end,
                object,
                bias,
            });
        }
        Ok(())
    }

    fn counts(self) -> Counts {
        let named = self.names.iter().zip(self.counts);
        let each = named.flat_map(|(name, counts)| {
            let own = move |(address, n)| (format!("{name}{address:#x}"), n);
            counts.into_iter().map(own)
        });
        each.collect()
    }
}

/// An object's name without version, which is another one for each of its links: `libz.so`.
fn plain(name: &str) -> String {
    match name.split_once(".so") {
        Some((stem, _)) => format!("{stem}.so"),
        None => name.to_string(),
    }
}

/// The address in an object's file of what is at an offset of the file.
fn address_at(path: &Path, offset: u64) -> Result<u64> {
    let fail = |reason: String| Error::new("reading an object", reason).file(path);
    let bytes = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|e| fail(e.to_string()))?;
    let mut segments = file.segments();
    let found = segments.find_map(|s| {
        let (start, size) = s.file_range();
        let first = start & !0xfff;
        (first..start + size)
            .contains(&offset)
            .then(|| s.address() - (start - offset.min(start)) + offset.saturating_sub(start))
    });
    found.ok_or_else(|| fail(format!("no segment has offset {offset:#x}")))
}

/// The counts of `icount --format tsv --per instruction`.
pub fn read(path: &Path) -> Result<Counts> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new("reading the tool's output", e).file(path))?;
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (address, count) = (fields.next()?, fields.next()?.parse().ok()?);
        let key = match address.rsplit_once('+') {
            Some((object, address)) => format!("{}+{address}", plain(object)),
            None => address.to_string(),
        };
        (count != 0).then_some((key, count))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Instructions executed, by object: of both, only in the first, only in the second; and the largest
/// differences, for messages.
pub fn difference(expected: &Counts, found: &Counts) -> Vec<(String, u64, u64)> {
    let keys: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let mut all: Vec<(String, u64, u64)> = keys
        .into_iter()
        .filter_map(|key| {
            let (a, b) = (expected.get(key).copied(), found.get(key).copied());
            let (a, b) = (a.unwrap_or(0), b.unwrap_or(0));
            (a != b).then(|| (key.clone(), a, b))
        })
        .collect();
    all.sort_by_key(|(_, a, b)| std::cmp::Reverse(a.abs_diff(*b)));
    all
}
