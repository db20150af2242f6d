//! Random tools, written as users write theirs: in Rust and in C, of ten routines each.
//!
//! A routine in line must do what a call of it does, and the program must not notice it. Which registers and
//! flags its code may use differs from point to point, so routines of many kinds are put at many points. A source
//! holds several tools, since compiling takes longest; a tool's number is its first option. Each routine keeps a
//! checksum, and the tool writes the checksums to a file.

mod block;
mod c;
mod routine;
mod rust;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::atom;
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Setting, plain_environment, run};
use crate::source::End;

pub use routine::Routine;

/// Number of routines of a tool.
pub const ROUTINES: usize = 10;

/// Random numbers that depend on a seed only.
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number (splitmix64).
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// True once in `n` times.
    pub fn chance(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Languages of tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// One source file.
    Rust,
    /// One file that is both halves.
    C,
}

/// Several tools in one source.
pub struct Source {
    seed: u64,
    language: Language,
    tools: Vec<Vec<Routine>>,
}

impl Source {
    /// Makes `tools` tools; the same for the same seed.
    pub fn random(seed: u64, language: Language, tools: usize) -> Self {
        let r = &mut Random::new(seed);
        let routine = |r: &mut Random| Routine::random(r);
        let tool = |r: &mut Random| (0..ROUTINES).map(|_| routine(r)).collect();
        Self {
            seed,
            language,
            tools: (0..tools).map(|_| tool(r)).collect(),
        }
    }

    /// The source's text.
    pub fn text(&self) -> String {
        match self.language {
            Language::Rust => rust::source(&self.tools),
            Language::C => c::source(&self.tools),
        }
    }

    /// Compiles it in a folder; returns the path of the shared object.
    ///
    /// # Errors
    /// It does not compile.
    pub fn compile(&self, folder: &Path) -> Result<PathBuf> {
        let fail =
            |what: &str, e: String| Error::new("making a random tool", format!("{what}: {e}"));
        std::fs::create_dir_all(folder).map_err(|e| fail("making a folder", e.to_string()))?;
        let ending = match self.language {
            Language::Rust => "rs",
            Language::C => "c",
        };
        let source = folder.join(format!("random{}.{ending}", self.seed));
        std::fs::write(&source, self.text()).map_err(|e| fail("writing", e.to_string()))?;
        let tool = folder.join(format!("random{}-{ending}.so", self.seed));
        let _ = std::fs::remove_file(&tool);
        // Any program will do: the tool is kept.
        let mut command = Command::new(atom::command()?);
        command.arg("/bin/true").arg(&source).arg("-P").arg(&tool);
        command.arg("-o").arg(folder.join("compiled"));
        command.env("XDG_CACHE_HOME", folder.join("cache"));
        command
            .args(["-q", "--", "0", "1000000"])
            .arg(folder.join("sums"));
        let outcome = run(&mut command, &patient())?;
        match outcome.end {
            End::Exit(0) => Ok(tool),
            _ => Err(fail("compiling", said(&outcome)).file(&source)),
        }
    }
}

fn patient() -> Setting {
    Setting {
        timeout: Duration::from_secs(600),
        ..Setting::default()
    }
}

fn said(outcome: &Outcome) -> String {
    let text = String::from_utf8_lossy(&outcome.stderr);
    format!("{:?}: {}", outcome.end, text.trim())
}

/// A program whose instructions are of many kinds and whose addresses do not depend on the tool.
const PROGRAM: &str = include_str!("program.c");

/// Compiles the program, which needs no library.
///
/// # Errors
/// There is no compiler.
pub fn program(folder: &Path) -> Result<PathBuf> {
    let fail = |e: String| Error::new("compiling the program", e);
    // The paths of the program and of its rewrites have the same length, since it is on the stack.
    let place = folder.join("prog-o");
    std::fs::create_dir_all(&place).map_err(|e| fail(e.to_string()))?;
    let (source, program) = (folder.join("program.c"), place.join("program"));
    std::fs::write(&source, PROGRAM).map_err(|e| fail(e.to_string()))?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-w"]);
    gcc.args(["-fno-stack-protector", "-o"]);
    let outcome = run(gcc.arg(&program).arg(&source), &patient())?;
    match outcome.end {
        End::Exit(0) => Ok(program),
        _ => Err(fail(said(&outcome))),
    }
}

