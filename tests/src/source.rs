//! Test programs: the expectations in their header comments, and their builds.
//!
//! A source under `sources/` starts with `//` comments. Lines of the form
//! `key: value` are read here:
//!
//! - `variants:` names of builds, see [`Variant`];
//! - `cflags:` further options of the compiler;
//! - `stdout:` one line of the expected output (repeatable), `exit:` its code;
//! - `run: ARGS -> exit N stdout WORDS` or `-> signal N stdout WORDS`: a run
//!   with arguments; line breaks of the output are compared as spaces;
//! - `count: NAME N`: the instruction at the symbol NAME is executed N times;
//!   `count-O0:` says so for unoptimised builds only;
//! - `counts: no`: instruction counts differ from run to run, or procedures are
//!   left by faults: not compared;
//! - `counts-not: VARIANTS`: counts of these builds are not compared (locks, dlopen);
//! - `counts-in: PREFIX`: only the counts of procedures with such names are compared; those of a runtime
//!   depend on time;
//! - `missed: NAMES`: procedures that may be left in place, not understood, as
//!   long as that is reported;
//! - `pristine: yes`: prints addresses; runs without address randomisation;
//! - `needs: FEATURE`: skipped on processors without it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::programs;

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By `exit` with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl From<std::process::ExitStatus> for End {
    fn from(status: std::process::ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Exit(code),
            None => Self::Signal(status.signal().unwrap_or(0)),
        }
    }
}

/// One run of a program.
#[derive(Clone, Debug)]
pub struct Run {
    /// Arguments.
    pub args: Vec<String>,
    /// How it ends.
    pub end: End,
    /// Output with line breaks as spaces; none where only equality counts.
    pub stdout: Option<String>,
}

/// A test program.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Its builds.
    pub variants: Vec<Variant>,
    /// Further options of the compiler.
    pub cflags: Vec<String>,
    /// Its runs; at least one.
    pub runs: Vec<Run>,
    /// Symbols with their expected executions, and whether for `-O0` only.
    pub counts: Vec<(String, u64, bool)>,
    /// Whether instruction counts can be compared.
    pub countable: bool,
    /// Builds whose counts cannot be compared.
    pub uncountable: Vec<String>,
    /// What the names of procedures begin with whose counts are compared, if not all are.
    pub counts_in: Option<String>,
    /// Procedures that may be left in place.
    pub missed: Vec<String>,
    /// Whether it prints addresses.
    pub pristine: bool,
    /// Processor features that it needs.
    pub needs: Vec<String>,
}

/// A way to build: compiler, optimisation, and modifiers, joined by `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant(pub String);

impl Source {
    /// Reads the header of a source.
    pub fn read(path: &Path) -> Result<Source> {
        let fail = |reason: String| Error::new("reading the test program", reason).file(path);
        let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
        let mut source = Source {
            path: path.to_path_buf(),
            variants: Vec::new(),
            cflags: Vec::new(),
            runs: Vec::new(),
            counts: Vec::new(),
            countable: true,
            uncountable: Vec::new(),
            counts_in: None,
            missed: Vec::new(),
            pristine: false,
            needs: Vec::new(),
        };
        let (mut lines, mut exit) = (Vec::new(), 0);
        for line in text.lines().map_while(|l| l.strip_prefix("//")) {
            let Some((key, value)) = line.trim().split_once(':') else {
                continue;
            };
            let value = value.trim();
            let words = || value.split_whitespace().map(str::to_string);
            let number = |s: &str| {
                s.parse()
                    .map_err(|_| fail(format!("no number in \"{line}\"")))
            };
            match key {
                "variants" => source.variants.extend(words().map(Variant)),
                "cflags" => source.cflags.extend(words()),
                "counts-in" => source.counts_in = Some(value.to_string()),
                "counts-not" => source.uncountable.extend(words()),
                "missed" => source.missed.extend(words()),
                "needs" => source.needs.extend(words()),
                "stdout" => lines.push(value.to_string()),
                "exit" => exit = number(value)?,
                "run" => source
                    .runs
                    .push(parse_run(value).ok_or_else(|| fail(format!("bad run \"{value}\"")))?),
                "count" | "count-O0" => {
                    let (name, n) = value
                        .split_once(' ')
                        .ok_or_else(|| fail(format!("no number in \"{line}\"")))?;
                    source
                        .counts
                        .push((name.to_string(), number(n)? as u64, key == "count-O0"));
                }
                "counts" => source.countable = value != "no",
                "pristine" => source.pristine = value == "yes",
                _ => {}
            }
        }
        if source.runs.is_empty() {
            let stdout = (!lines.is_empty()).then(|| lines.join(" "));
            source.runs.push(Run {
                args: Vec::new(),
                end: End::Exit(exit),
                stdout,
            });
        }
        if source.variants.is_empty() {
            return Err(fail("it names no variants".into()));
        }
        Ok(source)
    }

