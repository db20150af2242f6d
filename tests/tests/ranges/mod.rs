//! The tool `ranges`: its counts against counts known beforehand and against a
//! single-step trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::check::Case;
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::programs;
use atom_tests::source::Source;

use judge::{compare, cut, data_of};

mod golang;
mod judge;

fn folder(name: &str) -> PathBuf {
    atom_tests::cache::folder(&format!("ranges-{name}"))
}

/// Runs a program with data ranges; returns the tool's JSON.
fn measure(program: &Path, out: &Path, words: &[&str], more: &[&str]) -> serde_json::Value {
    measured(program, out, words, more, false)
}

/// As `measure`, perhaps with the program's libraries. The output is then not checked, which takes a minute.
fn measured(
    program: &Path,
    out: &Path,
    words: &[&str],
    more: &[&str],
    is_whole: bool,
) -> serde_json::Value {
    let json = out.with_extension("json");
    let mut options: Vec<String> = Vec::new();
    for word in words {
        options.extend(["--data".into(), word.to_string()]);
    }
    options.extend(more.iter().map(|o| o.to_string()));
    options.extend(["--json".into(), json.display().to_string()]);
    let mut job = Job::Tool("ranges".into(), options);
    if is_whole {
        job = Job::Whole(Box::new(job), Vec::new());
    }
    atom::instrument(program, out, &job, !is_whole).unwrap();
    let mut command = Command::new(out);
    plain_environment(&mut command);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    assert_eq!(
        outcome.stderr,
        b"",
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

/// Loads, stores and bytes of each range.
fn figures(json: &serde_json::Value) -> BTreeMap<String, [u64; 3]> {
    let rows = json["data_ranges"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let n = |key: &str| row[key].as_u64().unwrap();
            assert_eq!((n("start_offset"), n("end_offset")), (0, 0));
            let name = row["range"].as_str().unwrap().to_owned();
            (name, [n("loads"), n("stores"), n("bytes")])
        })
        .collect()
}

/// The document's experiment, and moving ranges, in builds of all kinds.
fn experiment(wanted: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ranges/programs/experiment.c");
    let source = Source::read(&source).unwrap();
    let mut built = 0;
    for variant in source.variants.iter().filter(|v| wanted.contains(&&*v.0)) {
        let case = Case::build(&source, variant).unwrap();
        built += 1;
        let unoptimised = variant.0.contains("O0");
        let out = case.rewritten("range");
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let mut words = vec![
            "first",
            "second",
            "third",
            "one",
            "two",
            "three",
            "heap:proc=main",
            "heap:proc=main,n=2",
            "heap:size=13",
            "heap:proc=fresh*",
            "pairs[3].inner.high",
        ];
        if unoptimised {
            words.push("deeper:local");
        }
        let json = measure(&case.original(), &out, &words, &[]);
        let got = figures(&json);
        let label = &variant.0;
        if unoptimised {
            for array in ["first", "second", "third", "heap:proc=main,n=2"] {
                assert_eq!(got[array], [16384, 16384, 131072], "{label} {array}");
            }
            // The fill, the sum, the test for null and `free` load the pointer; `malloc`'s result is stored.
            for pointer in ["one", "two", "three"] {
                assert_eq!(got[pointer], [32770, 1, 32771 * 8], "{label} {pointer}");
            }
            // Eight calls each store two and load two of their own.
            assert_eq!(got["deeper:local"], [16, 16, 256], "{label}");
        } else {
            // One instruction may access several elements, and the compiler may compute sums itself, but the number of bytes
            // is the same.
            for array in ["first", "second", "third", "heap:proc=main,n=2"] {
                let [loads, stores, bytes] = got[array];
                assert!(
                    loads <= 16384 && stores <= 16384,
                    "{label} {array} {loads} {stores}"
                );
                assert!(bytes == 131072 || bytes == 65536, "{label} {array} {bytes}");
            }
            assert!(got["one"][0] < 16, "{label} {:?}", got["one"]);
        }
        let sum = got["heap:proc=main,n=2"].map(|n| n * 3);
        assert_eq!(got["heap:proc=main"], sum, "{label}");
        assert_eq!(got["heap:size=13"], [5, 5, 10], "{label}");
        assert_eq!(got["heap:proc=fresh*"], [20, 500, 2080], "{label}");
        assert_eq!(got["pairs[3].inner.high"], [1, 1, 4], "{label}");
        let rows = json["data_ranges"].as_array().unwrap();
        let times = rows.iter().find(|r| r["range"] == "heap:size=13").unwrap();
        assert_eq!(
            (times["times"].as_u64(), times["first"].as_str()),
            (Some(5), Some("+0xc"))
        );
    }
    assert!(built > 0, "none of its variants can be built here");
}

#[test]
fn the_experiment_without_optimisation() {
    experiment(&["gcc-O0", "clang-O0"]);
}

#[test]
fn the_experiment_linked_statically() {
    experiment(&["gcc-O0-static", "clang-O0-static"]);
}

#[test]
fn the_experiment_optimised() {
    experiment(&["gcc-O2", "clang-O2", "gcc-O2-static"]);
}

/// The data of a test program in many ranges, against a single-step trace.
fn stepped(name: &str, variants: &[&str], options: &[&str]) {
    let source = Source::named(name).unwrap();
    let mut built = 0;
    for variant in source.variants.iter().filter(|v| variants.contains(&&*v.0)) {
        let case = Case::build(&source, variant).unwrap();
        let ((start, end), _) = data_of(&case.original()).unwrap();
        let ranges = cut(start, end, 150, false);
        let place = folder(&format!("{name}-{}", variant.0));
        let args: Vec<&str> = source.runs[0].args.iter().map(String::as_str).collect();
        let touched = compare(&place, &case.original(), &args, &ranges, options).unwrap();
        assert!(touched > 0, "{name} {}: nothing was touched", variant.0);
        built += 1;
    }
    assert!(built > 0, "{name}: none of its variants can be built here");
}

#[test]
fn strings_stepped() {
    stepped("strings.c", &["gcc-O0", "gcc-O2"], &[]);
    stepped(
        "strings.c",
        &["gcc-O2"],
        &["--size=2k", "--line=64", "--ways=4"],
    );
}

#[test]
fn vectors_stepped() {
    stepped("vectors.c", &["gcc-O2"], &[]);
}

#[test]
fn virtual_stepped() {
    stepped("virtual.cc", &["gcc-O2"], &[]);
}

#[test]
fn jumptables_stepped() {
    stepped("jumptables.c", &["gcc-O0", "gcc-O2"], &[]);
}

/// A program as the distribution ships it.
fn real(program: &str, args: &[&str], files: &[(&str, &[u8])]) {
    let file = programs::needed(program);
    let place = folder(program);
    for (name, bytes) in files {
        std::fs::write(place.join(name), bytes).unwrap();
    }
    let ((start, end), _) = data_of(&file).unwrap();
    let mut ranges = cut(start, end, 100, false);
    // The stack has the same addresses in both runs, so the ranges are addresses of the process.
    ranges.extend(cut(0x7fff_ffff_0000, 0x7fff_ffff_f000, 60, true));
    let touched = compare(&place, &file, args, &ranges, &[]).unwrap();
    assert!(touched > 3, "{program}: {touched} ranges were touched");
}

#[test]
fn gzip_stepped() {
    let text = "some text, and some more text\n".repeat(40);
    real("gzip", &["-c", "in"], &[("in", text.as_bytes())]);
}

#[test]
fn sed_stepped() {
    real("sed", &["s/a/b/g", "in"], &[("in", b"abc\nbanana\n")]);
}

/// Blocks and variables that appear and disappear in eight threads at once, and in a forked child.
#[test]
fn threads_and_a_child() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ranges/programs/threads.c");
    let source = Source::read(&source).unwrap();
    for variant in &source.variants {
        let case = Case::build(&source, variant).unwrap();
        let out = case.rewritten("range");
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let words = ["table", "heap:proc=work,size=64", "work:local"];
        let json = measure(&case.original(), &out, &words, &[]);
        let got = figures(&json);
        // Eight threads, 2,000 rounds: of each element one load and store, and one more load.
        assert_eq!(got["table"], [256_000, 128_000, 3_072_000], "{}", variant.0);
        let blocks = [0, 256_000, 1_024_000];
        assert_eq!(got["heap:proc=work,size=64"], blocks, "{}", variant.0);
        let locals = [8, 128_000, 1_024_064];
        assert_eq!(got["work:local"], locals, "{}", variant.0);
        // The child has the work of one thread, and writes its own file.
        let folder = std::fs::read_dir(out.parent().unwrap()).unwrap();
        let name = |f: &std::fs::DirEntry| f.file_name().to_string_lossy().into_owned();
        // A report with a number of one digit is an older one.
        let is_number = |digits: &str| digits.len() > 1;
        let of_child = folder
            .map(|f| f.unwrap())
            .find(|f| name(f).split_once(".json.").is_some_and(|n| is_number(n.1)));
        let of_child = of_child.expect("the child's file").path();
        let text = std::fs::read(&of_child).unwrap();
        let got = figures(&serde_json::from_slice(&text).unwrap());
        assert_eq!(got["table"], [32_000, 16_000, 384_000], "{}", variant.0);
        let blocks = [0, 32_000, 128_000];
        assert_eq!(got["heap:proc=work,size=64"], blocks, "{}", variant.0);
        std::fs::remove_file(of_child).unwrap();
    }
}

