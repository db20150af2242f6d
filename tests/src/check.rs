//! The checks that tests make of one test program in all of its builds.
//!
//! Each returns a list of failures in words, so that one test reports all
//! variants that fail and not only the first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::atom::{self, Job};
use crate::corpus::drawn;
use crate::counts::{Missed, Symbols, compare_branch, compare_icount, read_branch, read_icount};
use crate::depth;
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Setting, plain_environment, run};
use crate::source::{Run, Source, Variant};
use crate::stepper::values::Wanted;
use crate::stepper::{self, Options, Process};

/// Folders of the original and its rewrites. All names have the same length, because the
/// length of the path moves the stack, and start-up code loops over the path.
const ORIGINAL: &str = "orig0";
const JOBS: [&str; 9] = [
    "empty", "moved", "half1", "half2", "icnt0", "brnch", "homes", "verse", "drawn",
];
/// At how many opportunities control goes to the other version of a procedure, in the rewrites with two versions.
pub const SWITCHES: [&str; 4] = ["1", "2", "7", "1000"];
/// Number of successive builds of a source that share the rewrites, where not all are made.
const SHARING: usize = 4;
const VALUES: &str = "trace";
/// Rewrites of some procedures only.
const PARTLY: &str = "part0";

/// One build of a test program.
pub struct Case<'a> {
    source: &'a Source,
    variant: &'a Variant,
    folder: PathBuf,
}

