//! Caches and translation buffers simulated from a single-step trace, as judges of the
//! tools that simulate them.
//!
//! The models are simple: each set is a list with the last used entry first. Each thread has its own
//! model, as if it ran on its own core. An instruction counts if it is in the program itself, in a procedure
//! that the tool could instrument.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::atom::{self, Job};
use crate::check::Case;
use crate::counts::{self, Missed, Symbols};
use crate::error::{Error, Result};
use crate::outcome::plain_environment;
use crate::source::{End, Source};
use crate::stepper::{self, Options, Step};

/// Accesses and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of references; a reference that reaches into several lines counts once in each.
    pub references: u64,
    /// Number of references whose line was not in the cache.
    pub misses: u64,
    /// Number of these whose line was not in the second level either; 0 without one.
    pub beyond: u64,
}

/// A cache, or with one set a translation buffer.
#[derive(Clone, Debug)]
pub struct Model {
    sets: Vec<Vec<u64>>,
    ways: usize,
    line: u64,
    second: Option<Box<Model>>,
}

impl Model {
    /// An empty cache with this number of sets, entries in each set, and bytes in a line.
    pub fn new(sets: usize, ways: usize, line: u64) -> Self {
        Self {
            sets: vec![Vec::new(); sets],
            ways,
            line,
            second: None,
        }
    }

    /// The same cache with a second level, to which a line that is missed is a reference.
    pub fn with_second(mut self, second: Model) -> Self {
        self.second = Some(Box::new(second));
        self
    }

    /// Accesses `size` bytes at an address, and adds to the figures.
    pub fn access(&mut self, address: u64, size: u64, figures: &mut Figures) {
        for line in address / self.line..=(address + size - 1) / self.line {
            let number = line as usize % self.sets.len();
            let set = &mut self.sets[number];
            figures.references += 1;
            match set.iter().position(|other| *other == line) {
                Some(place) => drop(set.remove(place)),
                None => {
                    figures.misses += 1;
                    if let Some(second) = &mut self.second {
                        let mut own = Figures::default();
                        second.access(line * self.line, 1, &mut own);
                        figures.beyond += own.misses;
                    }
                }
            }
            set.insert(0, line);
            set.truncate(self.ways);
        }
    }
}

/// A tool with options, and the model with which it must agree.
#[derive(Clone, Debug)]
pub struct Question {
    /// The tool.
    pub tool: &'static str,
    /// Its options.
    pub options: &'static [&'static str],
    /// The model, empty.
    pub model: Model,
    /// Whether instructions are fetched through it, rather than data.
    pub fetches: bool,
}

/// A question, and the data to answer it by the stepper.
struct Asked<'a> {
    question: &'a Question,
    /// Procedures that the tool could not instrument.
    missed: Missed,
    /// One model for each thread.
    models: HashMap<i32, Model>,
    /// Figures of the models, by address of the instruction.
    truth: BTreeMap<u64, Figures>,
}

impl Asked<'_> {
    fn step(&mut self, step: &Step<'_>) {
        if self.missed.around(step.pc).is_some() {
            return;
        }
        let model = self.models.entry(step.thread);
        let model = model.or_insert_with(|| self.question.model.clone());
        let figures = self.truth.entry(step.pc).or_default();
        if self.question.fetches {
            if !step.repeated {
                model.access(step.pc, step.len as u64, figures);
            }
            return;
        }
        for r in step.references {
            model.access(r.address, r.size.into(), figures);
        }
    }
}

