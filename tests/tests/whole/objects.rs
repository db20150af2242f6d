//! What tools see of the objects of a process: names, calls across objects, run-time addresses, and what the
//! shipped tools make of it, with exact figures.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom;
use atom_tests::outcome::Outcome;
use atom_tests::programs;

use super::Place;

/// Calls of `compare` that the program prints at its end.
const COMPARED: u64 = 1271;
/// Turns of the loop in `near_calls`, each with a call of `far_plain`.
const TURNS: u64 = 30;
/// Elements that `far_fills` stores and loads.
const ELEMENTS: u64 = 64;

/// The program `across.c` with its libraries, built by a compiler with flags of its own.
fn across(name: &str, compiler: &str, flags: &[&str]) -> (Place, PathBuf) {
    let place = Place::new(name);
    let link = format!("-L{}", place.folder.join("lib").display());
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/programs/far.map");
    let versions = format!("-Wl,--version-script={}", versions.display());
    let mut far = vec!["-Wl,-soname,libfar.so.2"];
    match compiler {
        "musl-gcc" => far.push("-DPLAIN"),
        _ => far.push(&versions),
    }
    place.library("far.c", "libfar.so", &far);
    let soname = place.folder.join("lib/libfar.so.2");
    if !soname.exists() {
        std::os::unix::fs::symlink("libfar.so", soname).unwrap();
    }
    let near = ["-Wl,-soname,libnear.so", link.as_str(), "-lfar"];
    place.library("near.c", "libnear.so", &near);
    let late = place.library("late.c", "liblate.so", &[link.as_str(), "-lfar"]);
    let mut all = place.link();
    all.extend(flags.iter().map(|f| f.to_string()));
    all.extend(["-lnear", "-lfar"].map(str::to_owned));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    place.program(compiler, "across.c", &all);
    (place, late)
}

/// Makes the bundle with a tool and its options.
fn instrument(place: &Place, tool: &str, with: &[&Path], options: &[&str]) {
    let mut command = Command::new(atom::command().unwrap());
    command.arg(place.original()).arg("-o").arg(place.bundle());
    command.args(["-q", "--libs", "--tool", tool]);
    for file in with {
        command.arg("--with").arg(file);
    }
    let output = command.arg("--").args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", place.name);
}

/// Runs the bundle, whose addresses are not the original's.
fn run(place: &Place, arguments: &[&str]) -> Outcome {
    let mut command = place.command(&place.bundle(), arguments);
    let outcome = atom_tests::outcome::run(&mut command, &Default::default()).unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout);
    let expected = "sum 1328 15 11 315\n";
    assert!(said.contains(expected), "{}: {said}", place.name);
    outcome
}

