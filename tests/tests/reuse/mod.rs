//! The tool `reuse` gives the distances of a list that is searched from its start for each reference of a single-stepper,
//! and the misses of the tool `cache` with a fully associative cache.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

use atom_tests::atom::{self, Job};
use atom_tests::check::{Case, check_few};
use atom_tests::counts::Missed;
use atom_tests::outcome::plain_environment;
use atom_tests::source::{Source, Variant};
use atom_tests::stepper::{self, Options, Step};
use serde_json::Value;

const LINE: u64 = 64;

/// References by distance; `None` for first touches. Distances of a bin count as its smallest one.
type Histogram = BTreeMap<Option<u64>, u64>;

/// The smallest distance of a bin: below 16 each has its own, from there on each power of two has eight.
fn smallest(distance: u64) -> u64 {
    let mut width = 1;
    while width * 16 <= distance {
        width *= 2;
    }
    distance / width * width
}

/// Runs a build with a tool; returns its JSON and the procedures that it could not instrument.
fn run(case: &Case<'_>, source: &Source, tool: &str, options: &[&str]) -> (Value, Missed) {
    let out = case.rewritten("reuse");
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let json = case.folder().join("reuse.json");
    // A file that is not there is made.
    let _ = std::fs::remove_file(&json);
    let mut words: Vec<String> = options.iter().map(|o| o.to_string()).collect();
    words.extend(["--json".into(), json.display().to_string()]);
    let job = Job::Tool(tool.into(), words);
    let made = atom::instrument(&case.original(), &out, &job, true).unwrap();
    case.run(&out, &source.runs[0], true).unwrap();
    let json = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (json, Missed::from_report(&made.report))
}

fn rows<'a>(json: &'a Value, table: &str) -> &'a [Value] {
    json[table]
        .as_array()
        .unwrap_or_else(|| panic!("{table} in {json}"))
}

fn histogram(json: &Value) -> Histogram {
    let row = |row: &Value| {
        let distance = row["distance"].as_str().unwrap();
        (distance.parse().ok(), row["references"].as_u64().unwrap())
    };
    rows(json, "distances").iter().map(row).collect()
}

/// A thread as the judge knows it.
#[derive(Default)]
struct Thread {
    /// Lines, the last used one first.
    list: Vec<u64>,
    /// Lines of the current interval.
    touched: Vec<u64>,
    references: u64,
    /// Numbers of different lines of the intervals.
    intervals: Vec<u64>,
}

impl Thread {
    fn touch(&mut self, line: u64, interval: u64, histogram: &mut Histogram) {
        let place = self.list.iter().position(|other| *other == line);
        place.map(|place| self.list.remove(place));
        self.list.insert(0, line);
        let distance = place.map(|place| smallest(place as u64));
        *histogram.entry(distance).or_default() += 1;
        if !self.touched.contains(&line) {
            self.touched.push(line);
        }
        self.references += 1;
        if self.references.is_multiple_of(interval) {
            self.intervals.push(self.touched.len() as u64);
            self.touched.clear();
        }
    }
}

/// The distances of all references, and the working sets of the first thread.
fn truth(
    case: &Case<'_>,
    source: &Source,
    missed: &Missed,
    interval: u64,
) -> (Histogram, Vec<u64>) {
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
    let mut threads: HashMap<i32, Thread> = HashMap::new();
    let mut first = None;
    let mut histogram = Histogram::new();
    let mut tell = |step: &Step<'_>| {
        if missed.around(step.pc).is_some() {
            return;
        }
        first.get_or_insert(step.thread);
        let thread = threads.entry(step.thread).or_default();
        for r in step.references {
            for line in r.address / LINE..=(r.address + u64::from(r.size) - 1) / LINE {
                thread.touch(line, interval, &mut histogram);
            }
        }
    };
    let profile = stepper::watch(&case.original(), &mut command, options, &mut tell).unwrap();
    profile.ended_as(source.runs[0].end).unwrap();
    let mut first = threads.remove(&first.unwrap()).unwrap();
    if !first.touched.is_empty() {
        first.intervals.push(first.touched.len() as u64);
    }
    (histogram, first.intervals)
}

