//! Libraries that are linked and opened: by all kinds of names, in another name space, closed and opened
//! again, with thread-local variables, IFUNCs, constructors, and exceptions that cross objects. The
//! process sees the names that the original would see.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use atom_tests::outcome::{Setting, run};
use atom_tests::source::End;
use atom_tests::{atom, depth, whole};

use super::Place;

/// Number of steps after which a program is taken for one that does not end.
const MOST_STEPS: u64 = 50_000_000;

/// The program `opens.cc` with its libraries.
fn opens(name: &str, flags: &[&str]) -> (Place, Vec<PathBuf>) {
    let place = Place::new(name);
    let lib = place.folder.join("lib");
    let mut files = Vec::new();
    for (file, name, soname, more) in [
        ("liblinked.so", "linked", "liblinked.so", ""),
        ("libplain.so", "plain", "", "-Wl,-Bsymbolic"),
        ("libdescriptors.so", "descriptors", "", "-mtls-dialect=gnu2"),
        (
            "libsoname.so.1",
            "soname",
            "libsoname.so.1",
            "-Wl,-Bsymbolic",
        ),
        ("libreal.so", "real", "", "-Wl,-Bsymbolic"),
        ("libclosed.so", "closed", "", "-Wl,-Bsymbolic"),
    ] {
        let mut all = vec![format!("-DNAME={name}")];
        if !soname.is_empty() {
            all.push(format!("-Wl,-soname,{soname}"));
        }
        if !more.is_empty() {
            all.push(more.to_owned());
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        files.push(place.library("library.c", file, &all));
    }
    let soname = ["-Wl,-soname,libthrower.so"];
    files.push(place.library("thrower.cc", "libthrower.so", &soname));
    let link = lib.join("liblink.so");
    if !link.exists() {
        std::os::unix::fs::symlink("libreal.so", link).unwrap();
    }
    let mut all = place.link();
    all.extend(flags.iter().map(|f| f.to_string()));
    all.extend(["-llinked", "-lthrower"].map(str::to_owned));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let compiler = if flags.contains(&"clang") {
        "clang++"
    } else {
        "g++"
    };
    let all: Vec<&str> = all.into_iter().filter(|f| *f != "clang").collect();
    place.program(compiler, "opens.cc", &all);
    (place, files)
}

#[test]
fn what_is_opened_later_runs_as_it_is() {
    let (place, _) = opens("opens", &[]);
    place.instrument(&[]);
    let lib = place.folder.join("lib");
    let lib = lib.to_str().unwrap();
    let outcome = place.same(&[lib]);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    for words in [
        "begin soname",
        "caught callback",
        "in another space: ",
        "end closed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    place.same_with(&[lib], &[("LD_BIND_NOW", "1"), ("CHOOSE", "1")]);
}

/// Options of `atom` by which libraries are instrumented when they are opened.
fn late() -> [String; 2] {
    let command = atom::command().unwrap();
    let job = serde_json::json!({"late": [command.to_str().unwrap(), "--opened"]});
    ["--job".to_owned(), job.to_string()]
}

fn instrument_late(place: &Place) {
    let options = late();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let folder = place
        .folder
        .join("whole")
        .join(format!("{}.libs", place.name));
    // Libraries that were added to earlier bundles.
    std::fs::remove_dir_all(folder).unwrap_or_default();
    place.instrument(&options);
}

/// Each instruction of the opened libraries is counted as often as it is executed in the original.
#[test]
fn what_is_opened_later_is_counted_from_then_on() {
    for (name, flags) in [
        ("opens-late", &[][..]),
        ("opens-late-fixed", &["-no-pie", "-s"]),
    ] {
        let (place, files) = opens(name, flags);
        instrument_late(&place);
        let lib = place.folder.join("lib");
        let arguments = [lib.to_str().unwrap()];
        let mut stepped = place.command(&place.original(), &arguments);
        stepped.stdout(std::process::Stdio::null());
        let (end, expected) = whole::step(&place.original(), &mut stepped, MOST_STEPS).unwrap();
        assert_eq!(end, End::Exit(0));
        // Made, and found.
        for round in 0..2 {
            let outcome = place.same(&arguments);
            let found = place.counts(outcome.pid).expect("a report").into_iter();
            // This one is opened by a link, under whose name it is known.
            let real = |key: String| match key.strip_prefix("liblink.so+") {
                Some(address) => format!("libreal.so+{address}"),
                None => key,
            };
            let found = found.map(|(key, n)| (real(key), n)).collect();
            let mut wrong = whole::difference(&expected, &found);
            let of_libraries = |key: &str| {
                let is_of = |file: &PathBuf| {
                    let name = file.file_name().unwrap().to_string_lossy();
                    key.starts_with(&format!("{name}+"))
                };
                files.iter().any(is_of)
            };
            wrong.retain(|(key, ..)| of_libraries(key));
            assert!(wrong.is_empty(), "{name} {round}: {wrong:?}");
            for file in &files {
                let name = file.file_name().unwrap().to_string_lossy();
                // Keys have names without versions.
                let key = name.split(".so").next().unwrap();
                let own = found.iter().filter(|(k, _)| k.starts_with(key));
                let total: u64 = own.map(|(_, n)| n).sum();
                assert!(total > 30, "{name}: {total} in {key}");
            }
        }
    }
}

/// Tools whose tables have rows for all procedures, blocks or references, with options and the file that is compared.
const TOOLS: [(&str, &[&str], &str); 7] = [
    ("bbv", &[], "bbv.blocks"),
    ("counters", &["--top", "0"], "counters.out"),
    ("heap", &[], "heap.out"),
    ("memtrace", &[], "memtrace.trace"),
    (
        "memtrace",
        &["--addresses", "0-0x7fffffffffff"],
        "memtrace.trace",
    ),
    ("predict", &["--top", "0", "--full-names"], "predict.out"),
    ("reuse", &["--top", "0", "--full-names"], "reuse.out"),
];

/// The libraries in the order in which they are opened.
const OPENED: [&str; 5] = ["plain", "descriptors", "soname", "real", "closed"];

/// What a file of a tool says of the opened libraries, without figures of time.
fn said_of_opened(tool: &str, file: &Path) -> BTreeMap<String, u64> {
    let mut lines: Vec<String> = Vec::new();
    if tool == "memtrace" {
        let from = BufReader::new(File::open(file).unwrap());
        let mut reader = mem_trace::Reader::new(from).unwrap();
        while let Some(references) = reader.next_chunk().unwrap() {
            let each = references.iter();
            lines.extend(each.map(|r| format!("{} {} {}", reader.place(r.pc), r.access, r.size)));
        }
    } else {
        let text = std::fs::read_to_string(file).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    let mut said = BTreeMap::new();
    for line in lines {
        // This one is opened by a link, under whose name it is known.
        let mut line = line.replace("liblink.so", "libreal.so");
        let is_one = |name: &&str| line.contains(&format!("lib{name}.so"));
        if !OPENED.iter().any(is_one) {
            continue;
        }
        // What is predicted depends on the branches before, distances on addresses: executions count. They are in the
        // third column of tables with mispredictions and their share, else in the first.
        if matches!(tool, "counters" | "predict" | "reuse") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_second = tool == "predict" && words[1].contains('.');
            let executed = words[if is_second { 2 } else { 0 }];
            let place = words.iter().find(|word| word.contains(".so"));
            line = format!("{executed} {}", place.unwrap_or(&""));
        }
        *said.entry(line).or_default() += 1;
    }
    said
}

/// What tools report of libraries that are opened later is what they report if the libraries are there from the start.
#[test]
fn tools_see_what_is_opened_later() {
    let (place, files) = opens("opens-tools", &[]);
    let lib = place.folder.join("lib");
    let arguments = [lib.to_str().unwrap()];
    let late = late();
    let late: Vec<&str> = late.iter().map(String::as_str).collect();
    // They have the same numbers then.
    let opened = OPENED.map(|name| {
        let own = |file: &&PathBuf| file.to_string_lossy().contains(&format!("lib{name}.so"));
        files.iter().find(own).unwrap().to_str().unwrap()
    });
    let beforehand: Vec<&str> = opened.iter().flat_map(|file| ["--with", file]).collect();
    // One with tables of blocks, which is checked as well; one that calls at entries; one with state for each reference.
    const QUICK: [&str; 3] = ["bbv", "counters", "reuse"];
    let tools = TOOLS.iter();
    for &(tool, options, file) in tools.filter(|t| depth::is_full() || QUICK.contains(&t.0)) {
        let said = |more: &[&str]| {
            let folder = place.folder.join("whole");
            let folder = folder.join(format!("{}.libs", place.name));
            std::fs::remove_dir_all(folder).unwrap_or_default();
            // Libraries are checked as for tools that are not shipped; one that is refused would not be seen.
            let check: &[&str] = if tool == "bbv" { &["--check"] } else { &[] };
            let all = [&["--libs"], check, more, &["--"], options].concat();
            place.instrument_by(tool, &all);
            place.same(&arguments);
            said_of_opened(tool, &place.folder.join(file))
        };
        let (expected, found) = (said(&beforehand), said(&late));
        assert_eq!(found, expected, "{tool} {options:?}");
        let is_seen = |name: &&str| found.keys().any(|l| l.contains(&format!("lib{name}.so")));
        // They allocate nothing.
        assert!(tool == "heap" || OPENED.iter().all(is_seen), "{tool}");
    }
}

/// A program that opens plug-ins of one folder gets the others of that folder with the third, and each is counted. Neither
/// what is opened in another order nor what is never opened does any harm.
#[test]
fn plug_ins_are_added_together() {
    let place = Place::new("plugins");
    let libraries: Vec<PathBuf> = (0..8)
        .map(|i| {
            place.library(
                "library.c",
                &format!("plugin{i}.so"),
                &[&format!("-DNAME=plugin{i}")],
            )
        })
        .collect();
    place.program("gcc", "plugins.c", &[]);
    instrument_late(&place);
    let order = [4, 1, 6, 7, 0, 3, 2];
    let arguments: Vec<&str> = order
        .iter()
        .map(|i| libraries[*i].to_str().unwrap())
        .collect();
    // Made, and found.
    for _ in 0..2 {
        let outcome = place.same(&arguments);
        let found = place.counts(outcome.pid).expect("a report");
        for (i, library) in libraries.iter().enumerate() {
            let times = order.iter().position(|opened| *opened == i);
            let symbols = atom_tests::counts::Symbols::read(library);
            let body = symbols.address(&format!("loop_body_plugin{i}")).unwrap();
            let count = found.get(&format!("plugin{i}.so+{body:#x}"));
            assert_eq!(count.copied(), times.map(|n| 100 * (n as u64 + 1)), "{i}");
        }
    }
    let late = (place.folder.join("whole")).join(format!("{}.libs/late", place.name));
    let is_step = |folder: &PathBuf| folder.join("state").exists();
    let steps = std::fs::read_dir(late).unwrap().map(|e| e.unwrap().path());
    assert_eq!(steps.filter(is_step).count(), 3);
}

/// A new name changes the times of the tool's inode, and not the tool.
#[test]
fn a_new_name_of_the_tool_is_no_other_tool() {
    let place = Place::new("renamed-tool");
    let library = place.library("library.c", "plugin.so", &["-DNAME=plugin"]);
    place.program("gcc", "plugins.c", &[]);
    instrument_late(&place);
    let tool = atom::command().unwrap().with_file_name("libicount.so");
    std::fs::hard_link(tool, place.folder.join("tool.so")).unwrap();
    let outcome = place.same(&[library.to_str().unwrap()]);
    let found = place.counts(outcome.pid).expect("a report");
    assert!(found.keys().any(|key| key.starts_with("plugin.so+")));
}

#[test]
fn threads_children_and_libraries_at_one_place() {
    let (place, files) = opens("opens-at-once", &[]);
    place.program("g++", "late.cc", &["-pthread"]);
    instrument_late(&place);
    let lib = place.folder.join("lib");
    for (name, label, counts) in [
        ("libplain.so", "plain", [20, 2001]),
        ("libreal.so", "real", [50, 300]),
        ("libclosed.so", "closed", [0, 21]),
        ("libdescriptors.so", "descriptors", [0, 27]),
    ] {
        place.same(&[lib.to_str().unwrap()]);
        let file = files.iter().find(|f| f.ends_with(name)).unwrap();
        assert_eq!(
            place.executed(file, &format!("loop_body_{label}")),
            counts,
            "{name}"
        );
    }
}

/// Where nothing can be written, libraries run as they are.
#[test]
fn what_cannot_be_added_runs_as_it_is() {
    let (place, files) = opens("opens-unwritable", &[]);
    instrument_late(&place);
    let folder = place
        .folder
        .join("whole")
        .join(format!("{}.libs/late", place.name));
    std::fs::remove_dir_all(folder).unwrap();
    let lib = place.folder.join("lib");
    let outcome = place.same(&[lib.to_str().unwrap()]);
    let found = place.counts(outcome.pid).expect("a report");
    let plain = files.iter().find(|f| f.ends_with("libplain.so")).unwrap();
    assert!(plain.exists() && found.keys().all(|key| !key.starts_with("libplain.so+")));
}

#[test]
fn what_is_named_beforehand_is_counted() {
    for (name, flags) in [
        ("opens-with", &[][..]),
        ("opens-fixed", &["-no-pie", "-s"]),
        ("opens-clang", &["clang", "-Wl,-z,now"]),
    ] {
        let (place, files) = opens(name, flags);
        let mut with = Vec::new();
        for file in &files {
            with.extend(["--with", file.to_str().unwrap()]);
        }
        place.instrument(&with);
        let lib = place.folder.join("lib");
        let outcome = place.same(&[lib.to_str().unwrap()]);
        let counts = place.counts(outcome.pid).expect("a report");
        for file in &files {
            let key = file.file_name().unwrap().to_string_lossy().into_owned();
            let key = format!("{}.so+", key.split(".so").next().unwrap());
            let own = counts.iter().filter(|(k, _)| k.starts_with(&key));
            let total: u64 = own.map(|(_, n)| n).sum();
            assert!(total > 30, "{name}: {total} in {key}");
        }
    }
}

#[test]
fn a_modified_library_is_told_and_a_link_to_it_is_no_modification() {
    let (place, files) = opens("opens-modified", &[]);
    place.instrument(&[]);
    let lib = place.folder.join("lib");
    let arguments = [lib.to_str().unwrap()];
    let linked = files.iter().find(|f| f.ends_with("liblinked.so")).unwrap();
    let count = |pid| {
        let counts = place.counts(pid).expect("a report");
        let own = counts
            .iter()
            .filter(|(k, _)| k.starts_with("liblinked.so+"));
        own.map(|(_, n)| n).sum::<u64>()
    };
    // A new name changes the inode's times but not the contents.
    std::fs::hard_link(linked, place.folder.join("other-name")).unwrap();
    let outcome = place.same(&arguments);
    assert!(count(outcome.pid) > 10);
    let file = std::fs::File::options().append(true).open(linked).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    let mut command = place.command(&place.bundle(), &arguments);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    let said = String::from_utf8_lossy(&outcome.stderr);
    let words = "liblinked.so was modified after it was instrumented";
    assert!(said.contains(words), "{said}");
    assert_eq!(count(outcome.pid), 0);
}

/// The interpreter maps the zeros at the end of a segment of data before it maps what is after that segment.
#[test]
fn code_behind_data_is_mapped_and_counted() {
    let place = Place::new("useparted");
    let behind = ["-Wl,--section-start=behind=0x200000"];
    let library = place.library("parted.c", "libparted.so", &behind);
    let mut all = place.link();
    all.push("-lparted".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    place.program("gcc", "useparted.c", &all);
    place.instrument(&[]);
    place.same(&[]);
    assert_eq!(place.executed(&library, "twice"), [3]);
}