fn lines(file: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text.lines().map(words).collect()
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The load addresses that the program has found for all objects at its end.
fn found_by_program(outcome: &Outcome) -> HashMap<String, u64> {
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let objects = said.lines().filter_map(|l| l.strip_prefix("object '"));
    let pairs = objects.filter_map(|line| line.split_once("' "));
    pairs.map(|(name, at)| (name.to_owned(), hex(at))).collect()
}

/// The tool `objects` on a program: checks the addresses; returns what the instrument routine saw.
fn seen(place: &Place, late: &Path) -> Vec<Vec<String>> {
    let [seen, output] = ["seen", "output"].map(|file| place.folder.join(file));
    let mut options = vec!["--seen", seen.to_str().unwrap()];
    options.extend(["--output", output.to_str().unwrap()]);
    for name in [
        "main",
        "near_calls",
        "near_tail",
        "near_twice",
        "near_sorts",
        "late",
    ] {
        options.extend(["--from", name]);
    }
    instrument(place, "objects", &[late], &options);
    let outcome = run(place, &[late.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&outcome.stdout);
    // musl never unmaps a library.
    let is_musl = place.name.contains("musl");
    let twice = format!("opened twice: {} 11\n", u8::from(!is_musl));
    assert!(said.contains(&twice), "{said}");

    let found = found_by_program(&outcome);
    let seen = lines(&seen);
    let all: Vec<&Vec<String>> = seen.iter().filter(|l| l[0] == "object").collect();
    let mut last = HashMap::new();
    let mut moves = Vec::new();
    for line in lines(&output) {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["address", name, in_file, computed, by_runtime, back] => {
                // glibc gives the program no name in its list, and musl names its loader otherwise.
                let other = if *name == place.name { "" } else { "libc.so" };
                let base = found.get(*name).or_else(|| found.get(other));
                let base = *base.unwrap_or_else(|| panic!("{name}: {found:?}"));
                let expected = base.wrapping_add(hex(in_file));
                assert_eq!(hex(computed), expected, "{}: {line:?}", place.name);
                assert_eq!(hex(by_runtime), expected, "{}: {line:?}", place.name);
                assert_eq!(*back, "true", "{line:?}");
            }
            [event, object, bias] => {
                let name = all[object.parse::<usize>().unwrap()][3].clone();
                moves.push(format!("{event} {name}"));
                last.insert(name, hex(bias));
            }
            _ => panic!("{line:?}"),
        }
    }
    for (name, bias) in &last {
        assert_eq!(found[name], *bias, "{name}");
    }
    if is_musl {
        return seen;
    }
    let of_late: Vec<&String> = moves.iter().filter(|m| m.ends_with("liblate.so")).collect();
    let expected = [
        "Mapped liblate.so",
        "Unmapped liblate.so",
        "Mapped liblate.so",
    ];
    assert_eq!(of_late, expected, "{moves:?}");
    assert_eq!(moves[0], "Mapped libnear.so");
    seen
}

fn assert_objects_and_bindings(place: &Place, late: &Path) {
    let seen = seen(place, late);
    let objects: Vec<Vec<&str>> = (seen.iter().filter(|l| l[0] == "object"))
        .map(|l| l[1..].iter().map(String::as_str).collect())
        .collect();
    let facts = |i: usize| objects[i][1..4].to_vec();
    assert_eq!(facts(0), ["program", place.name.as_str(), "-"]);
    assert_eq!(facts(1), ["library", "libnear.so", "libnear.so"]);
    assert_eq!(facts(2), ["library", "libfar.so.2", "libfar.so.2"]);
    assert_eq!(facts(3), ["library", "libc.so.6", "libc.so.6"]);
    let loader = "ld-linux-x86-64.so.2";
    assert_eq!(facts(4), ["interpreter", loader, loader]);
    assert_eq!(facts(5), ["library", "liblate.so", "-"]);
    assert_eq!(objects.len(), 6);
    assert_eq!(objects[5][6], late.to_str().unwrap());
    assert!(objects.iter().all(|o| o[5] != "0"), "{objects:?}");
    let id = Command::new("file").arg("-L").arg(objects[3][6]).output();
    if let Ok(id) = id {
        let text = String::from_utf8_lossy(&id.stdout).into_owned();
        assert!(text.contains(objects[3][4]), "{text}");
    }
    let firsts: Vec<&Vec<String>> = seen.iter().filter(|l| l[0] == "first").collect();
    assert!(firsts[0][2].starts_with("0x"), "{firsts:?}");
    assert!(firsts[3][2].starts_with("libc.so.6+0x"), "{firsts:?}");

    let called = |from: &str| -> Vec<String> {
        let mine = seen.iter().filter(|l| l[0] == "call" && l[1] == from);
        mine.map(|l| l[2..].join(" ")).collect()
    };
    assert_eq!(
        called("near_calls"),
        [
            "far_plain libfar.so.2",
            // An IFUNC is bound when the process starts.
            "far_chosen@plt libnear.so",
            // Of two versions the default one.
            "far_new libfar.so.2",
        ]
    );
    assert_eq!(called("near_tail"), ["far_plain libfar.so.2"]);
    // Both libraries define it.
    assert_eq!(called("near_twice"), ["twice@plt libnear.so"]);
    assert_eq!(called("near_sorts"), ["qsort libc.so.6"]);
    // A library that is opened later is bound to those that are there from the start.
    assert_eq!(called("late"), ["far_plain libfar.so.2"]);
    let of_main = called("main");
    for callee in ["near_sorts libnear.so", "dlopen libc.so.6", "- -"] {
        assert!(of_main.iter().any(|c| c == callee), "{of_main:?}");
    }
}

#[test]
fn objects_their_addresses_and_bindings() {
    let (place, late) = across("across", "gcc", &[]);
    assert_objects_and_bindings(&place, &late);
}

#[test]
fn objects_of_a_program_at_fixed_addresses() {
    // Calls go through slots of the global offset table.
    let (place, late) = across(
        "across-fixed",
        "gcc",
        &["-no-pie", "-fno-plt", "-Wl,-z,now"],
    );
    assert_objects_and_bindings(&place, &late);
}

#[test]
fn objects_under_musl() {
    programs::needed("musl-gcc");
    let (place, late) = across("across-musl", "musl-gcc", &[]);
    let seen = seen(&place, &late);
    let has = |words: &str| seen.iter().any(|l| l.join(" ") == words);
    assert!(has("call near_calls far_plain libfar.so.2"), "{seen:?}");
    assert!(has("call near_twice twice@plt libnear.so"), "{seen:?}");
}

#[test]
fn a_preloaded_library_may_take_a_call() {
    let (place, _) = across("across-preload", "gcc", &[]);
    let preloaded = place.library("far.c", "libpre.so", &["-DPLAIN"]);
    let [seen, output] = ["seen", "output"].map(|file| place.folder.join(file));
    let mut command = Command::new(atom::command().unwrap());
    command.env("LD_PRELOAD", &preloaded);
    command.arg(place.original()).arg("-o").arg(place.bundle());
    command.args(["-q", "--libs", "--tool", "objects", "--"]);
    command.args(["--from", "near_calls", "--from", "near_sorts", "--seen"]);
    command.arg(&seen).arg("--output").arg(&output);
    assert!(command.status().unwrap().success());
    let seen: Vec<String> = lines(&seen).iter().map(|l| l.join(" ")).collect();
    let has = |words: &str| seen.iter().any(|line| line == words);
    assert!(
        seen.iter()
            .any(|l| l.starts_with("object 1 library libpre.so - ")),
        "{seen:?}"
    );
    // Two objects define it.
    assert!(has("call near_calls far_plain@plt libnear.so"), "{seen:?}");
    assert!(has("call near_sorts qsort libc.so.6"), "{seen:?}");
}

#[test]
fn a_program_alone_is_one_object() {
    let (place, _) = across("across-alone", "gcc", &[]);
    let [seen, output] = ["seen", "output"].map(|file| place.folder.join(file));
    let mut command = Command::new(atom::command().unwrap());
    command.arg(place.original()).arg("-o").arg(place.bundle());
    command.args(["-q", "--tool", "objects", "--", "--from", "main", "--seen"]);
    command.arg(&seen).arg("--output").arg(&output);
    let status = command.status().unwrap();
    assert!(status.success());
    let outcome = run(&place, &[]);
    let seen = lines(&seen);
    let objects: Vec<_> = seen.iter().filter(|l| l[0] == "object").collect();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0][1..4], ["0", "program", "across-alone"]);
    let stub = ["call", "main", "near_sorts@plt", "across-alone"];
    assert!(seen.iter().any(|l| *l == stub), "{seen:?}");
    let lines = lines(&output);
    let [address] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let expected = found_by_program(&outcome)[""] + hex(&address[2]);
    assert_eq!([hex(&address[3]), hex(&address[4])], [expected; 2]);
}