fn judge(case: &Case<'_>, source: &Source) {
    const INTERVAL: u64 = 500;
    let label = case.label("reuse");
    let _lock = atom_tests::lock::exclusive(&case.folder().join("reuse.lock")).unwrap();
    // Repeated instructions make all references to a line at once, so an interval may end later.
    let has_repeats = source.name() == "strings.c";
    let options: &[&str] = if has_repeats {
        &[]
    } else {
        &["--interval", "500"]
    };
    let (json, missed) = run(case, source, "reuse", options);
    let (expected, intervals) = truth(case, source, &missed, INTERVAL);
    let found = histogram(&json);
    if source.name() == "threads.c" {
        // A thread may go on with the stack of one that has ended.
        let sum = |all: &Histogram| all.values().sum::<u64>();
        assert_eq!(sum(&found), sum(&expected), "{label}");
        return;
    }
    assert_eq!(found, expected, "{label}");
    if !has_repeats {
        let sets = rows(&json, "working_set").iter();
        let found: Vec<u64> = sets.map(|row| row["lines"].as_u64().unwrap()).collect();
        assert_eq!(found, intervals, "{label}");
    }
    for table in ["procedures", "data"] {
        let all = rows(&json, table).iter();
        let sum: u64 = all.map(|row| row["references"].as_u64().unwrap()).sum();
        assert_eq!(sum, expected.values().sum::<u64>(), "{label}: {table}");
    }
    for lines in [8u64, 64, 512] {
        let (size, ways) = ((lines * LINE).to_string(), lines.to_string());
        let options = [
            "--preset", "atom", "--line", "64", "--size", &size, "--ways", &ways,
        ];
        let (cache, _) = run(case, source, "cache", &options);
        let ratio = rows(&json, "miss_ratios").iter();
        let row = ratio
            .rev()
            .find(|row| row["lines"].as_u64().unwrap() <= lines);
        assert_eq!(
            row.unwrap()["misses"],
            cache["misses"],
            "{label}: {lines} lines"
        );
    }
}

fn check(name: &str) {
    check_few(name, judge);
}

tests_of_programs! {
    check;
    asmpush_c: "asmpush.c",
    callpop_s: "callpop.S",
    deep_c: "deep.c",
    jumps_c: "jumps.c",
    order_s: "order.S",
    redzone_s: "redzone.S",
    strings_c: "strings.c",
    threads_c: "threads.c",
    vectors_c: "vectors.c",
}

