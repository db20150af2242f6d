//! `atom run` and `atom cache`: the program behaves as if it had been started directly.

mod common;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{Folder, stderr};

/// Does what its first argument says.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    char line[100];
    if (!strcmp(what, "exit")) return atoi(argv[2]);
    if (!strcmp(what, "kill")) { raise(atoi(argv[2])); return 99; }
    if (!strcmp(what, "name")) return puts(argv[0]) < 0;
    if (!strcmp(what, "ignored")) return signal(SIGPIPE, SIG_DFL) == SIG_IGN;
    if (!strcmp(what, "wait")) { puts("ready"); fflush(stdout); pause(); return 99; }
    while (fgets(line, sizeof line, stdin)) printf("%s: %s", argc > 2 ? argv[2] : "", line);
    fprintf(stderr, "done\n");
    return 0;
}
"#;

struct Runs {
    folder: Folder,
}

impl Runs {
    fn new() -> Self {
        let folder = Folder::new();
        folder.compile("app", PROGRAM, &["-O1"]);
        Self { folder }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atom"));
        command
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.cache())
            .args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut all = vec!["run", "-q", "icount", "--"];
        all.extend(words);
        self.command(&all).output().expect("atom runs")
    }

    fn entries(&self) -> usize {
        let entries = self.cache().join("atom/entries");
        std::fs::read_dir(entries).map_or(0, |all| all.count())
    }
}