/// Steps through a program once and feeds the models of all questions.
fn answer(program: &Path, command: &mut Command, asked: &mut [Asked<'_>], end: End) -> Result<()> {
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut tell = |step: &Step<'_>| asked.iter_mut().for_each(|asked| asked.step(step));
    stepper::watch(program, command, options, &mut tell)?.ended_as(end)?;
    for asked in asked {
        asked.truth.retain(|_, figures| figures.references != 0);
    }
    Ok(())
}

/// A table of a tool's JSON.
pub fn read(path: &Path, table: &str) -> Result<BTreeMap<u64, Figures>> {
    let fail = |reason: String| Error::new("reading the tool's output", reason).file(path);
    let text = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
    let rows = json[table]
        .as_array()
        .ok_or_else(|| fail("it has no table of instructions".into()))?;
    let row = |row: &serde_json::Value| {
        let pc = counts::key(row["pc"].as_str()?)?;
        let figures = Figures {
            references: row["references"].as_u64()?,
            misses: row["misses"].as_u64()?,
            beyond: row["L2_misses"].as_u64().unwrap_or(0),
        };
        Some((pc, figures))
    };
    let all: Option<BTreeMap<u64, Figures>> = rows.iter().map(row).collect();
    all.ok_or_else(|| fail("a row is not as it should be".into()))
}

/// Compares the figures of a tool for a test program with the model, instruction by instruction.
/// `variants` chooses builds by their names. In programs with threads only references are compared,
/// because a thread may continue with the cache of a thread that has ended.
///
/// # Panics
/// With all differences in words, as tests do.
pub fn check(name: &str, variants: impl Fn(&str) -> bool, questions: &[Question]) {
    let mut failures = Vec::new();
    let mut checked = 0;
    let result = (|| -> Result<()> {
        let source = Source::named(name)?;
        if !source.runs_here() {
            println!("{name}: skipped, this processor lacks {:?}", source.needs);
            checked = 1;
            return Ok(());
        }
        for variant in source.variants.iter().filter(|v| variants(&v.0)) {
            let case = Case::build(&source, variant)?;
            checked += questions.len();
            failures.extend(case_failures(&case, &source, questions)?);
        }
        Ok(())
    })();
    if let Err(e) = result {
        failures.push(e.to_string());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        checked > 0,
        "{name}: none of its variants can be built here"
    );
}

/// Differences between the tool's figures and the models' for one build, in words.
fn case_failures(case: &Case<'_>, source: &Source, questions: &[Question]) -> Result<Vec<String>> {
    let _lock = crate::lock::exclusive(&case.folder().join("model.lock"))?;
    let mut asked = Vec::new();
    let mut tables = Vec::new();
    for (number, question) in questions.iter().enumerate() {
        let (table, missed) = tool(case, source, number, question)?;
        tables.push(table);
        asked.push(Asked {
            question,
            missed,
            models: HashMap::new(),
            truth: BTreeMap::new(),
        });
    }
    let run = &source.runs[0];
    let original = case.original();
    let mut command = Command::new(&original);
    plain_environment(&mut command);
    command
        .args(&run.args)
        .current_dir(case.folder())
        .stderr(Stdio::null());
    answer(&original, &mut command, &mut asked, run.end)?;
    let symbols = Symbols::read(&original);
    let only_references = source.name() == "threads.c";
    let failures = asked.iter().zip(&tables).filter_map(|(asked, table)| {
        let text = differences(&asked.truth, table, only_references, &symbols)?;
        let Question { tool, options, .. } = asked.question;
        Some(format!("{} {tool} {options:?}: {text}", case.label("")))
    });
    Ok(failures.collect())
}

/// Figures of the tool for a build, and the procedures that it could not instrument.
fn tool(
    case: &Case<'_>,
    source: &Source,
    number: usize,
    question: &Question,
) -> Result<(BTreeMap<u64, Figures>, Missed)> {
    let out = case.rewritten(&format!("modl{number}"));
    let json = case.folder().join("model.json");
    let mut options: Vec<String> = question.options.iter().map(|o| o.to_string()).collect();
    options.extend(["--json".into(), json.display().to_string()]);
    let folder = out.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| Error::new("making a folder", e).file(folder))?;
    let job = Job::Tool(question.tool.into(), options);
    let made = atom::instrument_once(&case.original(), &out, &job, true)?;
    case.run(&out, &source.runs[0], true)?;
    let table = if question.fetches {
        "fetch_instructions"
    } else {
        "instructions"
    };
    let figures = read(&json, table)?;
    // A file that cannot be removed is overwritten next time.
    let _ = std::fs::remove_file(&json);
    Ok((figures, Missed::from_report(&made.report)))
}

/// Differences between a model and a tool, in words.
fn differences(
    truth: &BTreeMap<u64, Figures>,
    tool: &BTreeMap<u64, Figures>,
    only_references: bool,
    symbols: &Symbols,
) -> Option<String> {
    let comparable = |figures: Option<&Figures>| {
        let mut figures = figures.copied().unwrap_or_default();
        if only_references {
            (figures.misses, figures.beyond) = (0, 0);
        }
        figures
    };
    let mut addresses: Vec<u64> = truth.keys().chain(tool.keys()).copied().collect();
    addresses.sort_unstable();
    addresses.dedup();
    let wrong: Vec<String> = addresses
        .iter()
        .filter(|a| comparable(truth.get(a)) != comparable(tool.get(a)))
        .map(|a| {
            let place = symbols.describe(*a);
            format!(
                "\n    {place}: model {:?}, tool {:?}",
                truth.get(a),
                tool.get(a)
            )
        })
        .collect();
    if truth.is_empty() {
        return Some("the model saw nothing".into());
    }
    let shown: String = wrong.iter().take(8).map(String::as_str).collect();
    (!wrong.is_empty()).then(|| format!("{} of {} differ{shown}", wrong.len(), addresses.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a direct-mapped cache of two lines of 16 bytes.
    #[test]
    fn a_small_cache() {
        let (mut model, mut f) = (Model::new(2, 1, 16), Figures::default());
        for (address, size, references, misses) in [
            (0x100, 4, 1, 1), // into set 0
            (0x10c, 4, 1, 0), // its last bytes
            (0x10e, 4, 2, 1), // and the first of the next line, in set 1
            (0x120, 1, 1, 1), // set 0 again, another line
            (0x100, 1, 1, 1), // which it replaced
            (0x11f, 1, 1, 0),
        ] {
            let before = f;
            model.access(address, size, &mut f);
            assert_eq!(f.references - before.references, references, "{address:#x}");
            assert_eq!(f.misses - before.misses, misses, "{address:#x}");
        }
    }

    /// By hand: two lines of 16 bytes, then four of 32.
    #[test]
    fn two_levels() {
        let (model, mut f) = (Model::new(2, 1, 16), Figures::default());
        let mut model = model.with_second(Model::new(1, 4, 32));
        for address in [0x100, 0x110, 0x120, 0x100, 0x100] {
            model.access(address, 8, &mut f);
        }
        // The second line is in the first one's line of the second level.
        assert_eq!((f.references, f.misses, f.beyond), (5, 4, 2));
    }

    /// The least recently used of two is replaced.
    #[test]
    fn least_recently_used() {
        let (mut model, mut f) = (Model::new(1, 2, 4096), Figures::default());
        for page in [1, 2, 1, 3, 1, 2] {
            model.access(page * 4096, 8, &mut f);
        }
        assert_eq!((f.references, f.misses), (6, 4));
    }
}
