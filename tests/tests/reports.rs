//! Files of reports: older ones are kept, what cannot be written is told, and what was not seen is in
//! the head.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;

/// `fork` makes a report of its own, a failed `exec` one that the end replaces.
const PROGRAM: &str = "#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n\
    #include <unistd.h>\n#include <sys/wait.h>\n\
    int main(int n, char **words) {\n\
    for (int i = 1; i < n; i++) {\n\
    if (!strcmp(words[i], \"fork\") && fork() == 0) return 0;\n\
    if (!strcmp(words[i], \"exec\")) execv(\"/proc/version\", words);\n\
    if (!strcmp(words[i], \"move\")) chdir(\"/\");\n\
    if (!strcmp(words[i], \"fail\")) exit(3);\n\
    if (!strcmp(words[i], \"die\")) { signal_me: kill(getpid(), 9); goto signal_me; }\n\
    }\n\
    while (wait(0) > 0);\n\
    return 0; }\n";

fn fresh(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join("reports").join(name);
    if place.exists() {
        fs::remove_dir_all(&place).unwrap();
    }
    fs::create_dir_all(place.join("work")).unwrap();
    fs::canonicalize(place).unwrap()
}

/// The program in a folder of its own, and the folder in which it runs.
fn program(name: &str) -> (PathBuf, PathBuf) {
    let place = fresh(name);
    let (source, program) = (place.join("p.c"), place.join("p"));
    let text = PROGRAM.replace(
        "#include <unistd.h>",
        "#include <signal.h>\n#include <unistd.h>",
    );
    fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    let made = gcc.arg("-O1").arg(source).arg("-o").arg(&program).status();
    assert!(made.unwrap().success());
    (program, place.join("work"))
}

fn run(command: &mut Command, folder: &Path) -> Output {
    plain_environment(command);
    command.current_dir(folder).output().expect("it runs")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    // Each report has a profile of the same number.
    let (profiles, reports): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|n| n.contains(".profile"));
    let expected: Vec<String> = (reports.iter().filter(|n| n.starts_with("icount.out")))
        .map(|n| n.replace(".out", ".profile"))
        .collect();
    assert_eq!(profiles, expected);
    reports
}

fn instrumented(name: &str) -> (PathBuf, PathBuf) {
    let (program, folder) = self::program(name);
    let output = program.with_extension("icount");
    atom::instrument(
        &program,
        &output,
        &Job::Tool("icount".into(), Vec::new()),
        true,
    )
    .unwrap();
    (output, folder)
}

#[test]
fn older_reports_are_kept() {
    let (program, folder) = instrumented("kept");
    for _ in 0..12 {
        let ran = run(&mut Command::new(&program), &folder);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    }
    let mut expected = vec!["icount.out".to_string()];
    expected.extend((1..=9).map(|n| format!("icount.out.{n}")));
    assert_eq!(names(&folder), expected);
    for name in &expected {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.starts_with("icount of p\n"), "{name}: {text}");
    }
}

#[test]
fn a_process_replaces_its_own_report() {
    let (program, folder) = instrumented("own");
    let ran = run(Command::new(&program).args(["exec", "exec"]), &folder);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(names(&folder), ["icount.out"]);
    let ran = run(Command::new(&program).args(["fork", "fork"]), &folder);
    assert!(ran.status.success(), "{ran:?}");
    let names = names(&folder);
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains(&"icount.out.1".to_string()), "{names:?}");
}