/// The arcs of a run with `prof`: number of calls by kind, caller and callee.
fn arcs(report: &Path) -> HashMap<(String, String, String), u64> {
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or("").to_owned();
    let mut arcs = HashMap::new();
    for row in report["arcs"].as_array().unwrap() {
        let object = |key: &str| {
            let pc = text(row, key);
            pc.split_once('+')
                .map_or("".to_owned(), |(o, _)| format!("{o}:"))
        };
        let caller = format!("{}{}", object("caller_pc"), text(row, "caller"));
        let callee = format!("{}{}", object("callee_pc"), text(row, "callee"));
        let key = (text(row, "kind"), caller, callee);
        *arcs.entry(key).or_default() += row["calls"].as_u64().unwrap();
    }
    arcs
}

#[test]
fn arcs_of_prof_cross_objects() {
    for (name, flags) in [
        ("across-prof", &["-Wl,-z,lazy"][..]),
        ("across-prof-now", &["-no-pie", "-fno-plt"]),
    ] {
        let (place, _) = across(name, "gcc", flags);
        let report = place.folder.join("prof.json");
        instrument(&place, "prof", &[], &["--json", report.to_str().unwrap()]);
        run(&place, &[]);
        let arcs = arcs(&report);
        let get = |kind: &str, caller: &str, callee: &str| {
            let key = (kind.to_owned(), caller.to_owned(), callee.to_owned());
            arcs.get(&key).copied().unwrap_or(0)
        };
        assert_eq!(get("call", "main", "libnear.so:near_sorts"), 1, "{arcs:?}");
        assert_eq!(get("call", "libnear.so:near_sorts", "libc.so.6:qsort"), 1);
        let far = "libfar.so.2:far_plain";
        assert_eq!(get("call", "libnear.so:near_calls", far), TURNS);
        assert_eq!(get("jump", "libnear.so:near_tail", far), 1);
        let version = get("call", "libnear.so:near_calls", "libfar.so.2:far_new");
        assert_eq!(version, 1);
        // Only libc calls back.
        let back = arcs
            .iter()
            .filter(|((_, _, callee), _)| callee == "compare");
        let back: Vec<_> = back.collect();
        let [((kind, caller, _), count)] = back.as_slice() else {
            panic!("{back:?}");
        };
        assert_eq!((kind.as_str(), **count), ("indirect", COMPARED));
        assert!(caller.starts_with("libc.so.6:"), "{caller}");
        // A stub whose binding is certain is no procedure of the graph.
        let stubs = arcs
            .keys()
            .filter(|(_, _, callee)| callee.ends_with("@plt"));
        let stubs: Vec<&str> = stubs.map(|(_, _, callee)| callee.as_str()).collect();
        assert!(stubs.contains(&"libnear.so:twice@plt"), "{stubs:?}");
        assert!(!stubs.contains(&"libnear.so:far_plain@plt"), "{stubs:?}");
    }
}

