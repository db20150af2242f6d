//! The tool `cover`: its lines against gcov's, its marks against its counts, and its files against readers of their
//! formats.

mod afl;
mod compared;
mod forks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::check::Case;
use atom_tests::depth;
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::programs;
use atom_tests::source;

fn folder(name: &str) -> PathBuf {
    atom_tests::cache::empty_folder(&format!("cover-{name}"))
}

/// Runs a command in a folder; it must succeed.
fn ok(command: &mut Command, folder: &Path) -> String {
    let output = command.current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes a test program with debug information.
fn compile(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/programs");
    let program = folder.join("plain");
    let mut command = Command::new("gcc");
    command.arg("-g").args(options).arg(source.join(name));
    ok(command.arg("-o").arg(&program), folder);
    program
}

/// Runs a program with the tool; returns the tracefile and the file of blocks.
fn measure(program: &Path, folder: &Path, options: &[&str], words: &[&str]) -> (String, Vec<u8>) {
    let [info, blocks, out] = ["c.info", "c.drcov", "c.out"].map(|name| folder.join(name));
    let rewritten = folder.join("rewritten");
    let mut all: Vec<String> = options.iter().map(|o| o.to_string()).collect();
    for (option, file) in [("--lcov", &info), ("--drcov", &blocks), ("--output", &out)] {
        all.extend([option.to_owned(), file.display().to_string()]);
    }
    atom::instrument(program, &rewritten, &Job::Tool("cover".into(), all), true).unwrap();
    let mut command = Command::new(&rewritten);
    command.args(words);
    plain_environment(&mut command);
    run(&mut command, &Setting::default()).unwrap();
    let text = std::fs::read_to_string(&info).unwrap();
    let bytes = std::fs::read(&blocks).unwrap();
    for file in [info, blocks, out] {
        std::fs::remove_file(file).unwrap();
    }
    (text, bytes)
}

/// Counts of a source file's lines in a tracefile.
fn lines(info: &str, name: &str) -> BTreeMap<u64, u64> {
    let records = info.split("end_of_record\n");
    let record = records.filter_map(|r| r.split_once("SF:"));
    let (_, record) = record
        .into_iter()
        .find(|(_, r)| r.lines().next().unwrap().ends_with(name))
        .unwrap();
    let line = |text: &str| {
        let (line, count) = text.strip_prefix("DA:")?.split_once(',')?;
        Some((line.parse().ok()?, count.parse().ok()?))
    };
    record.lines().filter_map(line).collect()
}

/// The blocks of a file in the format drcov: paths of modules, and start, size, and module of each block.
fn blocks(bytes: &[u8]) -> (Vec<String>, BTreeSet<(u32, u16, u16)>) {
    let mut rest = bytes;
    let mut line = || {
        let end = rest.iter().position(|b| *b == b'\n').unwrap();
        let text = std::str::from_utf8(&rest[..end]).unwrap().to_owned();
        rest = &rest[end + 1..];
        text
    };
    assert_eq!(line(), "DRCOV VERSION: 2");
    assert!(line().starts_with("DRCOV FLAVOR: "));
    let table = line();
    let count: usize = table
        .strip_prefix("Module Table: version 2, count ")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(line(), "Columns: id, base, end, entry, path");
    let mut sizes = Vec::new();
    let mut paths = Vec::new();
    for number in 0..count {
        let row = line();
        let fields: Vec<&str> = row.splitn(5, ',').map(str::trim).collect();
        assert_eq!(fields[0], number.to_string());
        let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
        sizes.push(hex(fields[2]) - hex(fields[1]));
        paths.push(fields[4].to_owned());
    }
    let head = line();
    let count = head
        .strip_prefix("BB Table: ")
        .unwrap()
        .strip_suffix(" bbs")
        .unwrap();
    let entries: usize = count.parse().unwrap();
    assert_eq!(rest.len(), entries * 8);
    let mut found = BTreeSet::new();
    for entry in rest.chunks(8) {
        let start = u32::from_le_bytes(entry[..4].try_into().unwrap());
        let [size, module] = [4, 6].map(|i| u16::from_le_bytes([entry[i], entry[i + 1]]));
        assert!(u64::from(start) + u64::from(size) <= sizes[usize::from(module)]);
        assert!(
            found.insert((start, size, module)),
            "{start:#x} is there twice"
        );
    }
    (paths, found)
}

/// Lines and counts of gcov's text.
fn gcov(text: &str) -> BTreeMap<u64, u64> {
    let line = |text: &str| {
        let mut fields = text.splitn(3, ':').map(str::trim);
        let count = fields.next()?.trim_end_matches('*');
        let line: u64 = fields.next()?.parse().ok()?;
        match count {
            "#####" | "=====" => Some((line, 0)),
            count => Some((line, count.parse().ok()?)),
        }
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn lines_are_those_of_gcov() {
    let folder = folder("gcov");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/programs/ways.c");
    std::fs::copy(&source, folder.join("ways.c")).unwrap();
    let gcc = |words: &[&str]| ok(Command::new("gcc").args(words), &folder);
    gcc(&["-O0", "-g", "ways.c", "-o", "plain"]);
    gcc(&["-O0", "--coverage", "ways.c", "-o", "counting"]);
    for words in [&[][..], &["word"]] {
        ok(Command::new("./counting").args(words), &folder);
        let text = ok(
            Command::new("gcov").args(["-t", "counting-ways.gcda"]),
            &folder,
        );
        let expected = gcov(&text);
        assert!(expected.len() > 50, "{text}");
        std::fs::remove_file(folder.join("counting-ways.gcda")).unwrap();
        let (info, _) = measure(&folder.join("plain"), &folder, &["--counts"], words);
        let found = lines(&info, "ways.c");
        let text = std::fs::read_to_string(&source).unwrap();
        let source: Vec<&str> = text.lines().collect();
        for (line, count) in &expected {
            let expected = match source[*line as usize - 1].trim() {
                // A label without a statement has no code.
                "case 1:" => None,
                // It returns twice, and gcov counts the first time only.
                text if text.contains("setjmp") => Some(2),
                _ => Some(*count),
            };
            let found = found.get(line).copied();
            assert_eq!(found, expected, "line {line} with {words:?}");
        }
        // The ends of functions have code, which gcov does not always list.
        for line in found.keys().filter(|line| !expected.contains_key(line)) {
            assert_eq!(source[*line as usize - 1], "}", "line {line}");
        }
        // Without counts the same lines are there, and those that were executed have 1.
        let (info, _) = measure(&folder.join("plain"), &folder, &[], words);
        let marked: BTreeMap<u64, u64> = found.iter().map(|(l, n)| (*l, (*n).min(1))).collect();
        assert_eq!(lines(&info, "ways.c"), marked);
    }
}

/// With marks the same blocks and ways of branches are seen as with counts, in all test programs that do the same each
/// time.
#[test]
fn marks_see_what_counters_count() {
    let folder = folder("marks");
    let mut built = 0;
    for source in source::all().unwrap() {
        if !source.countable || source.counts_in.is_some() || !source.runs_here() {
            continue;
        }
        let Some(variant) = source.variants.first() else {
            continue;
        };
        let case = Case::build(&source, variant).unwrap();
        // Otherwise each program is compared in one of two ways.
        let is_full = depth::is_full();
        if is_full || built % 2 == 0 {
            let (_, counted) = measure(&case.original(), &folder, &["--counts"], &[]);
            let (_, marked) = measure(&case.original(), &folder, &[], &[]);
            let [counted, marked] = [blocks(&counted), blocks(&marked)];
            assert!(!counted.1.is_empty());
            let missing: Vec<_> = counted.1.symmetric_difference(&marked.1).collect();
            assert!(missing.is_empty(), "{}: {missing:x?}", source.name());
        }
        if is_full || built % 2 == 1 {
            let (counted, _) = measure(&case.original(), &folder, &["--counts", "--edges"], &[]);
            let (marked, _) = measure(&case.original(), &folder, &["--edges"], &[]);
            assert_eq!(ones(&counted), ones(&marked), "{}", source.name());
        }
        built += 1;
    }
    assert!(built > 20, "{built} programs");
}

/// A block may follow from blocks that follow from others, at higher addresses too.
#[test]
fn marks_see_joins_behind_joins() {
    let folder = folder("joins");
    let program = compile(&folder, "joins.S", &[]);
    let words = ["a"; 4];
    for number in 0..=words.len() {
        let words = &words[..number];
        let (_, counted) = measure(&program, &folder, &["--counts"], words);
        let (_, marked) = measure(&program, &folder, &[], words);
        assert_eq!(blocks(&marked), blocks(&counted), "with {number} words");
    }
}

/// Without counts 1 stands for any number, also where a file's code is there more than once.
#[test]
fn marks_of_code_that_is_there_twice_are_one() {
    let folder = folder("twice");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/programs/twice.c");
    let gcc = |words: &[&str]| ok(Command::new("gcc").args(words).arg(&source), &folder);
    gcc(&["-g", "-O0", "-fPIC", "-shared", "-o", "libother.so"]);
    gcc(&["-g", "-O0", "-c", "-o", "other.o"]);
    gcc(&["-g", "-O0", "-DMAIN", "-o", "one", "other.o"]);
    let path = "-Wl,--no-as-needed,-rpath,$ORIGIN";
    gcc(&["-g", "-O0", "-DMAIN", "-o", "two", path, "libother.so"]);
    for program in ["one", "two"] {
        for (options, entries, second) in [(&["--counts"][..], 2, 2), (&[], 1, 1)] {
            let tool = ["--lcov", "c.info", "--output", "c.out"].map(str::to_owned);
            let tool = tool
                .into_iter()
                .chain(options.iter().map(|o| o.to_string()));
            let job = Job::Tool("cover".into(), tool.collect());
            let rewritten = folder.join("rewritten");
            let job = Job::Whole(Box::new(job), vec![]);
            atom::instrument(&folder.join(program), &rewritten, &job, true).unwrap();
            ok(
                Command::new("sh").args(["-c", "./rewritten; test $? -lt 126"]),
                &folder,
            );
            let mut report = Command::new(atom::command().unwrap());
            report.args(["report", "c.profile", "--export", "lcov", "-o", "r.info"]);
            ok(&mut report, &folder);
            for name in ["c.info", "r.info"] {
                let info = std::fs::read_to_string(folder.join(name)).unwrap();
                let functions = forks::functions(&info);
                assert_eq!(functions["shared"], entries, "{program} {options:?} {name}");
                let lines = lines(&info, "twice.c");
                assert_eq!((lines[&3], lines[&4], lines[&5]), (second, 0, second));
            }
            // Rows of several runs are put together.
            let mut report = Command::new(atom::command().unwrap());
            report.args(["report", "c.profile", "c.profile", "c.profile"]);
            let rows = ok(report.args(["--table", "lines", "--csv"]), &folder);
            let places = rows.lines().map(|row| row.split(',').nth(1).unwrap());
            let places: Vec<&str> = places.filter(|p| p.ends_with("twice.c:3")).collect();
            assert_eq!(places.len(), 1, "{places:?}");
        }
    }
}

/// A tracefile in which all counts are at most 1.
fn ones(info: &str) -> Vec<String> {
    let one = |line: &str| {
        let is_count = |n: &str| n.parse::<u64>().is_ok();
        match line.split_once(':') {
            Some((key @ ("DA" | "BRDA"), rest)) => {
                let (head, count) = rest.rsplit_once(',').unwrap();
                let count = if is_count(count) && count != "0" {
                    "1"
                } else {
                    count
                };
                format!("{key}:{head},{count}")
            }
            Some(("FNDA", rest)) => {
                let (count, name) = rest.split_once(',').unwrap();
                format!("FNDA:{},{name}", u64::from(count != "0"))
            }
            _ => line.to_owned(),
        }
    };
    info.lines().map(one).collect()
}

#[test]
fn genhtml_and_xmllint_read_the_files() {
    let folder = folder("readers");
    let program = compile(&folder, "ways.c", &[]);
    let xml = folder.join("c.xml").display().to_string();
    let options = ["--counts", "--edges", "--cobertura", &xml];
    let (info, found) = measure(&program, &folder, &options, &[]);
    assert!(
        info.contains("BRDA:") && info.contains("FNDA:9,choose\n")
            || info.contains("FNDA:5,choose\n")
    );
    let (paths, _) = blocks(&found);
    assert_eq!(paths, [program.display().to_string()]);
    let all = lines(&info, "ways.c");
    std::fs::write(folder.join("c.info"), info).unwrap();
    match programs::in_path("genhtml") {
        Some(genhtml) => {
            let text = ok(
                Command::new(genhtml).args(["c.info", "-o", "html", "--branch-coverage"]),
                &folder,
            );
            let executed = all.values().filter(|n| **n != 0).count();
            let expected = format!("({executed} of {} lines)", all.len());
            assert!(text.contains(&expected), "{text}");
        }
        None => eprintln!("genhtml is not installed"),
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cover/cobertura.dtd");
    let text = std::fs::read_to_string(&xml).unwrap();
    assert!(text.contains("condition-coverage=\"50% (1/2)\""), "{text}");
    match programs::in_path("xmllint") {
        Some(xmllint) => {
            _ = ok(
                Command::new(xmllint)
                    .args(["--noout", "--nonet", "--dtdvalid"])
                    .arg(rules)
                    .arg("c.xml"),
                &folder,
            )
        }
        None => eprintln!("xmllint is not installed"),
    }
}

/// The profile names all procedures that have lines, whether the table for people has them or not.
#[test]
fn profiles_do_not_depend_on_the_table_for_people() {
    let folder = folder("profiles");
    let program = compile(&folder, "ways.c", &[]);
    for is_whole in [false, true] {
        let tables = |top: &str| {
            let rewritten = folder.join(format!("top{top}-{is_whole}"));
            let options = ["--top", top, "--output", "c.out"].map(str::to_owned);
            let tool = Job::Tool("cover".into(), options.into());
            let job = if is_whole {
                Job::Whole(Box::new(tool), vec![])
            } else {
                tool
            };
            atom::instrument(&program, &rewritten, &job, true).unwrap();
            ok(Command::new("setarch").arg("-R").arg(rewritten), &folder);
            let report = |table: &str| {
                let mut command = Command::new(atom::command().unwrap());
                command.args(["report", "c.profile", "--top", "0", "--table", table]);
                let text = ok(command.args(["--width", "9999"]), &folder);
                let rows = text.lines().filter(|line| line.starts_with("  "));
                let mut rows: Vec<String> = rows.map(str::to_owned).collect();
                rows.sort_unstable();
                rows
            };
            let people = std::fs::read_to_string(folder.join("c.out")).unwrap();
            (people, report("procedures"), report("lines"))
        };
        let (short, long) = (tables("1"), tables("0"));
        assert_eq!((&short.1, &short.2), (&long.1, &long.2));
        let never = short.1.iter().find(|row| row.ends_with(" never"));
        assert!(
            never.is_some_and(|row| row.contains("ways.c:")),
            "{never:?}"
        );
        assert!(short.1.iter().any(|row| row.ends_with(" _start")));
        // What people are not shown is told: the rows but for one, and the titles of the columns.
        let known = long.0.split_once("\nprocedures\n").unwrap().1;
        let known = known.split("\n\n").next().unwrap();
        let rows = known.lines().count() - 2;
        let told = format!("... and {rows} more; --top 0 shows all");
        assert!(
            short.0.replace(',', "").contains(&told),
            "{told}: {}",
            short.0
        );
    }
}
