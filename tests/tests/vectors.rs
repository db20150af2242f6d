//! The vectors of the tool `bbv` equal those of a single-stepper, interval by interval and block by block.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

use atom_tests::atom::{self, Job};
use atom_tests::check::{Case, check_few};
use atom_tests::error::{Error, Result};
use atom_tests::outcome::plain_environment;
use atom_tests::source::Source;
use atom_tests::stepper::{self, Options, Step};

/// Instructions by the number of their block.
type Vector = BTreeMap<u64, u64>;

/// A block, as the tool describes it.
#[derive(Clone, Copy)]
struct Block {
    id: u64,
    insts: u64,
}

fn read(path: &Path) -> Result<String> {
    let fail = |e: std::io::Error| Error::new("reading the tool's output", e).file(path);
    std::fs::read_to_string(path).map_err(fail)
}

/// The vectors of a file: lines of `T:id:count :id:count `.
fn vectors(path: &Path) -> Result<Vec<Vector>> {
    let vector = |line: &str| {
        let pairs = line.strip_prefix('T').expect("a line begins with T");
        let pair = |pair: &str| {
            let (id, count) = pair.strip_prefix(':')?.split_once(':')?;
            Some((id.parse().ok()?, count.parse().ok()?))
        };
        let pair = |text| pair(text).unwrap_or_else(|| panic!("{text} in {line}"));
        pairs.split_whitespace().map(pair).collect()
    };
    Ok(read(path)?.lines().map(vector).collect())
}

/// The blocks of a file by their addresses.
fn blocks(path: &Path) -> Result<HashMap<u64, Block>> {
    let text = read(path)?;
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("id\tobject\taddress\tbytes\tinstructions\tprocedure")
    );
    let block = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let address = u64::from_str_radix(fields[2].trim_start_matches("0x"), 16).unwrap();
        let [id, insts] = [fields[0], fields[4]].map(|field| field.parse().unwrap());
        (address, Block { id, insts })
    };
    Ok(lines.map(block).collect())
}

/// The vectors of a thread, as the stepper fills them.
#[derive(Default)]
struct Thread {
    vectors: Vec<Vector>,
    insts: u64,
}

impl Thread {
    /// Adds an execution. An interval ends with the block that reaches a multiple of the interval's length.
    fn execute(&mut self, block: Block, interval: u64) {
        if self.vectors.is_empty() {
            self.vectors.push(Vector::new());
        }
        let before = self.insts / interval;
        self.insts += block.insts;
        let last = self.vectors.last_mut().expect("one was pushed");
        *last.entry(block.id).or_default() += block.insts;
        if self.insts / interval != before {
            self.vectors.push(Vector::new());
        }
    }
}

fn judge(case: &Case<'_>, source: &Source, interval: u64) -> Result<()> {
    let label = case.label(&format!("intervals of {interval}"));
    let _lock = atom_tests::lock::exclusive(&case.folder().join("vectors.lock"))?;
    let file = |name: &str| case.folder().join(name);
    let folder = file("bbvec");
    std::fs::create_dir_all(&folder).map_err(|e| Error::new("making a folder", e))?;
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        // A file that cannot be removed fails the comparison below.
        let _ = std::fs::remove_file(entry.path());
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let options = [
        ("--interval", interval.to_string()),
        ("--vectors", path("vectors")),
        ("--blocks", path("blocks")),
        ("--output", path("report")),
    ];
    let options = options
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value]);
    let job = Job::Tool("bbv".into(), options.collect());
    let out = case.rewritten("bbvec");
    atom::instrument(&case.original(), &out, &job, true)?;
    case.run(&out, &source.runs[0], true)?;
    let known = blocks(&folder.join("blocks"))?;
    let mut found = vec![vectors(&folder.join("vectors"))?];
    while let Ok(more) = vectors(&folder.join(format!("vectors.thread{}", found.len() + 1))) {
        found.push(more);
    }

    let mut command = Command::new(case.original());
    plain_environment(&mut command);
    command
        .args(&source.runs[0].args)
        .current_dir(case.folder())
        .stderr(Stdio::null());
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut order = Vec::new();
    let mut threads: HashMap<i32, Thread> = HashMap::new();
    let mut tell = |step: &Step<'_>| {
        if let Some(block) = known.get(&step.pc).filter(|_| !step.repeated) {
            let thread = threads.entry(step.thread).or_insert_with(|| {
                order.push(step.thread);
                Thread::default()
            });
            thread.execute(*block, interval);
        }
    };
    stepper::watch(&case.original(), &mut command, options, &mut tell)?
        .ended_as(source.runs[0].end)?;
    if order.len() > 1 {
        // Threads run in another order, and one may continue with the state of another that has ended.
        let sum = |all: &[Vector]| {
            let mut sum = Vector::new();
            let pairs = all.iter().flatten();
            pairs.for_each(|(id, count)| *sum.entry(*id).or_default() += count);
            sum
        };
        let expected: Vec<Vector> = threads.into_values().flat_map(|t| t.vectors).collect();
        assert_eq!(sum(&found.concat()), sum(&expected), "{label}");
        return Ok(());
    }
    let expected = threads.into_values().next().unwrap_or_default().vectors;
    let expected: Vec<Vector> = expected.into_iter().filter(|v| !v.is_empty()).collect();
    assert_eq!(found.len(), 1, "{label}");
    assert_eq!(
        found[0].len(),
        expected.len(),
        "{label}: number of intervals"
    );
    for (number, (found, expected)) in found[0].iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{label}: interval {number}");
    }
    println!("{label}: {} intervals", expected.len());
    Ok(())
}

fn check(name: &str) {
    check_few(name, |case, source| {
        // The first is shorter than a block, the second than what is left to parts, the third is divided into parts.
        for interval in [3, 1000, 20_011] {
            judge(case, source, interval).unwrap();
        }
    });
}

tests_of_programs! {
    check;
    deep_c: "deep.c",
    flags_s: "flags.S",
    interrupts_c: "interrupts.c",
    jumps_c: "jumps.c",
    jumptables_c: "jumptables.c",
    strings_c: "strings.c",
    threads_c: "threads.c",
}