#[test]
fn calllog_nests_calls_across_objects() {
    let (place, _) = across("across-calllog", "gcc", &[]);
    let log = place.folder.join("calllog.out");
    instrument(&place, "calllog", &[], &["--output", log.to_str().unwrap()]);
    run(&place, &[]);
    let output = Command::new(atom::command().unwrap())
        .arg("analyze")
        .arg(&log)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let calls = |name: &str| -> u64 {
        let mut rows = text.lines().map(|l| l.split_whitespace());
        let row = rows.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()));
        let number = row.flatten().unwrap_or("0").replace(',', "");
        number.parse().unwrap_or(0)
    };
    assert_eq!(calls("compare"), COMPARED, "{text}");
    assert_eq!(calls("libfar.so.2:far_plain"), TURNS + 1, "{text}");
    assert_eq!(calls("libc.so.6:qsort"), 1, "{text}");
    assert_eq!(calls("libnear.so:near_sorts"), 1, "{text}");
}

#[test]
fn ranges_in_libraries_and_what_libraries_do() {
    let (place, _) = across("across-ranges", "gcc", &["-Wl,-z,lazy"]);
    let report = place.folder.join("ranges.json");
    let mut options = vec!["--json", report.to_str().unwrap()];
    for data in [
        "far_table",
        "copied",
        "block=heap:proc=libfar.so.2:far_fills",
        "none=heap:proc=libnear.so:twice,size=1000000..",
    ] {
        options.extend(["--data", data]);
    }
    options.extend(["--code", "libfar.so.2:far_fills", "--code", "near_sorts"]);
    // The procedure allocates nothing.
    let mut command = Command::new(atom::command().unwrap());
    command.arg(place.original()).arg("-o").arg(place.bundle());
    command.args(["-q", "--libs", "--tool", "ranges", "--"]);
    let output = command.args(&options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the range `none` has no blocks"), "{said}");

    options.retain(|o| !o.starts_with("none="));
    let at = options.iter().rposition(|o| *o == "--data").unwrap();
    options.remove(at);
    options.truncate(options.len() - 4);
    instrument(&place, "ranges", &[], &options);
    run(&place, &[]);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let rows = report["data_ranges"].as_array().unwrap();
    let row = |name: &str| {
        let found = rows.iter().find(|r| r["range"] == name);
        found.unwrap_or_else(|| panic!("{name}: {rows:?}"))
    };
    let number = |name: &str, key: &str| row(name)[key].as_u64().unwrap();
    let bytes = 8 * ELEMENTS;

    // The library's table: far_fills stores and loads each element once.
    assert_eq!(number("far_table", "loads"), ELEMENTS, "{rows:?}");
    assert_eq!(number("far_table", "stores"), ELEMENTS);
    assert_eq!(number("far_table", "bytes"), 2 * bytes);
    assert_eq!(number("far_table", "times"), 1);
    let start = row("far_table")["start"].as_str().unwrap();
    assert!(start.starts_with("libfar.so.2+0x"), "{start}");

    // libc's memcpy loads the block and stores into the program's array; vectors at the ends may overlap.
    // malloc and free in libc touch the block's first words, too.
    assert!(number("copied", "bytes") >= bytes, "{rows:?}");
    assert!(number("copied", "bytes") < 2 * bytes, "{rows:?}");
    assert_eq!(number("block", "times"), 1);
    assert_eq!(number("block", "size"), bytes);
    let of_block = number("block", "bytes");
    assert!((2 * bytes..3 * bytes).contains(&of_block), "{rows:?}");

    // The procedures that did it, with their objects.
    let by = report["procedures"].as_array().unwrap();
    let stored = |range: &str, proc: &str, object: &str| -> u64 {
        let mine = by.iter().filter(|r| r["range"] == range);
        let mine = mine.filter(|r| r["procedure"] == proc || proc.is_empty());
        let mine = mine.filter(|r| r["pc"].as_str().unwrap().starts_with(object));
        mine.map(|r| r["stores"].as_u64().unwrap()).sum()
    };
    assert_eq!(stored("far_table", "far_fills", "libfar.so.2+"), ELEMENTS);
    assert_eq!(stored("block", "far_fills", "libfar.so.2+"), ELEMENTS);
    assert!(stored("copied", "", "libc.so.6+") > 0, "{by:?}");
    assert_eq!(stored("copied", "", "0x"), 0, "{by:?}");
}
