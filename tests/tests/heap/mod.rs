//! The tool `heap` on a program whose allocations are known, and against Valgrind's count of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use serde_json::Value;

/// Compiles the program; returns its path in a folder of its own.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    build_of("gcc", "blocks.c", name, flags)
}

fn build_of(compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let folder = atom_tests::cache::empty_folder(&format!("heap-{name}"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("tests/heap/programs").join(source);
    let out = folder.join("blocks");
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-pthread"]).args(flags);
    command.arg(source).arg("-o").arg(&out);
    assert!(command.status().unwrap().success());
    out
}

/// Runs the program with `heap`, as a whole process or alone; returns the JSON.
fn heap(program: &Path, is_whole: bool, options: &[&str]) -> Value {
    let (out, json) = (
        program.with_extension("rewritten"),
        program.with_extension("json"),
    );
    let mut all = vec!["--json".to_owned(), json.display().to_string()];
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let mut job = Job::Tool("heap".into(), all);
    if is_whole {
        job = Job::Whole(Box::new(job), Vec::new());
    }
    atom::instrument(program, &out, &job, false).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    assert_eq!(outcome.stderr, b"");
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

fn fact(json: &Value, name: &str) -> u64 {
    let value = json[name.replace(' ', "_")].as_u64();
    value.unwrap_or_else(|| panic!("{name} is not in {json}"))
}

/// Bytes and number of allocations of the paths that begin with these procedures, the innermost first.
fn path(json: &Value, names: &[&str]) -> [u64; 2] {
    let rows = json["allocations_by_call_path"].as_array().unwrap();
    let is_it = |row: &&Value| {
        let path = row["path"].as_str().unwrap().split(" < ");
        let parts = path.map(|part| part.split(' ').next().unwrap_or_default());
        parts.take(names.len()).eq(names.iter().copied())
    };
    let sum = |column: &str| {
        let rows = rows.iter().filter(is_it);
        rows.map(|row| row[column].as_u64().unwrap()).sum()
    };
    [sum("bytes"), sum("allocations")]
}

#[test]
fn allocations_are_those_of_the_source() {
    let program = build("known", &[]);
    for is_whole in [false, true] {
        let json = heap(&program, is_whole, &[]);
        assert_eq!(path(&json, &["p_make", "p_peak", "main"]), [200_000, 50]);
        assert_eq!(path(&json, &["p_make", "p_short", "main"]), [20_000, 200]);
        assert_eq!(path(&json, &["p_make", "p_leak", "main"]), [150, 5]);
        // calloc, three reallocations with one of nothing, four with alignment.
        let others = 77 + 500 + 100_000 + 120 + 128 + 96 + 1000;
        let tail = path(&json, &["p_tail"]);
        let [bytes, count] = path(&json, &["p_others"]);
        // p_tail allocates for its caller, and does nothing else.
        assert_eq!((tail, [bytes, count]), ([0, 0], [others + 77, 8]));
        assert_eq!(path(&json, &["p_make", "p_thread"]), [240, 4]);
        assert_eq!(path(&json, &["main"]), [160, 4]);
        assert_eq!(fact(&json, "bytes at the peak"), 200_150);
        assert_eq!(fact(&json, "bad frees"), 0);
        let live = json["allocations_by_call_path"].as_array().unwrap();
        let leaked = |row: &&Value| row["path"].as_str().unwrap().contains("p_leak");
        let leak = live.iter().find(leaked).unwrap();
        assert_eq!(leak["never_freed"].as_u64(), Some(150));
    }
}

#[test]
fn paths_are_right_where_calls_do_not_come_back() {
    let program = build_of("g++", "ways.cc", "ways", &[]);
    let json = heap(&program, true, &[]);
    let of = |names: &[&str]| path(&json, &[&["take(unsigned"], names].concat());
    // Recursive calls are one path: the first call, and all further ones.
    assert_eq!(of(&["w_thrower(int)", "w_catcher()", "main"]), [6600, 600]);
    let in_threads = ["w_thrower(int)", "w_catcher()", "w_thread()"];
    assert_eq!(of(&in_threads), [132_000, 12_000]);
    assert_eq!(of(&["w_after()", "w_catcher()", "main"]), [2600, 200]);
    let in_threads = ["w_after()", "w_catcher()", "w_thread()"];
    assert_eq!(of(&in_threads), [52_000, 4000]);
    assert_eq!(of(&["w_jumper(int)", "w_setter()", "main"]), [8500, 500]);
    assert_eq!(of(&["w_after()", "w_setter()", "main"]), [1300, 100]);
    let in_coroutine = ["w_inner()", "w_coroutine()", "w_switcher()", "main"];
    assert_eq!(of(&in_coroutine), [190, 10]);
    assert_eq!(of(&["w_after()", "w_switcher()", "main"]), [130, 10]);
    assert_eq!(of(&["w_handler(int)"]), [460, 20]);
    assert_eq!(of(&["w_leaver(int)"]), [29, 1]);
    assert_eq!(of(&["w_after()", "w_signals()", "main"]), [13, 1]);
    assert_eq!(fact(&json, "bad frees"), 0);
}

#[test]
fn paths_are_right_in_frames_of_all_kinds() {
    let builds: [(&str, &[&str]); 5] = [
        ("frames", &[]),
        ("frames-O0", &["-O0"]),
        ("frames-rbp", &["-O1", "-fno-omit-frame-pointer"]),
        // Without unwind tables each call has a note.
        ("frames-bare", &["-fno-asynchronous-unwind-tables"]),
        ("frames-static", &["-static"]),
    ];
    for (name, flags) in builds {
        let program = build_of("gcc", "frames.c", name, flags);
        for is_whole in [false, true] {
            if is_whole && flags.contains(&"-static") {
                continue;
            }
            let json = heap(&program, is_whole, &[]);
            let of = |names: &[&str]| path(&json, &[&["f_take"], names].concat());
            assert_eq!(of(&["f_plain", "main"]), [1100, 100], "{name}");
            assert_eq!(of(&["f_dynamic", "main"]), [1300, 100], "{name}");
            assert_eq!(of(&["f_plain", "f_dynamic", "main"]), [1100, 100]);
            assert_eq!(of(&["f_aligned", "main"]), [1700, 100], "{name}");
            assert_eq!(of(&["f_plain", "f_aligned", "main"]), [1100, 100]);
            assert_eq!(of(&["f_full", "main"]), [5700, 300], "{name}");
            assert_eq!(of(&["f_even", "main"]), [1150, 50], "{name}");
            assert_eq!(of(&["f_odd", "f_even", "main"]), [1450, 50], "{name}");
            let [bytes, calls] = of(&["f_order"]);
            assert!(calls >= 100 && bytes == 31 * calls, "{name}");
            let rows = json["allocations_by_call_path"].as_array().unwrap();
            let below = |row: &&Value| row["path"].as_str().unwrap().contains("f_order");
            let is_sorted = |row: &Value| row["path"].as_str().unwrap().contains("f_sort");
            assert!(rows.iter().filter(below).all(is_sorted), "{name}");
        }
    }
}

#[test]
fn static_programs_and_allocators_of_the_users() {
    let program = build("own", &["-static"]);
    let options = ["--alloc", "p_pool:2", "--free", "p_give"];
    let json = heap(&program, false, &options);
    assert_eq!(path(&json, &["p_make", "p_peak", "main"]), [200_000, 50]);
    assert_eq!(path(&json, &["main"]), [160 + 480, 14]);
    // One block is given back twice.
    assert_eq!(fact(&json, "bad frees"), 1);
    let rows = json["frees_of_no_live_block"].as_array().unwrap();
    assert!(rows[0]["path"].as_str().unwrap().starts_with("main"));
}

#[test]
fn all_forms_of_new_are_known() {
    let program = build_of("g++", "forms.cc", "forms", &["-std=c++17"]);
    for is_whole in [false, true] {
        let json = heap(&program, is_whole, &[]);
        let rows = json["allocations_by_call_path"].as_array().unwrap();
        let is_own = |row: &&Value| {
            let path = row["path"].as_str().unwrap();
            path.contains("main") && !path.contains("__cxa") && !path.starts_with("below")
        };
        let own = || rows.iter().filter(is_own);
        let sum = |column: &str| own().map(|row| row[column].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("allocations"), 16, "{is_whole}");
        // One and three objects of 24 and of 64 bytes, four times each.
        assert_eq!(sum("bytes"), 4 * (4 * 24 + 4 * 64), "{is_whole}");
        assert_eq!(sum("never_freed"), 0, "{is_whole}");
        // `operator new` has thrown, and is no call any more.
        assert_eq!(path(&json, &["below(int)"]), [11 * 11, 11], "{is_whole}");
        assert_eq!(fact(&json, "bad frees"), 0, "{is_whole}");
    }
}

#[test]
fn allocators_are_known_by_each_of_their_names() {
    let program = build_of("gcc", "aliases.c", "aliases", &["-fno-builtin", "-O0"]);
    for is_whole in [false, true] {
        let json = heap(&program, is_whole, &["--alloc", "own:1"]);
        let facts = ["allocations", "reallocations", "frees", "bytes allocated"];
        let facts = facts.map(|name| fact(&json, name));
        assert_eq!(facts, [12, 5, 11, 5 * 300 + 21 + 1000], "{is_whole}");
        assert_eq!(fact(&json, "bytes never freed"), 1000, "{is_whole}");
    }
}

/// Valgrind replaces the allocator, and counts calls of it and bytes.
#[test]
fn sums_are_those_of_memcheck() {
    let program = build("memcheck", &[]);
    let json = heap(&program, true, &[]);
    let mut command = Command::new("valgrind");
    plain_environment(&mut command);
    let Ok(output) = command.arg("--run-libc-freeres=no").arg(&program).output() else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace().map(|word| word.replace(',', ""));
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let usage = text.lines().find(|line| line.contains("total heap usage"));
    let usage = numbers(usage.unwrap_or_else(|| panic!("no usage in {text}")));
    let found = ["allocations", "frees", "bytes allocated"].map(|name| fact(&json, name));
    assert_eq!(found.as_slice(), usage);
    let exit = text.lines().find(|line| line.contains("in use at exit"));
    let live = ["bytes never freed", "blocks never freed"].map(|name| fact(&json, name));
    assert_eq!(live.as_slice(), numbers(exit.unwrap()));
}

#[test]
fn ms_print_reads_the_file() {
    let program = build("massif", &[]);
    let file = program.with_extension("massif");
    heap(&program, true, &["--massif", file.to_str().unwrap()]);
    let Ok(output) = Command::new("ms_print").arg(&file).output() else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("(peak)"), "{text}");
    let peak = text.lines().find(|line| line.contains("p_peak"));
    assert!(
        peak.is_some_and(|line| line.contains("(200,000B)")),
        "{text}"
    );
}