/// With one range over all memory, references and misses equal the figures of the tool `cache`,
/// instruction by instruction.
fn all_memory(name: &str, variant: &str, options: &[&str]) {
    let source = Source::named(name).unwrap();
    let variant = source.variants.iter().find(|v| v.0 == variant).unwrap();
    let case = Case::build(&source, variant).unwrap();
    let misses = |tool: &str, more: &[&str]| {
        let out = case.rewritten(&tool[..5]);
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let json = out.with_extension("json");
        let mut words: Vec<String> = [options, more]
            .concat()
            .iter()
            .map(|o| o.to_string())
            .collect();
        words.extend(["--json".into(), json.display().to_string()]);
        let job = Job::Tool(tool.into(), words);
        atom::instrument(&case.original(), &out, &job, true).unwrap();
        case.run(&out, &source.runs[0], true).unwrap();
        let text = std::fs::read(&json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let rows = json["instructions"].as_array().unwrap().clone();
        let pairs = rows.into_iter().map(|row| {
            let pc = row["pc"].as_str().unwrap().to_owned();
            (pc, row["misses"].as_u64().unwrap())
        });
        let of_places: BTreeMap<String, u64> = pairs.filter(|(_, n)| *n != 0).collect();
        (
            json["references"].as_u64(),
            json["misses"].as_u64(),
            of_places,
        )
    };
    let ranges = misses("ranges", &["--data", "all=0..0x7fffffffffff"]);
    assert!(ranges.1 > Some(0));
    assert_eq!(ranges, misses("cache", &[]), "{name} {options:?}");
}

#[test]
fn misses_are_those_of_the_cache() {
    for options in [&[][..], &["--size=2k", "--line=64", "--ways=4"]] {
        all_memory("strings.c", "gcc-O2", options);
        all_memory("vectors.c", "gcc-O2", options);
    }
}

/// Blocks by line, variables of a file, recursion, frames that are left without a return, data by
/// code; as JSON, as CSV and as a page.
#[test]
fn corners() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ranges/programs/corners.cc");
    let source = Source::read(&source).unwrap();
    let text = std::fs::read_to_string(&source.path).unwrap();
    let line = |what: &str| 1 + text.lines().position(|l| l.ends_with(what)).unwrap();
    let (both, late) = (line("both here"), line("// here"));
    let blocks = |lines: String| format!("heap:at=corners.cc:{lines}");
    let words = [
        blocks(both.to_string()),
        blocks(late.to_string()),
        blocks(format!("{both}-{late}")),
        "corners.cc:shared".to_owned(),
        "down:local".to_owned(),
        "leaves:left".to_owned(),
        "throws:thrown".to_owned(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut built = 0;
    for variant in &source.variants {
        let case = Case::build(&source, variant).unwrap();
        built += 1;
        let label = &variant.0;
        let out = case.rewritten("range");
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let [csv, html] = ["csv", "html"].map(|end| out.with_extension(end));
        let files = [
            format!("--csv={}", csv.display()),
            format!("--html={}", html.display()),
        ];
        let files = [files[0].as_str(), files[1].as_str()];
        let json = measure(&case.original(), &out, &words, &files);
        let got = figures(&json);
        let [first, second, all] = [words[0], words[1], words[2]].map(|w| got[w]);
        assert_eq!((first, second), ([0, 2, 2], [0, 1, 8]), "{label}");
        assert_eq!(all, [0, 3, 10], "{label}");
        // The loop's, one more of each, and a load to print it.
        assert_eq!(got["corners.cc:shared"], [32, 31, 252], "{label}");
        assert_eq!(got["down:local"], [10, 10, 80], "{label}");
        assert_eq!(got["leaves:left"], [0, 5, 20], "{label}");
        assert_eq!(got["throws:thrown"], [3, 3, 24], "{label}");
        let rows = json["data_ranges"].as_array().unwrap();
        let times = rows.iter().map(|row| row["times"].as_u64().unwrap());
        assert_eq!(times.collect::<Vec<_>>(), [2, 1, 3, 1, 10, 5, 3], "{label}");

        let table = std::fs::read_to_string(&csv).unwrap();
        let mut lines = table.lines();
        assert_eq!(
            lines.next(),
            Some("range,procedure,file,line,pc,loads,stores,bytes,misses")
        );
        let stores = lines
            .filter(|l| l.starts_with("down:local,down(int),"))
            .map(|l| l.split(',').nth(6).unwrap().parse::<u64>().unwrap());
        assert_eq!(stores.sum::<u64>(), 10, "{label}\n{table}");
        let page = std::fs::read_to_string(&html).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        assert_eq!(page.matches("<h2>").count(), words.len(), "{label}");
        for word in &words {
            assert!(
                page.contains(&format!("<code>{word}</code>")),
                "{label} {word}"
            );
        }
        // Each access touches all of its bytes.
        assert!(
            page.contains("+0x0 to +0x0: 32 loads, 31 stores"),
            "{label}"
        );

        let by_code = measure(&case.original(), &out, &words, &["--code=touches"]);
        let got = figures(&by_code);
        assert_eq!(got["corners.cc:shared"], [30, 30, 240], "{label}");
        assert_eq!(got["down:local"], [0, 0, 0], "{label}");
        let innermost = measure(&case.original(), &out, &["down:local"], &["--innermost"]);
        assert_eq!(figures(&innermost)["down:local"], [10, 10, 80], "{label}");
    }
    assert!(built > 0, "none of its variants can be built here");
}

/// Blocks of an allocator that is called through pointers.
#[test]
fn allocators_behind_pointers() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ranges/programs/pointers.c");
    let source = Source::read(&source).unwrap();
    let words = [
        "heap",
        "heap:proc=work",
        "heap:proc=jumps",
        "heap:proc=named",
    ];
    for variant in &source.variants {
        let case = Case::build(&source, variant).unwrap();
        let label = &variant.0;
        let out = case.rewritten("range");
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let is_whole = !label.contains("static");
        let got = figures(&measured(&case.original(), &out, &words, &[], is_whole));
        assert_eq!(got["heap:proc=work"], [1500, 1500, 24_000], "{label}");
        assert_eq!(got["heap:proc=jumps"], [1000, 1000, 16_000], "{label}");
        assert_eq!(got["heap:proc=named"], [1000, 1000, 16_000], "{label}");
        assert!(got["heap"][0] >= 3500 && got["heap"][1] >= 3500, "{label}");
    }
}

/// A range of blocks that no call can allocate is refused. The message depends on whether the program allocates
/// any blocks.
#[test]
fn blocks_that_nobody_makes() {
    let folder = folder("nobody");
    let source = "#include <stdlib.h>\n#include <string.h>\n\
        int main(int n, char **v) { (void)v; return n > 1 ? !ALLOCATE : 0; }\n";
    std::fs::write(folder.join("nobody.c"), source).unwrap();
    for (made_by, reason) in [
        (
            "strdup(v[0])",
            "does not call the allocator by a name that is known",
        ),
        ("malloc(n)", "none of the 1 calls of the allocator"),
    ] {
        let program = folder.join("nobody");
        let status = Command::new("gcc")
            .args(["-O1", &format!("-DALLOCATE={made_by}"), "-o"])
            .args([&program, &folder.join("nobody.c")])
            .status();
        assert!(status.unwrap().success());
        let options = ["--data", "heap:proc=elsewhere"].map(String::from).to_vec();
        let job = Job::Tool("ranges".into(), options);
        let refused = atom::instrument(&program, &folder.join("out"), &job, true).unwrap_err();
        let told = refused.to_string();
        assert!(told.contains(reason), "{made_by}: {told}");
    }
}
