//! The judge of the tool `ranges`: a list of ranges, which is searched at each reference of a
//! single-step trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts::Missed;
use atom_tests::error::{Error, Result};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::stepper::{self, Options, Step};

/// Load address of position-independent programs without address randomisation.
const PIE: u64 = 0x5555_5555_4000;

/// References of an instruction to a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of loads of at least one byte of the range.
    pub loads: u64,
    /// Number of stores to at least one byte of the range.
    pub stores: u64,
    /// Number of its bytes that were loaded and stored.
    pub bytes: u64,
}

/// By range and address of the instruction.
pub type Table = BTreeMap<(String, u64), Figures>;

/// A range of addresses of the file, or with `absolute` of the process.
#[derive(Clone, Debug)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The program's load address is not added.
    pub absolute: bool,
}

impl Range {
    fn word(&self) -> String {
        format!("{:#x}..{:#x}", self.start, self.end)
    }
}

/// Cuts memory into ranges of various sizes and places, some of which overlap.
pub fn cut(start: u64, end: u64, count: u64, absolute: bool) -> Vec<Range> {
    let step = ((end - start) / count).max(3) | 1;
    let mut ranges = Vec::new();
    for i in 0..count {
        let from = start + i * step;
        // Between one and the next there is a gap of some bytes, or an overlap.
        let to = (from + step + i % 7).saturating_sub(3).min(end);
        if from + 1 < to {
            ranges.push(Range {
                start: from,
                end: to,
                absolute,
            });
        }
    }
    ranges
}

/// The writable part of a program's image, and whether it is position independent.
pub fn data_of(program: &Path) -> Result<((u64, u64), bool)> {
    use object::{Object, ObjectSegment, SegmentFlags};
    let fail = |e: String| Error::new("reading a program", e).file(program);
    let bytes = std::fs::read(program).map_err(|e| fail(e.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|e| fail(e.to_string()))?;
    let writable = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(object::elf::PF_W));
    let segments = file.segments().filter(|s| writable(s.flags()));
    let bounds: Vec<(u64, u64)> = segments
        .map(|s| (s.address(), s.address() + s.size()))
        .collect();
    let start = bounds.iter().map(|b| b.0).min();
    let end = bounds.iter().map(|b| b.1).max();
    let is_pie = file.kind() == object::ObjectKind::Dynamic;
    start
        .zip(end)
        .map(|bounds| (bounds, is_pie))
        .ok_or_else(|| fail("it has no data".into()))
}

/// The figures of the list.
pub fn truth(
    program: &Path,
    command: &mut Command,
    ranges: &[Range],
    is_pie: bool,
    missed: &Missed,
) -> Result<Table> {
    let base = if is_pie { PIE } else { 0 };
    let mut table = Table::new();
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut tell = |step: &Step<'_>| {
        if missed.around(step.pc).is_some() {
            return;
        }
        for r in step.references {
            for range in ranges {
                let base = if range.absolute { 0 } else { base };
                let low = r.address.max(range.start + base);
                let high = (r.address + u64::from(r.size)).min(range.end + base);
                if low < high {
                    let figures = table.entry((range.word(), step.pc)).or_default();
                    let both = [r.reads, r.writes];
                    figures.loads += u64::from(r.reads);
                    figures.stores += u64::from(r.writes);
                    figures.bytes += (high - low) * both.iter().filter(|b| **b).count() as u64;
                }
            }
        }
    };
    stepper::watch(program, command, options, &mut tell)?;
    Ok(table)
}

/// The figures of the tool.
pub fn read(path: &Path) -> Result<Table> {
    let fail = |reason: String| Error::new("reading the tool's output", reason).file(path);
    let text = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
    let rows = json["instructions"].as_array();
    let rows = rows.ok_or_else(|| fail("it has no table of instructions".into()))?;
    let row = |row: &serde_json::Value| {
        let pc = u64::from_str_radix(row["pc"].as_str()?.strip_prefix("0x")?, 16).ok()?;
        let figures = Figures {
            loads: row["loads"].as_u64()?,
            stores: row["stores"].as_u64()?,
            bytes: row["bytes"].as_u64()?,
        };
        Some(((row["range"].as_str()?.to_owned(), pc), figures))
    };
    let table: Option<Table> = rows.iter().map(row).collect();
    let mut table = table.ok_or_else(|| fail("a row is not as it should be".into()))?;
    // A row with misses only is not a reference.
    table.retain(|_, f| *f != Figures::default());
    Ok(table)
}

/// Runs a program without and with the tool, at the same addresses, and compares. Returns the
/// number of touched ranges.
///
/// # Panics
/// With the differences in words, as tests do.
pub fn compare(
    folder: &Path,
    file: &Path,
    args: &[&str],
    ranges: &[Range],
    options: &[&str],
) -> Result<usize> {
    let fail = |e: std::io::Error| Error::new("making a folder", e).file(folder);
    // The paths have the same length, because they move the stack.
    let (original, out) = (folder.join("orig0/prog"), folder.join("rngs0/prog"));
    for path in [&original, &out] {
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(fail)?;
    }
    std::fs::copy(file, &original).map_err(fail)?;
    let (list, json) = (folder.join("list"), folder.join("ranges.json"));
    let words: Vec<String> = ranges.iter().map(Range::word).collect();
    std::fs::write(&list, words.join("\n")).map_err(fail)?;
    let mut all = vec!["--data".into(), format!("@{}", list.display())];
    all.extend(["--json".into(), json.display().to_string()]);
    all.extend(options.iter().map(|o| o.to_string()));
    let made = atom::instrument(&original, &out, &Job::Tool("ranges".into(), all), true)?;
    let missed = Missed::from_report(&made.report);
    let command = |path: &Path| {
        let mut command = Command::new(path);
        plain_environment(&mut command);
        command.args(args).current_dir(folder);
        command
    };
    let mut stepped = command(&original);
    stepped
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let (_, is_pie) = data_of(&original)?;
    let truth = truth(&original, &mut stepped, ranges, is_pie, &missed)?;
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    run(&mut command(&out), &setting)?;
    let tool = read(&json)?;
    let keys: std::collections::BTreeSet<_> = truth.keys().chain(tool.keys()).collect();
    let wrong: Vec<String> = keys
        .iter()
        .filter(|k| truth.get(k) != tool.get(k))
        .map(|k| format!("{k:x?}: stepper {:?}, tool {:?}", truth.get(k), tool.get(k)))
        .collect();
    let shown = &wrong[..wrong.len().min(8)];
    assert!(
        wrong.is_empty(),
        "{}: {} of {} differ\n{}",
        file.display(),
        wrong.len(),
        keys.len(),
        shown.join("\n")
    );
    let names: std::collections::BTreeSet<&String> = truth.keys().map(|k| &k.0).collect();
    Ok(names.len())
}
