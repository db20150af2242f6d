//! The tool `calltree` against call paths that are found in another way: the program is executed instruction by instruction,
//! and a stack of its calls is kept by the return addresses that calls write and returns read.

mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use serde_json::Value;

/// Instructions by call path.
type Paths = BTreeMap<Vec<String>, u64>;

/// Compiles a program; returns its path in a folder of its own.
fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let folder = atom_tests::cache::empty_folder(&format!("calltree-{name}"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("tests/calltree/programs").join(source);
    let out = folder.join(name);
    let compiler = if source.extension().is_some_and(|e| e == "cc") {
        "g++"
    } else {
        "gcc"
    };
    let mut command = Command::new(compiler);
    command.args(["-g", "-pthread"]).args(flags);
    command.arg(source).arg("-o").arg(&out);
    assert!(command.status().unwrap().success());
    out
}

/// Runs the program with a tool; returns its user time.
fn measure(program: &Path, job: &Job) -> Duration {
    let out = program.with_extension("rewritten");
    atom::instrument(program, &out, job, true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    let setting = Setting {
        timeout: Duration::from_secs(300),
        ..Setting::default()
    };
    let outcome = run(&mut command, &setting).unwrap();
    assert_eq!(outcome.stderr, b"");
    outcome.user
}

/// Runs the program with `calltree`; returns its JSON and the folded stacks.
fn calltree(program: &Path, options: &[&str]) -> (Value, Paths) {
    let (json, folded) = (
        program.with_extension("json"),
        program.with_extension("folded"),
    );
    let mut all = vec!["--json".to_owned(), json.display().to_string()];
    all.extend(["--folded".to_owned(), folded.display().to_string()]);
    all.extend(options.iter().map(|option| (*option).to_owned()));
    measure(program, &Job::Tool("calltree".into(), all));
    let json = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let text = std::fs::read_to_string(&folded).unwrap();
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let names = stack.split(';').map(str::to_owned).collect();
        (names, count.parse().unwrap())
    };
    (json, text.lines().map(line).collect())
}

/// Instructions as `icount` counts them: names of procedures and numbers.
fn counted(program: &Path) -> Vec<(String, u64)> {
    let out = program.with_extension("tsv");
    let options = [
        "--per",
        "procedure",
        "--format",
        "tsv",
        "--output",
        out.to_str().unwrap(),
    ];
    let options = options.map(str::to_owned).into();
    measure(program, &Job::Tool("icount".into(), options));
    let text = std::fs::read_to_string(&out).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[2].to_owned(), fields[1].parse().unwrap())
    };
    text.lines().map(row).collect()
}

/// Number of executed instructions.
fn instructions(program: &Path) -> u64 {
    counted(program).iter().map(|row| row.1).sum()
}

/// Number of executed instructions in the procedures of the program's own source. What the C library does depends on the
/// moment at which threads meet, so its number is not the same in each run.
fn own_instructions(program: &Path) -> u64 {
    let rows = counted(program).into_iter();
    rows.filter(|row| is_own(&row.0)).map(|row| row.1).sum()
}

/// True for a procedure of the test program's own source.
fn is_own(name: &str) -> bool {
    name.starts_with("p_") || name == "main"
}

/// The instructions of the procedures of the test program's own source, by their path without other procedures. What
/// libraries do depends on the moment at which threads meet.
fn own(paths: &Paths) -> Paths {
    let mut own = Paths::new();
    for (path, count) in paths {
        let names: Vec<String> = path.iter().filter(|name| is_own(name)).cloned().collect();
        if path.last().is_some_and(|name| is_own(name)) {
            *own.entry(names).or_default() += count;
        }
    }
    own
}

