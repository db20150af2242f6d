//! The tool `cache` beside cachegrind, and its presets.

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::programs::in_path;
use serde_json::Value;

/// A folder with a file to work on.
fn folder(name: &str) -> PathBuf {
    let folder = atom_tests::cache::empty_folder(&format!("cache-{name}"));
    let mut state = 1u32;
    let mut text = Vec::new();
    while text.len() < 300_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend(format!("word{} ", (state >> 20) % 700).bytes());
    }
    std::fs::write(folder.join("text"), text).unwrap();
    folder
}

fn whole(program: &Path, folder: &Path, options: &[&str], args: &[&str]) -> Value {
    let [out, json] = ["rewritten", "json"].map(|name| folder.join(name));
    let mut all: Vec<String> = options.iter().map(|o| o.to_string()).collect();
    all.extend(["--json".into(), json.display().to_string()]);
    let job = Job::Whole(Box::new(Job::Tool("cache".into(), all)), Vec::new());
    atom::instrument(program, &out, &job, false).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command.args(args).current_dir(folder);
    run(&mut command, &Setting::default()).unwrap();
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

/// References, misses of the first level and of the second, as cachegrind counts them.
fn cachegrind(program: &Path, folder: &Path, args: &[&str]) -> Option<[u64; 3]> {
    let mut command = Command::new(in_path("valgrind")?);
    let file = folder.join("cachegrind");
    let out = format!("--cachegrind-out-file={}", file.display());
    command
        .args(["--tool=cachegrind", "--cache-sim=yes", "--I1=32768,8,64"])
        .args(["--D1=32768,8,64", "--LL=1048576,16,64", &out])
        .arg(program)
        .args(args)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = std::fs::read_to_string(file).ok()?;
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events: Vec<&str> = line("events: ")?.split_whitespace().collect();
    let summary: Vec<&str> = line("summary: ")?.split_whitespace().collect();
    let of = |name: &str| -> Option<u64> {
        let place = events.iter().position(|event| *event == name)?;
        summary.get(place)?.parse().ok()
    };
    Some([
        of("Dr")? + of("Dw")?,
        of("D1mr")? + of("D1mw")?,
        of("DLmr")? + of("DLmw")?,
    ])
}

#[test]
fn figures_are_those_of_cachegrind() {
    let Some(bzip2) = in_path("bzip2") else {
        return;
    };
    let folder = folder("grind");
    let args = ["-k", "-f", "text"];
    let Some(theirs) = cachegrind(&bzip2, &folder, &args) else {
        println!("skipped: valgrind is not installed");
        return;
    };
    let options = ["--preset", "l1", "--l2", "1m,16,64"];
    let json = whole(&bzip2, &folder, &options, &args);
    let fact = |name: &str| json[name].as_u64().unwrap();
    let ours = ["references", "misses", "L2_misses"].map(fact);
    println!("atom {ours:?}, cachegrind {theirs:?}");
    // Addresses of the stack and of the heap differ, and cachegrind's own start-up and replaced procedures; its second
    // level holds instructions, too.
    for (name, (ours, theirs), percent) in [
        ("references", (ours[0], theirs[0]), 2),
        ("misses", (ours[1], theirs[1]), 1),
        ("second level", (ours[2], theirs[2]), 3),
    ] {
        let near = ours.abs_diff(theirs) * 100 <= theirs * percent;
        assert!(near, "{name}: atom {ours}, cachegrind {theirs}");
    }
}

#[test]
fn the_report_says_which_caches() {
    let Some(program) = in_path("true") else {
        return;
    };
    let folder = folder("preset");
    let of = |options: &[&str]| whole(&program, &folder, options, &[]);
    let text = |json: &Value, name: &str| json[name].as_str().unwrap_or("").to_owned();
    let json = of(&["--preset", "atom"]);
    assert_eq!(
        text(&json, "cache"),
        "8192 bytes, direct mapped, lines of 32 bytes"
    );
    assert_eq!(text(&json, "geometry"), "preset atom");
    let json = of(&["--preset", "l1"]);
    assert_eq!(
        text(&json, "cache"),
        "32768 bytes, 8 ways, lines of 64 bytes"
    );
    assert_eq!(text(&json, "geometry"), "preset l1");
    assert!(json["L2_misses"].is_null());
    let system = Path::new("/sys/devices/system/cpu/cpu0/cache/index0");
    let Ok(size) = std::fs::read_to_string(system.join("size")) else {
        return;
    };
    let json = of(&[]);
    let size: u64 = size.trim().trim_end_matches('K').parse().unwrap();
    let cache = text(&json, "cache");
    assert!(
        cache.starts_with(&format!("{} bytes", size * 1024)),
        "{cache}"
    );
    assert!(text(&json, "geometry").starts_with("this machine ("));
    assert_ne!(text(&json, "second_level"), "");
}

/// Half of such a line, which references that are looked up together may span, is nothing.
#[test]
fn lines_of_one_byte_are_lines() {
    let Some(program) = in_path("true") else {
        return;
    };
    let folder = folder("bytes");
    let references = |tool: &str, options: &[&str]| {
        let [out, json] = [tool, "json"].map(|name| folder.join(name));
        let mut all: Vec<String> = options.iter().map(|o| o.to_string()).collect();
        all.extend(["--json".into(), json.display().to_string()]);
        let job = Job::Tool(tool.into(), all);
        atom::instrument(&program, &out, &job, false).unwrap();
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        run(&mut command, &Setting::default()).unwrap();
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        report["references"].as_u64().unwrap()
    };
    let of_cache = references(
        "cache",
        &["--preset", "atom", "--line", "1", "--size", "64"],
    );
    assert_eq!(of_cache, references("reuse", &["--line", "1"]));
    assert!(of_cache > 100);
}