/// Checks that a tool's routines do in line what their calls do, and that the program does not notice: returns
/// what differs.
///
/// # Errors
/// A program cannot be run at all.
pub fn judge(program: &Path, tool: &Path, number: usize, folder: &Path) -> Result<Option<String>> {
    let mut first: Option<(Vec<u8>, String)> = None;
    let original = run_program(program, folder)?;
    for (kind, more) in [("prog-c", &["--no-inline"][..]), ("prog-i", &[])] {
        let place = folder.join(kind);
        std::fs::create_dir_all(&place)
            .map_err(|e| Error::new("making a folder", e).file(&place))?;
        let (out, sums) = (place.join("program"), folder.join("sums"));
        let mut command = Command::new(atom::command()?);
        command.arg(program).arg(tool).arg("-o").arg(&out);
        command.args(["-q", "--check", "--strict"]).args(more);
        command.args(["--skip", "_start", "--skip", "say"]);
        command
            .arg("--")
            .arg(number.to_string())
            .arg("1")
            .arg(&sums);
        let made = run(&mut command, &patient())?;
        if made.end != End::Exit(0) {
            return Ok(Some(format!("{more:?}: {}", said(&made))));
        }
        let _ = std::fs::remove_file(&sums);
        let outcome = run_program(&out, folder)?;
        if let Some(what) = outcome.differs_from(&original) {
            return Ok(Some(format!(
                "{more:?}: the program behaves otherwise: {what}"
            )));
        }
        let text =
            std::fs::read_to_string(&sums).map_err(|e| Error::new("reading", e).file(&sums))?;
        let seen = (outcome.stdout, text);
        match &first {
            None => first = Some(seen),
            Some(called) if *called != seen => {
                return Ok(Some(format!(
                    "checksums of calls:\n{}in line:\n{}",
                    called.1, seen.1
                )));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

fn run_program(program: &Path, folder: &Path) -> Result<Outcome> {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    run(command.current_dir(folder), &setting)
}

/// Instruments a program with all its libraries and options of `atom`, checks the result and does not run it: returns what
/// the checker found. One of `every` instructions gets calls.
///
/// # Errors
/// `atom` cannot be run.
pub fn check(
    program: &Path,
    options: &[OsString],
    tool: &Path,
    number: usize,
    every: usize,
    folder: &Path,
) -> Result<Option<String>> {
    let mut command = Command::new(atom::command()?);
    command
        .arg(program)
        .arg(tool)
        .arg("-o")
        .arg(folder.join("whole"));
    command.args(["--libs", "-q", "--check", "--strict"]);
    command.args(options);
    let words = [number.to_string(), every.to_string()];
    command.arg("--").args(words).arg(folder.join("sums"));
    let made = run(&mut command, &patient())?;
    Ok((made.end != End::Exit(0)).then(|| said(&made)))
}

/// Some tools to judge.
pub struct Night {
    /// Seed of the source.
    pub seed: u64,
    /// Its language.
    pub language: Language,
    /// Number of tools in it.
    pub tools: usize,
    /// Number of instructions of libraries of which one gets calls; `None` if libraries are not checked.
    pub every: Option<usize>,
}

/// The libraries that are checked besides those of the program: the first of these that is there.
const LIBRARIES: [&str; 2] = ["libcrypto.so.3", "libstdc++.so.6"];

/// Procedures of the C library in assembly, some of which several frame descriptions cover. Each of their instructions gets
/// calls.
const DIVIDED: [&str; 6] = [
    "setcontext",
    "swapcontext",
    "getcontext",
    "makecontext",
    "clone",
    "vfork",
];

/// Judges the tools of a source; returns what failed.
///
/// # Errors
/// The source does not compile, or nothing can be run.
pub fn all(night: &Night, folder: &Path) -> Result<Vec<String>> {
    let source = Source::random(night.seed, night.language, night.tools);
    let tool = source.compile(folder)?;
    let program = program(folder)?;
    let only: Vec<_> = (DIVIDED.iter())
        .flat_map(|name| ["--only", name].map(OsString::from))
        .collect();
    let mut failures = Vec::new();
    for number in 0..night.tools {
        if let Some(what) = judge(&program, &tool, number, folder)? {
            failures.push(format!("tool {number}: {what}"));
        }
        let small = crate::programs::needed("true");
        if let Some(what) = check(&small, &only, &tool, number, 1, folder)? {
            failures.push(format!("tool {number}: {DIVIDED:?}: {what}"));
        }
        let Some(every) = night.every else { continue };
        // Each tool has other libraries, since all of them take long.
        let folders = [
            Path::new("/usr/lib/x86_64-linux-gnu"),
            Path::new("/usr/lib64"),
        ];
        let place = |name: &str| {
            folders
                .map(|f| f.join(name))
                .into_iter()
                .find(|f| f.exists())
        };
        let (program, with) = match number % 3 {
            0 => (crate::programs::needed("perl"), None),
            n => (crate::programs::needed("true"), place(LIBRARIES[n - 1])),
        };
        let with: Vec<_> = (with.into_iter())
            .flat_map(|file| ["--with".into(), file.into_os_string()])
            .collect();
        if let Some(what) = check(&program, &with, &tool, number, every, folder)? {
            failures.push(format!(
                "tool {number}: {} {with:?}: {what}",
                program.display()
            ));
        }
    }
    Ok(failures)
}