fn compare(found: &Paths, expected: &Paths) {
    let all: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differences: Vec<String> = all
        .into_iter()
        .filter(|path| found.get(*path) != expected.get(*path))
        .map(|path| {
            let (found, expected) = (found.get(path), expected.get(path));
            format!("{}: {found:?}, not {expected:?}", path.join(";"))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn paths_are_those_of_single_steps() {
    for (name, flags) in [
        ("plain", ["-O1", "-static"]),
        ("optimized", ["-O2", "-static"]),
    ] {
        let program = build("paths.c", name, &flags);
        let (json, paths) = calltree(&program, &[]);
        let expected = steps::paths(&program);
        compare(&own(&paths), &expected);
        assert_eq!(json["instructions"].as_u64(), Some(paths.values().sum()));
    }
}

#[test]
fn sums_are_those_of_icount() {
    // Stubs of the procedure linkage table are counted by their callers, except at fixed addresses.
    for (name, kind) in [
        ("alone", "-static"),
        ("stubs", "-pie"),
        ("fixed", "-no-pie"),
    ] {
        let flags = ["-O2", "-DALONE", "-fPIC", "-Wl,-z,lazy", kind];
        let alone = build("paths.c", name, &flags);
        let (json, paths) = calltree(&alone, &[]);
        let whole = instructions(&alone);
        assert_eq!(json["instructions"].as_u64(), Some(whole), "{name}");
        assert_eq!(paths.values().sum::<u64>(), whole, "{name}");
    }

    let program = build("paths.c", "sums", &["-O2", "-static"]);
    let (json, paths) = calltree(&program, &["--per-thread", "--top", "0"]);
    let whole = paths.values().sum::<u64>();
    assert_eq!(json["instructions"].as_u64(), Some(whole));
    let rows = json["procedures"].as_array().unwrap();
    let of = |name: &str, column: &str| {
        let row = rows
            .iter()
            .find(|row| row["procedure"].as_str() == Some(name));
        row.unwrap_or_else(|| panic!("{name} has no row"))[column]
            .as_u64()
            .unwrap()
    };
    let own: u64 = rows.iter().map(|row| row["own"].as_u64().unwrap()).sum();
    assert!(own <= whole && whole - own < 100, "{own} of {whole}");
    // Calls, with recursive ones: 0 to 4 from main and 5 from each thread, each down to 0.
    assert_eq!(of("p_deep", "calls"), (1 + 2 + 3 + 4 + 5) + 3 * 6);
    assert!(of("main", "inclusive") > of("main", "own"));
    // A thread for each pthread_create at most, since one that begins may go on with the state of another one.
    let threads = paths.keys().map(|path| &path[0]);
    let threads: std::collections::BTreeSet<&String> = threads.collect();
    assert!((2..=4).contains(&threads.len()), "{threads:?}");
}

/// Without a limit each recursive call has a path of its own.
#[test]
fn recursion_is_kept_on_demand() {
    let program = build("paths.c", "recursion", &["-O1", "-static"]);
    let depth = |paths: &Paths| {
        let own = own(paths);
        let count = |path: &Vec<String>| path.iter().filter(|name| *name == "p_deep").count();
        own.keys().map(count).max()
    };
    for (option, expected) in [("1", 1), ("3", 3), ("0", 6)] {
        let (json, paths) = calltree(&program, &["--recursion", option]);
        assert_eq!(depth(&paths), Some(expected), "--recursion {option}");
        assert_eq!(json["instructions"].as_u64(), Some(paths.values().sum()));
    }
    // With few paths, the sum is the same.
    let (json, paths) = calltree(&program, &["--paths", "20"]);
    assert_eq!(json["instructions"].as_u64(), Some(paths.values().sum()));
    assert!(paths.keys().any(|path| path[0] == "(more paths)"));
}

/// Paths of a deep recursion take time with their number, and each level is there, however it is entered. Followed up to
/// the root for each new path, this depth took minutes.
#[test]
fn a_deep_recursion_takes_time_with_its_depth() {
    const DEPTH: u64 = 100_000;
    const LIMIT: Duration = Duration::from_secs(30);
    let program = build("deep.c", "depth", &["-O2", "-static"]);
    let json = program.with_extension("json");
    let options = ["--recursion", "0", "--top", "0", "--json"].map(String::from);
    let file = json.display().to_string();
    let options = [&options[..], &[file]].concat();
    let user = measure(&program, &Job::Tool("calltree".into(), options));
    assert!(user < LIMIT, "{user:?}");
    let json: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let procedures = json["procedures"].as_array().unwrap().iter();
    let own = procedures.filter(|p| is_own(p["procedure"].as_str().unwrap()));
    let own: u64 = own.map(|p| p["own"].as_u64().unwrap()).sum();
    assert!(own > 20 * DEPTH, "{own}");
    assert_eq!(own, own_instructions(&program));
    let fact = |name: &str| json[name].as_u64().unwrap();
    // Each level has p_enter, p_level, p_called and p_last.
    let threads = json["threads"].as_array().unwrap();
    let paths = threads.iter().map(|t| t["call_paths"].as_u64().unwrap());
    let paths: u64 = paths.sum();
    assert!(paths > 4 * DEPTH, "{paths}");
    assert_eq!(fact("total_threads"), threads.len() as u64);
    assert!(fact("longest_path") > 2 * DEPTH);
    assert_eq!(fact("recursive_calls"), 0);
}

/// Callgrind's own program reads the file, and finds the sums.
#[test]
fn callgrind_annotate_reads_the_file() {
    let program = build("paths.c", "callgrind", &["-O2", "-static"]);
    let file = program.with_extension("callgrind");
    let (json, _) = calltree(&program, &["--callgrind", file.to_str().unwrap()]);
    let mut command = Command::new("callgrind_annotate");
    let Ok(output) = command
        .args(["--inclusive=yes", "--threshold=100"])
        .arg(&file)
        .output()
    else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let number = |line: &str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.replace(',', "").parse::<u64>().ok()
    };
    let line = |name: &str| {
        let line = text.lines().find(|line| line.contains(name));
        line.and_then(number)
            .unwrap_or_else(|| panic!("{name} is not in {text}"))
    };
    assert_eq!(Some(line("PROGRAM TOTALS")), json["instructions"].as_u64());
    let rows = json["procedures"].as_array().unwrap();
    let main = rows
        .iter()
        .find(|row| row["procedure"].as_str() == Some("main"));
    assert_eq!(Some(line(":main")), main.unwrap()["inclusive"].as_u64());
}