impl<'a> Case<'a> {
    /// Builds a variant.
    ///
    /// # Errors
    /// A compiler or linker is missing, or refuses the source.
    pub fn build(source: &'a Source, variant: &'a Variant) -> Result<Case<'a>> {
        let name = format!("{}-{}", source.name(), variant.0);
        let folder = crate::cache::target_folder()?
            .join("test-programs")
            .join(name);
        for part in [ORIGINAL, VALUES, PARTLY].iter().chain(&JOBS) {
            let part = folder.join(part);
            std::fs::create_dir_all(&part)
                .map_err(|e| Error::new("making a folder", e).file(&part))?;
        }
        let case = Case {
            source,
            variant,
            folder,
        };
        // Tests run in parallel; two of them may need the same build.
        let _lock = crate::lock::exclusive(&case.folder.join("lock"))?;
        source.build(variant, &case.original())?;
        Ok(case)
    }

    /// Folder of the build and its rewrites.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program as it was built.
    pub fn original(&self) -> PathBuf {
        self.folder.join(ORIGINAL).join("prog")
    }

    /// Path of a rewrite; `job` has five letters, like the names of all folders.
    pub fn rewritten(&self, job: &str) -> PathBuf {
        debug_assert_eq!(job.len(), ORIGINAL.len());
        self.folder.join(job).join("prog")
    }

    /// The build in words, with what is checked.
    pub fn label(&self, what: &str) -> String {
        format!("{} {} {what}", self.source.name(), self.variant.0)
    }

    /// Runs the program or a rewrite of it.
    pub fn run(&self, program: &Path, run_: &Run, fixed: bool) -> Result<Outcome> {
        let mut command = Command::new(program);
        plain_environment(&mut command);
        // The job's folder, not the program's: tools may write into it.
        command.args(&run_.args).current_dir(&self.folder);
        run(
            &mut command,
            &Setting {
                fixed_addresses: fixed,
                ..Setting::default()
            },
        )
    }

    /// Checks that the rewrites without a tool and with tools behave like the original, and the original as its
    /// source states.
    fn behaviour(&self, failures: &mut Vec<String>) -> Result<()> {
        let fixed = self.source.pristine;
        let mut originals = Vec::new();
        for r in &self.source.runs {
            let original = self.run(&self.original(), r, fixed)?;
            if let Some(promise) = &r.stdout {
                let said = String::from_utf8_lossy(&original.stdout)
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                let promise = promise.split_whitespace().collect::<Vec<_>>().join(" ");
                if said != promise {
                    failures.push(format!(
                        "{}: promised \"{promise}\", says \"{said}\"",
                        self.label("original")
                    ));
                }
            }
            if original.end != r.end {
                failures.push(format!(
                    "{}: promised {:?}, ends {:?}",
                    self.label("original"),
                    r.end,
                    original.end
                ));
            }
            originals.push(original);
        }
        for (folder, index) in self.jobs() {
            let out = self.folder.join(folder).join("prog");
            let output = self.output(folder, "%p");
            let _lock = crate::lock::exclusive(&self.folder.join(folder).join("lock"))?;
            let job = match index {
                0 => Job::Empty,
                1 => Job::Moved,
                2 | 3 => Job::Half(index),
                4 => Job::Icount(output),
                5 => Job::Branch(output),
                6 => Job::With(Box::new(Job::Moved), vec!["--original-returns".into()]),
                7 if self.is_go() => continue,
                7 => {
                    let place = self.number() as usize / SHARING + self.source.name().len();
                    let every = SWITCHES[place % SWITCHES.len()];
                    let words = vec!["--switch-every".into(), every.into()];
                    self.drawn(&out, &output, &words)?
                }
                _ => self.drawn(&out, &output, &[])?,
            };
            if let Err(e) = atom::instrument_once(&self.original(), &out, &job, true) {
                failures.push(format!("{} {job:?}: {e}", self.label(folder)));
                continue;
            }
            for (r, original) in self.source.runs.iter().zip(&originals) {
                let outcome = self.run(&out, r, fixed)?;
                if let Some(d) = outcome.differs_from(original) {
                    failures.push(format!("{} {:?}: {d}", self.label(folder), r.args));
                }
                self.clean_outputs(folder);
            }
        }
        Ok(())
    }

    /// True for a program of Go, which has one version of each procedure.
    fn is_go(&self) -> bool {
        self.source.path.extension().is_some_and(|e| e == "go")
    }

    /// Number of the build among those of its source.
    fn number(&self) -> u64 {
        let variants = &self.source.variants;
        let number = variants.iter().position(|v| v.0 == self.variant.0);
        number.unwrap_or(0) as u64
    }

    /// The rewrites of this build, with their numbers: all at full depth. Otherwise successive builds share them, four at
    /// most, so that each rewrite is made of one build at least.
    fn jobs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sharing = if depth::is_full() {
            1
        } else {
            self.source.variants.len().clamp(1, SHARING) as u64
        };
        let own = self.number() % sharing;
        let numbered = JOBS.into_iter().zip(0..);
        numbered.filter(move |(_, index)| index % sharing == own)
    }

    /// A rewrite with these words by a shipped tool that accepts the program and the words, drawn by the build's name. It
    /// is made as `out`, and its figures go to `output`.
    fn drawn(&self, out: &Path, output: &Path, words: &[String]) -> Result<Job> {
        for tool in drawn::tools(1, &self.label("")) {
            let job = Job::With(Box::new(drawn::job(tool, output)), words.to_vec());
            let made = atom::instrument_once(&self.original(), out, &job, true);
            let is_refused = |e: &Error| {
                e.reason.contains("running the tool (")
                    || e.reason.contains("the tool changes the program")
            };
            if !made.as_ref().is_err_and(is_refused) {
                return Ok(job);
            }
        }
        let reason = "each tool refuses it";
        Err(Error::new("drawing a tool", reason).file(self.original()))
    }

    /// Output file of a job's tool; jobs that run at the same time have different names.
    fn output(&self, job: &str, process: &str) -> PathBuf {
        self.folder.join(format!("output-{job}-{process}"))
    }

    fn clean_outputs(&self, job: &str) {
        let prefix = format!("output-{job}-");
        for entry in std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // A file that cannot be removed is overwritten next time.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Steps through the original, unless that has been done since it was built. At full depth it
    /// does so twice: libraries must not matter.
    fn truth(&self) -> Result<Process> {
        let _lock = crate::lock::exclusive(&self.folder.join("truth.lock"))?;
        let kept = self.folder.join("truth");
        let modified = |p: &Path| std::fs::metadata(p).and_then(|m| m.modified()).ok();
        let exe = std::env::current_exe().map_err(|e| Error::new("finding this test", e))?;
        if modified(&kept) > modified(&self.original()).max(modified(&exe))
            && let Some(truth) = std::fs::read_to_string(&kept)
                .ok()
                .and_then(|t| Process::from_text(&t))
        {
            return Ok(truth);
        }
        let truth = self.step(true)?;
        if depth::is_full() {
            let slow = self.step(false)?;
            if slow.counts != truth.counts || slow.branches != truth.branches {
                let reason = "with libraries at full speed and stepped through, counts differ";
                return Err(Error::new("stepping the program", reason).file(self.original()));
            }
        }
        std::fs::write(&kept, truth.to_text())
            .map_err(|e| Error::new("keeping counts", e).file(&kept))?;
        Ok(truth)
    }

    fn step(&self, skip_libraries: bool) -> Result<Process> {
        let program = self.original();
        let mut command = Command::new(&program);
        plain_environment(&mut command);
        command
            .args(&self.source.runs[0].args)
            .current_dir(&self.folder)
            .stderr(std::process::Stdio::null());
        let options = Options {
            skip_libraries,
            capture: true,
            ..Options::default()
        };
        let start = std::time::Instant::now();
        let profile = stepper::run(&program, &mut command, options)?;
        profile.ended_as(self.source.runs[0].end)?;
        println!(
            "{}: {} steps in {:.1} s",
            self.label("stepper"),
            profile.steps,
            start.elapsed().as_secs_f64()
        );
        Ok(profile.processes.into_iter().next().unwrap_or_default())
    }

    /// The figures of both tools equal the stepper's.
    fn counts(&self, failures: &mut Vec<String>) -> Result<()> {
        self.stated_counts(failures)?;
        let truth = self.truth()?;
        let symbols = self.symbols()?;
        for folder in &JOBS[4..6] {
            let out = self.folder.join(folder).join("prog");
            let icount = *folder == JOBS[4];
            let pattern = self.output(folder, "%p");
            let job = if icount {
                Job::Icount(pattern)
            } else {
                Job::Branch(pattern)
            };
            let _lock = crate::lock::exclusive(&self.folder.join(folder).join("lock"))?;
            let (missed, report) = match atom::instrument_once(&self.original(), &out, &job, true) {
                Ok(made) => (Missed::from_report(&made.report), made.report),
                Err(e) => {
                    failures.push(format!("{}: {e}", self.label(folder)));
                    continue;
                }
            };
            self.missed_as_allowed(&truth, &missed, failures);
            let outcome = self.run(&out, &self.source.runs[0], true)?;
            let file = self.output(folder, &outcome.pid.to_string());
            let wrong = if icount {
                let counts = read_icount(&file);
                if let Ok(counts) = &counts {
                    self.partial_counts(&report, counts, &symbols, failures)?;
                }
                counts.map(|c| compare_icount(&truth, &c, &symbols, &missed))
            } else {
                read_branch(&file).map(|c| compare_branch(&truth, &c, &symbols, &missed))
            };
            // A file that cannot be removed does no harm: its name has the process id.
            let _ = std::fs::remove_file(&file);
            match wrong {
                Ok(None) => {}
                Ok(Some(text)) => failures.push(format!("{}: {text}", self.label(folder))),
                Err(e) => failures.push(format!("{}: {e}", self.label(folder))),
            }
        }
        Ok(())
    }

    /// The values that a tool is passed at each instruction equal the processor's.
    fn values(&self, failures: &mut Vec<String>) -> Result<()> {
        let folder = self.folder.join(VALUES);
        let [out, points] = ["prog", "points"].map(|name| folder.join(name));
        let records = self.output(VALUES, "records");
        let options = ["--registers", "--points", &points.to_string_lossy()].map(str::to_owned);
        let mut options = options.to_vec();
        options.extend([
            "--output".to_owned(),
            records.to_string_lossy().into_owned(),
        ]);
        let _lock = crate::lock::exclusive(&folder.join("lock"))?;
        let job = Job::Tool("trace".to_owned(), options);
        atom::instrument(&self.original(), &out, &job, true)?;
        self.run(&out, &self.source.runs[0], true)?;
        let seen = crate::values::read(&records)?;
        self.clean_outputs(VALUES);
        let points = crate::values::points(&points)?;
        let program = self.original();
        let mut command = Command::new(&program);
        plain_environment(&mut command);
        command
            .args(&self.source.runs[0].args)
            .current_dir(&self.folder);
        let mut step = |skip_libraries| {
            let wanted = Wanted {
                points: &points,
                registers: true,
                skip_libraries,
            };
            stepper::values::values(&program, &mut command, wanted)
        };
        let truth = step(true)?;
        if depth::is_full() && step(false)? != truth {
            failures.push(self.label("values: the quick stepper and the slow one differ"));
        }
        println!("{}: {} records", self.label("values"), seen.len());
        if let Some(text) = crate::values::compare(&truth, &seen) {
            failures.push(format!("{}: {text}", self.label("values")));
        }
        Ok(())
    }

    /// With half of the procedures instrumented, the others in place, their
    /// counts are the same as with all of them.
    fn partial_counts(
        &self,
        report: &serde_json::Value,
        full: &BTreeMap<u64, u64>,
        symbols: &Symbols,
        failures: &mut Vec<String>,
    ) -> Result<()> {
        let procs = report["procedures"]["list"].as_array();
        let range = |p: &serde_json::Value| {
            // With fewer pads more of them find space: a procedure that is partial in one rewrite may be full in the other.
            (p["status"].as_str()? == "full").then_some(())?;
            let hex = p["address"].as_str()?.strip_prefix("0x")?;
            let start = u64::from_str_radix(hex, 16).ok()?;
            Some((start, start + p["size"].as_u64()?))
        };
        let out = self.rewritten(PARTLY);
        let all: Vec<(u64, u64)> = procs.into_iter().flatten().filter_map(range).collect();
        for seed in 0..2 {
            let is_chosen =
                |start: u64| (start / 4 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0;
            let chosen: Vec<_> = all.iter().copied().filter(|r| is_chosen(r.0)).collect();
            if chosen.is_empty() {
                continue;
            }
            let label = self.label(&format!("{} of {} procedures", chosen.len(), all.len()));
            let job = Job::Partly(self.output(PARTLY, "%p"), chosen.clone());
            if let Err(e) = atom::instrument(&self.original(), &out, &job, true) {
                failures.push(format!("{label}: {e}"));
                continue;
            }
            let outcome = self.run(&out, &self.source.runs[0], true)?;
            let file = self.output(PARTLY, &outcome.pid.to_string());
            let mut counts = read_icount(&file);
            let _ = std::fs::remove_file(&file);
            if let Ok(counts) = &mut counts {
                counts.retain(|a, _| symbols.counts(*a));
            }
            let is_inside =
                |a: &u64| symbols.counts(*a) && chosen.iter().any(|r| (r.0..r.1).contains(a));
            let mut expected = full.clone();
            expected.retain(|a, _| is_inside(a));
            match counts {
                Ok(counts) if counts == expected => {}
                Ok(counts) => {
                    let at = expected.iter().find(|(a, n)| counts.get(a) != Some(*n));
                    let extra = counts.keys().find(|a| !expected.contains_key(a));
                    failures.push(format!("{label}: lacks {at:x?}, has {extra:x?} beyond"));
                }
                Err(e) => failures.push(format!("{label}: {e}")),
            }
        }
        Ok(())
    }

    /// Names of procedures. A stripped build has none, so the names come from the same build unstripped.
    fn symbols(&self) -> Result<Symbols> {
        let counted = self.source.counts_in.as_deref();
        let symbols = Symbols::read(&self.original());
        if !symbols.is_empty() {
            return Ok(symbols.counted_in(counted));
        }
        let twin = Variant(self.variant.0.replace("-strip", ""));
        let path = self.folder.join("twin");
        self.source.build(&twin, &path)?;
        Ok(Symbols::read(&path).counted_in(counted))
    }

    /// Procedures that ran and are not instrumented must be named in the source's `missed`.
    fn missed_as_allowed(&self, truth: &Process, missed: &Missed, failures: &mut Vec<String>) {
        for gap in &missed.0 {
            let ran = truth.counts.range(gap.start..gap.end).next().is_some();
            // Without symbols several procedures may appear as one, under another name.
            let nameless = self.variant.0.contains("strip") && !self.source.missed.is_empty();
            if ran && !nameless && !self.source.missed.contains(&gap.name) {
                let text = format!("{} is not instrumented: {}", gap.name, gap.reason);
                failures.push(format!("{}: {text}", self.label("counts")));
            }
        }
    }

    /// The stepper's figures equal those that the source states.
    fn stated_counts(&self, failures: &mut Vec<String>) -> Result<()> {
        let symbols = Symbols::read(&self.original());
        let truth = self.truth()?;
        for (name, expected, unoptimised) in &self.source.counts {
            if *unoptimised && !self.variant.0.contains("-O0") {
                continue;
            }
            let Some(address) = symbols.address(name) else {
                continue;
            };
            let got = truth.counts.get(&address).copied().unwrap_or(0);
            if got != *expected {
                failures.push(format!(
                    "{}: {name} ran {got} times, not {expected}",
                    self.label("stepper")
                ));
            }
        }
        Ok(())
    }
}

/// Builds of a test program that differ in kind: with a compiler's libraries or bare, at fixed addresses or not.
const FEW: [&str; 4] = ["gcc-O0", "gcc-O2", "gcc-bare", "gcc-barepie"];

/// Judges a few builds of the test program `name` ([`FEW`]), of `threads.c` one: it takes long to step through. Passes over a
/// program that needs another processor.
///
/// # Panics
/// A build fails, the program has none of these builds, or the judge finds something wrong.
pub fn check_few(name: &str, judge: impl Fn(&Case<'_>, &Source)) {
    let source = Source::named(name).unwrap();
    if !source.runs_here() {
        return;
    }
    let most = if name == "threads.c" { 1 } else { FEW.len() };
    let wanted = source
        .variants
        .iter()
        .filter(|v| FEW.contains(&v.0.as_str()));
    let mut judged = 0;
    for variant in wanted.take(most) {
        judge(&Case::build(&source, variant).unwrap(), &source);
        judged += 1;
    }
    assert!(judged > 0, "{name} has no such variant");
}

/// What to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Output, error output, exit code, signal.
    Behaviour,
    /// The stepper's figures against the figures that the source states, and the figures of both tools against the
    /// stepper's, for a few builds that differ in kind, or for all ([`depth`]).
    Counts,
    /// The stepper's figures against the figures that the source states, for its first variant.
    StatedCounts,
    /// The values that a tool is passed against the processor's, for the first variants that are
    /// linked dynamically, because their own code makes few steps.
    Values,
}

/// Makes one check of all variants of the test program `name`.
///
/// # Panics
/// With all failures in words, as tests do.
pub fn check(name: &str, what: Check) {
    let mut failures = Vec::new();
    let mut checked = 0;
    let result = (|| -> Result<()> {
        let source = Source::named(name)?;
        if !source.runs_here() {
            println!("{name}: skipped, this processor lacks {:?}", source.needs);
            checked = 1;
            return Ok(());
        }
        let all: Vec<&Variant> = source.variants.iter().collect();
        let (variants, most) = match what {
            _ if depth::is_full() => (all, usize::MAX),
            Check::Behaviour => (all, usize::MAX),
            Check::Counts => (depth::few(&source.variants), usize::MAX),
            Check::StatedCounts => (all, 1),
            Check::Values => (all, 2),
        };
        // Start-up code of static programs reads their headers, which have changed.
        // The tool leaves `_fini` out by its name, because the frame of atom's code is above the frame of `_fini`.
        let unfit = |v: &Variant| v.0.contains("static") || v.0.contains("strip");
        let wanted = |v: &&Variant| what != Check::Values || !unfit(v);
        for variant in variants.into_iter().filter(wanted).take(most) {
            let case = Case::build(&source, variant)?;
            checked += 1;
            match what {
                Check::Behaviour => case.behaviour(&mut failures)?,
                Check::Counts if source.uncountable.contains(&variant.0) => {}
                Check::Counts => case.counts(&mut failures)?,
                Check::Values => case.values(&mut failures)?,
                Check::StatedCounts => case.stated_counts(&mut failures)?,
            }
        }
        Ok(())
    })();
    if let Err(e) = result {
        failures.push(e.to_string());
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(checked > 0, "{name}: it has no variant for this check");
}