/// A sample's miss ratios are near the exact ones, by a few of the errors that the report states.
#[test]
fn samples_state_their_error() {
    let folder = atom_tests::cache::folder("reuse-sample");
    let Some(bzip2) = atom_tests::programs::in_path("bzip2") else {
        return;
    };
    let text: Vec<u8> = (0..40_000u32)
        .flat_map(|n| (n * n % 977).to_string().into_bytes())
        .collect();
    std::fs::write(folder.join("text"), text).unwrap();
    let of = |options: &[&str]| -> Value {
        let out = folder.join("sampled");
        let json = folder.join("sampled.json");
        let mut words: Vec<String> = options.iter().map(|o| o.to_string()).collect();
        words.extend(["--json".into(), json.display().to_string()]);
        let job = Job::Whole(Box::new(Job::Tool("reuse".into(), words)), Vec::new());
        atom::instrument(&bzip2, &out, &job, false).unwrap();
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        command.args(["-k", "-f", "text"]).current_dir(&folder);
        let setting = atom_tests::outcome::Setting::default();
        atom_tests::outcome::run(&mut command, &setting).unwrap();
        read(&json)
    };
    let exact = of(&[]);
    let sample = of(&["--sample", "10"]);
    let by_size = |json: &Value, column: &str| -> BTreeMap<u64, f64> {
        let row = |row: &Value| Some((row["lines"].as_u64()?, row[column].as_f64()?));
        rows(json, "miss_ratios").iter().filter_map(row).collect()
    };
    let (exact, near) = (
        by_size(&exact, "miss_percent"),
        by_size(&sample, "miss_percent"),
    );
    let errors = by_size(&sample, "error_percent");
    let mut compared = 0;
    // Below some hundred lines a distance in the sample is mostly 0.
    for (lines, exact) in exact.iter().filter(|(lines, _)| **lines >= 256) {
        if let (Some(near), Some(error)) = (near.get(lines), errors.get(lines)) {
            assert!(
                (near - exact).abs() <= 4.0 * error + 0.5,
                "{lines}: {near}, {exact}, {error}"
            );
            compared += 1;
        }
    }
    assert!(compared > 3, "{exact:?} {near:?}");
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Callers, references, blocks and bytes of a row of data.
type Blocks = (String, [u64; 3]);

/// The rows that the source expects in a case: one of its words in front of the kind, or none.
fn expected(case: &str) -> Vec<Blocks> {
    let source = include_str!("programs/heap.c").lines();
    let lines = source.filter_map(|line| line.strip_prefix("// expect ")?.split_once(" = "));
    let rows = lines.filter_map(|(name, numbers)| {
        let name = match case {
            "" => name,
            case => name.strip_prefix(case)?.trim_start(),
        };
        let (kind, callers) = name.split_once(' ')?;
        let is_it = ["heap", "mapped"].contains(&kind);
        let callers = callers.split(' ').collect::<Vec<_>>().join(" < ");
        let mut numbers = numbers.split(' ').map(|n| n.parse().unwrap());
        let numbers = std::array::from_fn(|_| numbers.next().unwrap());
        is_it.then(|| (format!("{kind}: {callers}"), numbers))
    });
    rows.collect()
}

/// The rows of blocks in a report, without lines of the source and what calls `main`.
fn found(json: &Value) -> BTreeMap<String, [u64; 3]> {
    let mut found: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in rows(json, "data") {
        let callers = row["data"].as_str().unwrap().split(" < ");
        let callers = callers.map(|caller| caller.split(" (").next().unwrap());
        let mut callers: Vec<&str> = callers.collect();
        if let Some(main) = callers.iter().position(|name| name.ends_with("main")) {
            callers.truncate(main + 1);
        }
        let sum = found.entry(callers.join(" < ")).or_default();
        for (sum, column) in sum.iter_mut().zip(["references", "blocks", "size"]) {
            *sum += row[column].as_u64().unwrap_or(0);
        }
    }
    found
}

/// References to blocks are those of the source, in all builds, alone and as whole processes, in threads and in children.
#[test]
fn blocks_of_the_heap_are_told_apart() {
    let folder = atom_tests::cache::folder("reuse-heap");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reuse/programs/heap.c");
    let builds: [(&str, &str, &[&str]); 5] = [
        ("gcc-O0", "gcc", &["-O0"]),
        ("gcc-O2", "gcc", &["-O2"]),
        ("clang-O1", "clang", &["-O1"]),
        ("static", "gcc", &["-O2", "-static"]),
        ("fixed", "gcc", &["-O3", "-no-pie"]),
    ];
    for (name, compiler, flags) in builds {
        let folder = folder.join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("heap");
        let mut command = Command::new(compiler);
        command.args(["-g", "-pthread"]).args(flags).arg(&source);
        let status = command.arg("-o").arg(&program).status().unwrap();
        assert!(status.success());
        for is_whole in [false, true] {
            if is_whole && name == "static" {
                continue;
            }
            judge_blocks(&folder, name, is_whole);
        }
    }
}

fn judge_blocks(folder: &Path, name: &str, is_whole: bool) {
    let label = format!("{name} {is_whole}");
    let folder = folder.join(if is_whole { "whole" } else { "alone" });
    std::fs::create_dir_all(&folder).unwrap();
    let (out, json) = (folder.join("out"), folder.join("json"));
    let run = |options: &[&str]| -> (Value, Value) {
        let mut words: Vec<String> = options.iter().map(|o| o.to_string()).collect();
        words.extend(["--json".into(), json.display().to_string()]);
        let mut job = Job::Tool("reuse".into(), words);
        if is_whole {
            job = Job::Whole(Box::new(job), Vec::new());
        }
        let program = folder.parent().unwrap().join("heap");
        atom::instrument(&program, &out, &job, false).unwrap();
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        command.current_dir(&folder);
        let setting = atom_tests::outcome::Setting::default();
        let outcome = atom_tests::outcome::run(&mut command, &setting).unwrap();
        assert_eq!(outcome.stderr, b"", "{label}");
        let is_child = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let number = name.strip_prefix("json.");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let files = std::fs::read_dir(&folder).unwrap();
        let mut children = files.map(|file| file.unwrap().path()).filter(is_child);
        let child = children.next().unwrap();
        assert_eq!(children.next(), None, "{label}");
        let both = (read(&json), read(&child));
        std::fs::remove_file(json.as_path()).unwrap();
        std::fs::remove_file(child).unwrap();
        both
    };
    let (all, child) = run(&[]);
    let mut rows = found(&all);
    let has_library = is_whole || name == "static";
    let mut wanted = expected("");
    if !has_library {
        wanted.extend(expected("alone"));
    } else {
        // The library's own references come on top.
        for (callers, [references, blocks, bytes]) in expected("alone") {
            let row = rows[&callers];
            assert!(row[0] >= references, "{label}: {callers} {row:?}");
            assert_eq!(row[1..], [blocks, bytes], "{label}: {callers}");
        }
    }
    for (callers, numbers) in wanted {
        assert_eq!(
            rows.remove(&callers),
            Some(numbers),
            "{label}: {callers} {rows:?}"
        );
    }
    for (callers, numbers) in expected("child") {
        assert_eq!(found(&child).get(&callers), Some(&numbers), "{label}");
    }
    let sum = |json: &Value| -> u64 {
        let all = self::rows(json, "data").iter();
        all.map(|row| row["references"].as_u64().unwrap()).sum()
    };
    assert_eq!(all["references"].as_u64(), Some(sum(&all)), "{label}");
    let (json, _) = run(&["--callers", "1", "--alloc", "pool_get:2"]);
    let rows = found(&json);
    assert_eq!(rows["heap: make_first"], [3200, 400, 19200], "{label}");
    assert_eq!(rows["heap: make_second"], [800, 100, 4800], "{label}");
    for (callers, numbers) in expected("pool") {
        let innermost = callers.split(" < ").next().unwrap();
        assert_eq!(rows.get(innermost), Some(&numbers), "{label}: {rows:?}");
    }
}

/// Blocks of Go's heap are those of the lines that allocate them, in a stripped program.
#[test]
fn blocks_of_go_are_told_apart() {
    let source = Source::named("goheap.go").unwrap();
    let variant = Variant("go-strip".into());
    let case = Case::build(&source, &variant).unwrap();
    let (json, _) = run(&case, &source, "reuse", &[]);
    let line = |what: &str| {
        let lines = include_str!("../../sources/goheap.go").lines();
        lines
            .map(str::trim)
            .position(|line| line.starts_with(what))
            .unwrap()
            + 1
    };
    let row = |proc: &str, line: usize| {
        let name = format!("heap: {proc} (goheap.go:{line})");
        let row = rows(&json, "data").iter().find(|row| row["data"] == *name);
        let row = row.unwrap_or_else(|| panic!("{name}: {:?}", rows(&json, "data")));
        ["references", "blocks", "size"].map(|column| row[column].as_u64().unwrap())
    };
    // One tree of depth 9 that is read, and 50 others.
    let leaves = row("main.tree", line("return &node{value: 1}"));
    assert_eq!(leaves[1..], [51 * 512, 51 * 512 * 24]);
    let inner = row("main.tree", line("return &node{tree"));
    assert_eq!(inner[1..], [51 * 511, 51 * 511 * 24]);
    // Each is stored once and each of the first tree loaded three times; the collector and the allocator add to that.
    assert!(inner[0] >= 511 * 3 + 51 * 511 * 3, "{inner:?}");
    // The runtime clears the 1000 words before it hands them out, where the memory has been used before.
    let table = row("main.table", line("return make"));
    assert_eq!(table[1..], [1, 8000]);
    assert!((4000..=5000).contains(&table[0]), "{table:?}");
}

/// Data that no symbol names belongs to its section.
#[test]
fn sections_have_what_is_left() {
    let folder = atom_tests::cache::empty_folder("reuse-sections");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reuse/programs/sections.c");
    let (program, out, json) = (
        folder.join("program"),
        folder.join("out"),
        folder.join("json"),
    );
    let mut command = Command::new("gcc");
    command.args(["-O2", "-s"]).arg(source);
    assert!(command.arg("-o").arg(&program).status().unwrap().success());
    let words = ["--json".to_owned(), json.display().to_string()];
    for is_whole in [false, true] {
        let mut job = Job::Tool("reuse".into(), words.to_vec());
        if is_whole {
            job = Job::Whole(Box::new(job), Vec::new());
        }
        let _ = std::fs::remove_file(&json);
        atom::instrument(&program, &out, &job, false).unwrap();
        assert!(Command::new(&out).status().unwrap().success());
        let found = found(&read(&json));
        // The start of a program refers to these sections, too.
        for (section, references) in [(".data", 5000), (".bss", 14_000), (".rodata", 3000)] {
            let [counted, _, size] = found[section];
            let more = counted - references;
            assert!(more < 20, "{is_whole}: {section} {more} {found:?}");
            assert!(size >= 800, "{section} {size}");
        }
    }
}