#[test]
fn streams_arguments_and_exit_codes_pass_through() {
    let runs = Runs::new();
    for code in [0, 1, 42, 255] {
        let output = runs.run(&["./app", "exit", &code.to_string()]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    }
    let mut child = runs
        .command(&["run", "-q", "icount", "--", "./app", "copy", "-- a\tb"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("atom runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"one\ntwo\n").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"-- a\tb: one\n-- a\tb: two\n");
    assert_eq!(stderr(&output), "done\n");
    assert!(runs.folder.path().join("icount.out").exists());
    let output = runs.run(&["./app", "name"]);
    assert_eq!(output.stdout, b"./app\n");
    assert_eq!(runs.entries(), 1, "instrumented once");
}

#[test]
fn signals_end_both() {
    let runs = Runs::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT] {
        let output = runs.run(&["./app", "kill", &signal.to_string()]);
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
    }
    // The program gets what is sent to atom.
    let mut child = runs
        .command(&["run", "-q", "icount", "--", "./app", "wait"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("atom runs");
    let mut ready = [0; 6];
    let mut stdout = child.stdout.take().expect("a pipe");
    std::io::Read::read_exact(&mut stdout, &mut ready).expect("it is ready");
    // SAFETY: a system call on a process of ours.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGTERM));
}

#[test]
fn the_disposition_of_broken_pipes_is_the_callers() {
    let runs = Runs::new();
    assert_eq!(runs.run(&["./app", "ignored"]).status.code(), Some(0));
    let atom = env!("CARGO_BIN_EXE_atom");
    let script = format!("trap '' PIPE; {atom} run -q icount -- ./app ignored");
    let output = Command::new("sh")
        .current_dir(runs.folder.path())
        .env("XDG_CACHE_HOME", runs.cache())
        .args(["-c", &script])
        .output()
        .expect("a shell");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn what_changes_is_instrumented_again() {
    let runs = Runs::new();
    runs.run(&["./app", "exit", "0"]);
    runs.run(&["./app", "exit", "1"]);
    assert_eq!(runs.entries(), 1);
    let per_block = [
        "run", "-q", "icount", "--per", "block", "--", "./app", "exit", "0",
    ];
    assert!(
        runs.command(&per_block)
            .status()
            .expect("atom runs")
            .success()
    );
    assert_eq!(runs.entries(), 2);
    runs.folder
        .compile("app", &PROGRAM.replace("99", "98"), &["-O1"]);
    runs.run(&["./app", "exit", "0"]);
    assert_eq!(runs.entries(), 3);
    let listed = runs.command(&["cache"]).output().expect("atom runs");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    assert_eq!(listed.matches("/app with icount").count(), 3, "{listed}");
    let cleared = runs
        .command(&["cache", "--clear"])
        .output()
        .expect("atom runs");
    assert!(cleared.status.success(), "{}", stderr(&cleared));
    assert_eq!(runs.entries(), 0);
    assert_eq!(runs.run(&["./app", "exit", "7"]).status.code(), Some(7));
}

#[test]
fn scripts_run_under_their_interpreter() {
    use std::os::unix::fs::PermissionsExt;
    let runs = Runs::new();
    let script = runs.folder.path().join("script");
    std::fs::write(&script, "#!./app copy\n").expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let output = runs.run(&["./script"]);
    assert_eq!(stderr(&output), "done\n");
    let listed = runs.command(&["cache"]).output().expect("atom runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("/app with icount"), "{listed}");
}

#[test]
fn mistakes_are_told() {
    let runs = Runs::new();
    let fails = |words: &[&str], reason: &str| {
        let output = runs.command(words).output().expect("atom runs");
        assert_eq!(
            output.status.code(),
            Some(1),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(reason),
            "{words:?}: {}",
            stderr(&output)
        );
    };
    fails(&["run", "icount"], "no program is named");
    fails(&["run", "icount", "--"], "no program is named");
    fails(&["run", "nosuch", "--", "./app"], "libnosuch.so");
    fails(&["run", "./nosuch.so", "--", "./app"], "nosuch.so");
    fails(&["run", "icount", "--", "./nosuch"], "no such file");
    fails(&["run", "icount", "--nosuch", "--", "./app"], "--nosuch");
    assert_eq!(runs.entries(), 0);
    // A cache that others could change is not used.
    let cache = runs.cache().join("atom");
    let open = std::fs::Permissions::from_mode(0o777);
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&cache, open).expect("a mode");
    fails(&["run", "icount", "--", "./app"], "others may write");
}

#[test]
fn libraries_are_counted_unless_the_program_alone_is_wanted() {
    let runs = Runs::new();
    let report = |more: &[&str], output: &str| {
        let mut all = vec!["run", "-q"];
        all.extend(more);
        all.extend(["icount", "--format", "tsv", "--per", "instruction"]);
        all.extend(["--output", output, "--", "./app", "exit", "0"]);
        let ran = runs.command(&all).output().expect("atom runs");
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        std::fs::read_to_string(runs.folder.path().join(output)).expect("a report")
    };
    let whole = report(&[], "whole.tsv");
    assert!(whole.contains("libc.so.6+0x"), "libc is counted");
    assert!(whole.contains("ld-linux-x86-64.so.2+0x"), "the loader, too");
    let own = report(&["--own"], "own.tsv");
    assert!(!own.contains(".so"), "{own}");
    assert_eq!(runs.entries(), 2);
}

#[test]
fn a_second_run_instruments_nothing() {
    let runs = Runs::new();
    let changed = || {
        let entries = runs.cache().join("atom/entries");
        let entry = std::fs::read_dir(entries).expect("entries").next();
        let app = entry.expect("one").expect("it is read").path().join("app");
        std::fs::metadata(app)
            .expect("a bundle")
            .modified()
            .expect("a time")
    };
    runs.run(&["./app", "exit", "0"]);
    let first = changed();
    let start = std::time::Instant::now();
    assert_eq!(runs.run(&["./app", "exit", "3"]).status.code(), Some(3));
    // Much more than it takes on a machine that is idle.
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    assert_eq!(changed(), first);
    assert_eq!(runs.entries(), 1);
}

#[test]
fn a_program_that_cannot_start_is_told() {
    let runs = Runs::new();
    let folder = runs.folder.path();
    let library = "int answer(void) { return 42; }";
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libanswer.so"];
    runs.folder.compile("libanswer.so", library, &shared);
    let program = "int answer(void); int main(void) { return answer(); }";
    let here = format!("-L{}", folder.display());
    let link = [
        here.as_str(),
        "-Wl,--no-as-needed",
        "-lanswer",
        "-Wl,-rpath,$ORIGIN",
    ];
    runs.folder.compile("linked", program, &link);
    assert_eq!(runs.run(&["./linked"]).status.code(), Some(42));
    std::fs::remove_file(folder.join("libanswer.so")).expect("it is there");
    let output = runs.run(&["./linked"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("libanswer.so"),
        "{}",
        stderr(&output)
    );
    // As a bundle.
    let bundle = ["linked", "--tool", "icount", "--libs", "-o", "bundle"];
    let output = runs.command(&bundle).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("libanswer.so"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.join("bundle").exists());
    let unknown = "-Wl,--dynamic-linker,/no/such/loader";
    runs.folder
        .compile("unknown", "int main(void) { return 0; }", &[unknown]);
    let bundle = ["unknown", "--tool", "icount", "--libs", "-o", "bundle"];
    let output = runs.command(&bundle).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("interpreter"),
        "{}",
        stderr(&output)
    );
    // Not a library: text.
    std::fs::write(folder.join("libanswer.so"), "text").expect("it is written");
    let output = runs.run(&["./linked"]);
    assert!(
        stderr(&output).contains("libanswer.so"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn executed_programs_have_reports_in_the_folder_of_the_run() {
    let runs = Runs::new();
    let program = r#"
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (argc == 1) return 5;
    if (chdir("/")) return 9;
    execv(argv[1], argv + 1);
    return 8;
}
"#;
    runs.folder.compile("other", program, &["-O1"]);
    let other = runs.folder.path().join("other");
    let other = other.to_str().expect("UTF-8");
    let command = ["run", "--children", "icount", "--", "./other", other];
    let output = runs.command(&command).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        text.contains("1 process, 2 programs: listed in icount.out.children"),
        "{text}"
    );
    let list = runs.folder.read("icount.out.children");
    let list = String::from_utf8(list).expect("UTF-8");
    let reports: Vec<&str> = list
        .lines()
        .skip(1)
        .filter_map(|l| l.split('\t').nth(3))
        .collect();
    assert_eq!(reports.len(), 2, "{list}");
    assert_eq!(reports[0], "icount.out");
    assert!(reports[1].ends_with(".other"), "{list}");
    for report in reports {
        assert!(runs.folder.path().join(report).exists(), "{report}");
    }
    let command = ["run", "--own", "--children", "icount", "--", "./other"];
    let output = runs.command(&command).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--children"),
        "{}",
        stderr(&output)
    );
}