    /// Reads the source with this file name in `sources/`.
    pub fn named(name: &str) -> Result<Source> {
        Self::read(&folder().join(name))
    }

    /// The file's name.
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Whether this processor can run it.
    pub fn runs_here(&self) -> bool {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or("");
        self.needs
            .iter()
            .all(|n| flags.split_whitespace().any(|f| f == n))
    }

    /// Builds one variant as `out`. Builds of the same text with the same command are shared.
    ///
    /// # Errors
    /// A compiler or linker is not installed, or it does not accept the source.
    pub fn build(&self, variant: &Variant, out: &Path) -> Result<()> {
        let fail = |reason: String| {
            let reason = format!("{reason} (variant {})", variant.0);
            Error::new("building the test program", reason).file(&self.path)
        };
        let (command, rest) = self.command(variant).map_err(fail)?;
        crate::cache::compiled(command, &rest, &self.path, out).map_err(|e| fail(e.to_string()))
    }

    /// The compiler with its options, without `-o`, and what follows `-o`: the source and libraries.
    fn command(&self, variant: &Variant) -> Result<(Command, Vec<OsString>), String> {
        let mut parts = variant.0.split('-');
        let family = parts.next().unwrap_or_default();
        let extension = self.path.extension().unwrap_or_default();
        let compiler = match (family, extension.to_str()) {
            ("gcc", Some("cc")) => "g++",
            ("clang", Some("cc")) => "clang++",
            ("musl", _) => "musl-gcc",
            ("gcc" | "clang" | "rustc" | "go", _) => family,
            _ => return Err(format!("no compiler for \"{family}\"")),
        };
        let needed = |program: &str| match program {
            // The compiler belongs to cargo's toolchain.
            "rustc" => Ok(()),
            _ => programs::find(program).map_err(|e| e.to_string()).map(drop),
        };
        needed(compiler)?;
        let mut command = Command::new(compiler);
        if family == "go" {
            go_build(&mut command, &variant.0).map_err(|e| e.to_string())?;
        }
        let (mut early, mut late): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for part in parts {
            let options: &[&str] = match part {
                _ if family == "rustc" => match part {
                    "O0" => &["-Copt-level=0"],
                    "O1" => &["-Copt-level=1"],
                    "O2" => &["-Copt-level=2"],
                    "O3" => &["-Copt-level=3"],
                    "strip" => &["-Cstrip=symbols"],
                    "fp" => &["-Cforce-frame-pointers=yes"],
                    "lto" => &["-Clto=fat"],
                    "nopie" => &["-Crelocation-model=static"],
                    "static" => &["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
                    "staticpie" => &["-Ctarget-feature=+crt-static"],
                    _ => return Err(format!("no modifier \"{part}\"")),
                },
                _ if family == "go" => match part {
                    "strip" => &["-ldflags=-s -w"],
                    "pie" => &["-buildmode=pie"],
                    "external" => &["-ldflags=-linkmode=external"],
                    "externalstatic" => &["-ldflags=-linkmode=external -extldflags=-static"],
                    _ => return Err(format!("no modifier \"{part}\"")),
                },
                "O0" => &["-O0"],
                "O1" => &["-O1"],
                "O2" => &["-O2"],
                "O3" => &["-O3"],
                "Os" => &["-Os"],
                "Oz" => &["-Oz"],
                "nopie" => &["-fno-pie", "-no-pie"],
                "static" => &["-static"],
                "staticpie" => &["-fPIE", "-static-pie"],
                "bare" => &["-nostdlib", "-static"],
                "barepie" => &["-nostdlib", "-fPIE", "-static-pie"],
                "strip" => &["-s"],
                "fp" => &["-fno-omit-frame-pointer"],
                "nofp" => &["-fomit-frame-pointer"],
                "lto" => &["-flto"],
                "cet" => &["-fcf-protection=full"],
                "clash" => &["-fstack-clash-protection"],
                "noasync" => &["-fno-asynchronous-unwind-tables"],
                "bindnow" => &["-Wl,-z,now"],
                "lazy" => &["-Wl,-z,lazy"],
                "noplt" => &["-fno-plt"],
                "gold" => &["-fuse-ld=gold"],
                "lld" => &["-fuse-ld=lld"],
                "mold" => &["-fuse-ld=mold"],
                "icf" => &["-ffunction-sections", "-Wl,--icf=all"],
                "retpolineplt" => &["-Wl,-z,retpolineplt"],
                "sections" => &[
                    "-ffunction-sections",
                    "-fdata-sections",
                    "-Wl,--gc-sections",
                ],
                "pg" => &["-pg"],
                "fentry" => &["-pg", "-mfentry"],
                "large" => &["-mcmodel=large"],
                "align1" => &["-falign-functions=1"],
                "cold" => &["-freorder-blocks-and-partition", "-freorder-functions"],
                _ => return Err(format!("no modifier \"{part}\"")),
            };
            if let "gold" | "lld" | "mold" = part {
                needed(&format!("ld.{part}"))?;
            }
            early.extend(options.iter().map(|s| s.to_string()));
        }
        for flag in &self.cflags {
            // Libraries must follow the source.
            if flag.starts_with("-l") {
                late.push(flag.clone())
            } else {
                early.push(flag.clone())
            }
        }
        command.args(early);
        let source = self.path.clone().into_os_string();
        let late = late.into_iter().map(OsString::from);
        Ok((command, std::iter::once(source).chain(late).collect()))
    }
}

/// Lets `go` build without a module, with a cache of its own below the target folder. External linking needs cgo.
pub fn go_build(command: &mut Command, variant: &str) -> Result<()> {
    let cache = crate::cache::target_folder()?.join("test-programs/go-cache");
    let cgo = if variant.contains("external") {
        "1"
    } else {
        "0"
    };
    command
        .arg("build")
        .env("GOCACHE", cache)
        .env("GOFLAGS", "");
    command.env("CGO_ENABLED", cgo).env("GO111MODULE", "off");
    Ok(())
}

fn parse_run(text: &str) -> Option<Run> {
    let (args, rest) = text.split_once("->")?;
    let (end, stdout) = rest.split_once("stdout")?;
    let (kind, number) = end.trim().split_once(' ')?;
    let number = number.trim().parse().ok()?;
    let end = match kind {
        "exit" => End::Exit(number),
        "signal" => End::Signal(number),
        _ => return None,
    };
    let args = args.split_whitespace().map(str::to_string).collect();
    Some(Run {
        args,
        end,
        stdout: Some(stdout.trim().to_string()),
    })
}

/// The folder of the test programs that several subjects share.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sources")
}

/// All test programs of `sources/`, in order of their names.
pub fn all() -> Result<Vec<Source>> {
    let folder = folder();
    let fail = |e: std::io::Error| Error::new("listing the test programs", e).file(&folder);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(fail)? {
        paths.push(entry.map_err(fail)?.path());
    }
    // Sources of other languages have a folder of their own.
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.iter().map(|p| Source::read(p)).collect()
}
