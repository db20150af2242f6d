//! Programs that make it hard to write a file at their end: no descriptors, another root, no
//! space. They behave as before, and the counts are written, or a message says why they are not.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;

/// Result for the file of counts.
enum Counts {
    Written,
    /// None; standard error says so, and contains this text.
    Refused(&'static str),
}

use Counts::{Refused, Written};

const CASES: [(&str, Counts); 10] = [
    ("nothing", Written),
    ("close", Written),
    ("close_range", Written),
    ("chdir", Written),
    ("umask", Written),
    ("blocked", Written),
    ("chroot", Refused("No such file or directory")),
    ("no descriptors", Written),
    ("file size", Refused("File too large")),
    ("file size caught", Refused("File too large")),
];

fn built(flags: &[&str]) -> (PathBuf, PathBuf, PathBuf) {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("surroundings{}", flags.concat()));
    std::fs::create_dir_all(&folder).unwrap();
    let (program, rewritten) = (folder.join("ends"), folder.join("ends.prof"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/ends.c");
    let made = Command::new("gcc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .args(flags)
        .status();
    assert!(made.expect("gcc runs").success());
    let options = ["--entries", "--output", "counts"]
        .map(String::from)
        .to_vec();
    atom::instrument(
        &program,
        &rewritten,
        &Job::Tool("prof".into(), options),
        true,
    )
    .unwrap();
    (folder, program, rewritten)
}

/// Runs a program in a new, empty folder, which stays as the program leaves it.
fn run(program: &Path, how: &str, folder: &Path, stdout: Stdio) -> Output {
    // The folder may not exist, so an error is ignored.
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.arg(how).current_dir(folder).stdout(stdout);
    command
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

/// Number of entries that the tool reports for `work`.
fn entries(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find(|l| l.split_whitespace().any(|word| word == "work"))?;
    line.split_whitespace()
        .next()?
        .replace(',', "")
        .parse()
        .ok()
}

fn check(flags: &[&str]) {
    let (folder, program, rewritten) = built(flags);
    for (how, counts) in CASES {
        let before = run(&program, how, &folder.join("before"), Stdio::piped());
        // Only root may change the root.
        if how == "chroot" && before.status.code() == Some(90) {
            println!("chroot: not allowed here");
            continue;
        }
        let inside = folder.join("after");
        let after = run(&rewritten, how, &inside, Stdio::piped());
        let said = String::from_utf8_lossy(&after.stderr).into_owned();
        assert_eq!(before.status, after.status, "{how}: {said}");
        assert_eq!(before.status.code(), Some(17), "{how}");
        assert_eq!(before.stdout, after.stdout, "{how}");
        let file = inside.join("counts");
        match counts {
            Written => {
                assert_eq!(said, "", "{how}");
                let text = std::fs::read(&file).map(|t| String::from_utf8_lossy(&t).into_owned());
                let text = text.unwrap_or_else(|e| panic!("{how}: {e}"));
                assert_eq!(entries(&text), Some(1000), "{how}: {text}");
            }
            Refused(reason) => {
                assert!(said.starts_with("prof: cannot write "), "{how}: {said}");
                assert!(
                    said.contains(reason) && said.contains("counts"),
                    "{how}: {said}"
                );
                assert!(file.metadata().map_or(true, |m| m.size() == 0), "{how}");
            }
        }
    }
}

#[test]
fn dynamic() {
    check(&[]);
}

#[test]
fn static_() {
    check(&["-static"]);
}

/// Tools that write while the program runs do not write to a file of the program's that has got the number of theirs.
#[test]
fn numbers_of_descriptors_are_the_programs() {
    let (folder, program, _) = built(&["-O0"]);
    for (tool, options) in [
        ("calllog", &["--stream", "--output", "log"][..]),
        ("memtrace", &["--output", "log"]),
        ("bbv", &["--interval", "1000", "--output", "log"]),
    ] {
        let out = folder.join(tool);
        let job = options.iter().map(|option| (*option).to_owned()).collect();
        atom::instrument(&program, &out, &Job::Tool(tool.into(), job), false).unwrap();
        let inside = folder.join("inside");
        let output = run(&out, "own", &inside, Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(17), "{tool}: {said}");
        let own = std::fs::read(inside.join("own")).unwrap();
        assert_eq!(own, b"the program's", "{tool}");
        let files = std::fs::read_dir(&inside).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let log = names.filter(|name| name.file_name().unwrap() != "own");
        let size: u64 = log.map(|name| name.metadata().unwrap().len()).sum();
        assert!(size > 10_000, "{tool}: {size} bytes");
    }
}

/// Standard output and error are full or closed.
#[test]
fn nowhere_to_tell() {
    let (folder, program, rewritten) = built(&["-no-pie"]);
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for script in ["\"$0\" 'file size'", "\"$0\" 'file size' >&- 2>&-"] {
        let run = |program: &Path| {
            let inside = folder.join("nowhere");
            std::fs::create_dir_all(&inside).unwrap();
            let mut command = Command::new("sh");
            plain_environment(&mut command);
            command
                .args(["-c", script])
                .arg(program)
                .current_dir(inside);
            command.stdout(full()).stderr(full()).status().unwrap()
        };
        assert_eq!(run(&program).code(), Some(17), "{script}");
        assert_eq!(run(&rewritten).code(), Some(17), "{script}");
    }
}

/// The reader of the tool's output closes it before anything is written.
#[test]
fn the_reader_has_gone() {
    let (folder, program, _) = built(&["-O2"]);
    let rewritten = folder.join("ends.pipe");
    let job = Job::Tool("prof".into(), ["--output", "-"].map(String::from).to_vec());
    atom::instrument(&program, &rewritten, &job, true).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(&rewritten);
    plain_environment(&mut command);
    command.arg("wait").stdin(Stdio::piped()).stdout(writer);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    assert_eq!(line, "wait\n");
    // The reader is gone; now the program may end.
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(17));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot write") && said.contains("Broken pipe"),
        "{said}"
    );
}

/// The program closes its standard output at its end, as coreutils do.
#[test]
fn standard_output_is_closed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("closed");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("closes.c"), folder.join("closes"));
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        static void end(void) { fclose(stdout); fclose(stderr); }\n\
        int main(void) { atexit(end); puts(\"mine\"); return 0; }";
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.arg("-O1").arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    let rewritten = folder.join("closes.out");
    let job = Job::Tool(
        "icount".into(),
        ["--output", "-"].map(String::from).to_vec(),
    );
    atom::instrument(&program, &rewritten, &job, true).unwrap();
    let mut command = Command::new(&rewritten);
    plain_environment(&mut command);
    let output = command.output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(lines.starts_with("mine\nicount of closes\n"), "{lines}");
}

/// A program finds the data that was appended to its file.
#[test]
fn appended_data() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("appended");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/selfread.c");
    for (flags, text) in [
        (&["-O1"][..], "one\n"),
        (&["-O1", "-static"], "another one\n"),
    ] {
        let program = folder.join("selfread");
        let mut gcc = Command::new("gcc");
        let made = gcc.args(flags).arg("-o").args([&program, &source]).status();
        assert!(made.expect("gcc runs").success());
        let mut bytes = std::fs::read(&program).unwrap();
        let start = bytes.len() as u64;
        bytes.extend(text.as_bytes());
        bytes.extend(b"APPENDED");
        bytes.extend(start.to_le_bytes());
        bytes.extend((text.len() as u64).to_le_bytes());
        std::fs::write(&program, bytes).unwrap();
        let jobs = [
            Job::Empty,
            Job::Tool(
                "icount".into(),
                ["--output", "counts"].map(String::from).to_vec(),
            ),
        ];
        for job in jobs {
            let rewritten = folder.join("selfread.new");
            atom::instrument(&program, &rewritten, &job, true).unwrap();
            for program in [&program, &rewritten] {
                let output = run(program, "", &folder.join("inside"), Stdio::piped());
                assert_eq!(output.status.code(), Some(0), "{flags:?} {output:?}");
                assert_eq!(
                    String::from_utf8_lossy(&output.stdout),
                    text.repeat(3),
                    "{flags:?}"
                );
            }
        }
    }
}