#[test]
fn processes_at_once_lose_nothing() {
    const PROCESSES: usize = 8;
    let (program, folder) = instrumented("at-once");
    let mut command = Command::new(&program);
    plain_environment(&mut command);
    command.current_dir(&folder);
    let all: Vec<_> = (0..PROCESSES).map(|_| command.spawn().unwrap()).collect();
    for mut child in all {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(names(&folder).len(), PROCESSES, "{:?}", names(&folder));
    for name in names(&folder) {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        assert!(text.contains("instructions"), "{name}: {text}");
    }
}

/// Moves a file of its own out of the way in the middle of its run, as another process does that begins to write one of
/// the same name, which is there then.
const MOVED: &str = "#include <stdio.h>\n#include <unistd.h>\n\
    static void work(void) { for (volatile int i = 0; i < 300000; i++); }\n\
    int main(int n, char **words) {\n\
    char number[4096];\n\
    for (int i = 0; i < 40 && access(words[1], F_OK); i++) work();\n\
    sprintf(number, \"%s.1\", words[1]);\n\
    if (rename(words[1], number)) return 1;\n\
    FILE *other = fopen(words[1], \"w\");\n\
    fputs(\"another's\\n\", other);\n\
    fclose(other);\n\
    for (int i = 0; i < 40; i++) work();\n\
    return 0; }\n";

/// A tool that writes while the program runs continues with its own file when another process has taken the name.
#[test]
fn files_of_processes_at_once_are_not_mixed() {
    let place = fresh("mixed");
    let (source, program) = (place.join("p.c"), place.join("p"));
    fs::write(&source, MOVED).unwrap();
    let mut gcc = Command::new("gcc");
    let made = gcc.arg("-O1").arg(source).arg("-o").arg(&program).status();
    assert!(made.unwrap().success());
    let folder = place.join("work");
    let bbv: &[&str] = &["--interval", "100", "--output", "-"];
    let memtrace: &[&str] = &[];
    for (tool, file, options) in [
        ("bbv", "bbv.bb", bbv),
        ("memtrace", "memtrace.trace", memtrace),
    ] {
        let output = program.with_extension(tool);
        let options = options.iter().map(|word| word.to_string()).collect();
        atom::instrument(&program, &output, &Job::Tool(tool.into(), options), true).unwrap();
        let ran = run(Command::new(&output).arg(file), &folder);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        assert_eq!(read(file), b"another's\n", "{tool}");
        let moved = read(&format!("{file}.1"));
        assert!(moved.len() > 2 << 20, "{tool}: {}", moved.len());
        if tool == "bbv" {
            let lines = moved.split(|b| *b == b'\n').count() - 1;
            let said = String::from_utf8_lossy(&ran.stdout).into_owned();
            let told = said.lines().find(|line| line.starts_with("  intervals "));
            let told = told.unwrap().replace(',', "");
            assert_eq!(told.split_whitespace().last(), Some(&*lines.to_string()));
        }
    }
}

fn atom_run(words: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(atom::command().unwrap());
    command
        .arg("run")
        .args(words)
        .arg("--")
        .arg(program)
        .args(arguments);
    let place = program.parent().unwrap();
    plain_environment(&mut command);
    command.env("XDG_CACHE_HOME", place.join("cache"));
    command.current_dir(place.join("work")).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn atom_run_names_the_report() {
    let (program, folder) = program("named");
    let ran = atom_run(&["icount"], &program, &[]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        said(&ran).lines().any(|l| l == "report: icount.out"),
        "{ran:?}"
    );
    let ran = atom_run(&["icount"], &program, &["fork", "move"]);
    assert!(
        said(&ran).contains("report: icount.out (the sum of 2;"),
        "{ran:?}"
    );
    let ran = atom_run(&["--per-process", "icount"], &program, &["fork", "move"]);
    assert!(
        said(&ran).contains("reports: icount.out, icount.out."),
        "{ran:?}"
    );
    let ran = atom_run(&["-q", "icount"], &program, &[]);
    assert_eq!(said(&ran), "");
    let ran = atom_run(&["icount"], &program, &["fail"]);
    assert_eq!(ran.status.code(), Some(3));
    let ran = atom_run(&["icount"], &program, &["die"]);
    assert_eq!(ran.status.code(), None);
    assert!(said(&ran).contains("report: icount.out"), "{ran:?}");
    // No word is left behind, and none is left where nobody waits.
    let entries = folder.with_file_name("cache").join("atom/entries");
    let entry = entries.join(&names(&entries)[0]);
    assert!(
        names(&entry).iter().all(|n| !n.starts_with("said-")),
        "{:?}",
        names(&entry)
    );
    run(&mut Command::new(entry.join("p")), &folder);
    assert!(
        names(&entry).iter().all(|n| !n.starts_with("said-")),
        "{:?}",
        names(&entry)
    );
}

#[test]
fn a_report_that_cannot_be_written_fails_the_run() {
    let (program, folder) = program("unwritable");
    let options = ["icount", "--output", "missing/icount.out"];
    let ran = atom_run(&options, &program, &[]);
    // What is known before the program runs.
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let reason = "missing/icount.out: no directory missing";
    assert!(said(&ran).contains(reason), "{ran:?}");
    let full = ["icount", "--output", "/dev/full"];
    let ran = atom_run(&full, &program, &[]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert_eq!(said(&ran).matches("cannot write").count(), 1, "{ran:?}");
    let ran = atom_run(&full, &program, &["fail"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    // Without `atom run` the program ends as it would.
    let output = program.with_extension("icount");
    let job = Job::Tool(
        "icount".into(),
        options[1..].iter().map(|w| w.to_string()).collect(),
    );
    atom::instrument(&program, &output, &job, true).unwrap();
    let ran = run(&mut Command::new(&output), &folder);
    assert!(ran.status.success(), "{ran:?}");
    assert!(said(&ran).contains("cannot write"), "{ran:?}");
}

#[test]
fn a_file_that_cannot_be_renamed_is_replaced() {
    let (program, folder) = instrumented("fixed");
    run(&mut Command::new(&program), &folder);
    // Root may rename all the same.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let ran = run(&mut Command::new(&program), &folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn the_head_says_what_is_not_seen() {
    let (program, folder) = program("head");
    let output = program.with_extension("icount");
    let options = ["--json", "icount.json", "--output", "icount.out"];
    let job = Job::Tool("icount".into(), options.map(String::from).to_vec());
    atom::instrument(&program, &output, &job, true).unwrap();
    assert!(run(&mut Command::new(&output), &folder).status.success());
    let text = fs::read_to_string(folder.join("icount.out")).unwrap();
    let line = text.lines().nth(1).unwrap();
    assert!(
        line.starts_with("not instrumented: libc.so.6 and what "),
        "{text}"
    );
    let json = fs::read(folder.join("icount.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["not_instrumented"], serde_json::json!(["libc.so.6"]));
    assert_eq!(json["opaque_procedures"], 0);
    let mut command = Command::new(atom::command().unwrap());
    let made = command
        .arg(&program)
        .args(["--tool", "icount"])
        .arg("-o")
        .arg(&output);
    let told = said(&made.output().unwrap());
    assert!(told.contains("not instrumented: libc.so.6"), "{told}");
    let mut command = Command::new(atom::command().unwrap());
    let made = command
        .arg(&program)
        .arg("-o")
        .arg(&output)
        .output()
        .unwrap();
    assert!(!said(&made).contains("not instrumented"), "{made:?}");
}
