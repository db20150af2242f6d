//! `atom run` and `atom kept`: the program behaves as if it had been started directly.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Folder, code_of, stderr};

/// Does what its first argument says.
const PROGRAM: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t came;
static void note(int signal) { came = signal; }
static int own_file(const char *path)
{
    if (open(path, O_WRONLY | O_TRUNC) >= 0 || errno != ETXTBSY) return 1;
    if (open(path, O_RDWR) >= 0 || errno != ETXTBSY) return 2;
    if (open(path, O_CREAT | O_APPEND | O_WRONLY, 0600) >= 0 || errno != ETXTBSY) return 3;
    if (creat(path, 0600) >= 0 || errno != ETXTBSY) return 4;
    if (truncate(path, 3) == 0 || errno != ETXTBSY) return 5;
    if (open(path, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0 || errno != EEXIST) return 6;
    if (open(path, O_RDONLY) < 0) return 7;
    return 0;
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    char line[100];
    if (!strcmp(what, "exit")) return atoi(argv[2]);
    if (!strcmp(what, "kill")) { raise(atoi(argv[2])); return 99; }
    if (!strcmp(what, "become")) { execl(argv[2], argv[2], (char *)0); return 9; }
    if (!strcmp(what, "name")) return puts(argv[0]) < 0;
    if (!strcmp(what, "ignored")) return signal(SIGPIPE, SIG_DFL) == SIG_IGN;
    if (!strcmp(what, "own")) return own_file(argv[0]);
    if (!strcmp(what, "handle")) {
        int before = signal(SIGINT, SIG_DFL) == SIG_IGN;
        signal(SIGINT, note); puts("ready"); fflush(stdout);
        while (!came) usleep(1000);
        return 10 * before + came;
    }
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
        self.folder.command(words)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut all = vec!["run", "-q", "icount", "--"];
        all.extend(words);
        self.command(&all).output().expect("atom runs")
    }

    fn entries(&self) -> usize {
        self.folder.entries()
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

/// As under `2>&1 | head`.
#[test]
fn messages_that_nobody_reads_change_nothing() {
    let runs = Runs::new();
    for words in [&["run", "icount", "--"][..], &["run", "-q", "icount", "--"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = runs.command(&[words, &["./app", "exit", "5"]].concat());
        let output = command.stderr(writer).output().expect("atom runs");
        assert_eq!(output.status.code(), Some(5), "{words:?}");
    }
}

#[test]
fn quiet_runs_print_no_notes() {
    let runs = Runs::new();
    let what = "/true is left as it is: it is no library";
    for is_quiet in [false, true] {
        let mut words = vec!["run"];
        words.extend(is_quiet.then_some("-q"));
        words.extend(["--fresh", "--with", "/bin/true", "icount", "--"]);
        words.extend(["./app", "exit", "5"]);
        let output = runs.command(&words).output().expect("atom runs");
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains(what), !is_quiet);
        assert_eq!(stderr(&output).is_empty(), is_quiet, "{}", stderr(&output));
    }
    // Errors are told.
    let words = ["run", "-q", "icount", "--nonsense", "--", "./app"];
    let output = runs.command(&words).output().expect("atom runs");
    assert!(stderr(&output).contains("unknown option `--nonsense`"));
}

/// Starts a command, and waits until its program has said that it is ready. The program's output stays open.
fn ready(command: &mut Command) -> (Child, ChildStdout) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = [0; 6];
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut said).expect("it is ready");
    (child, output)
}

#[test]
fn signals_end_both() {
    let runs = Runs::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT] {
        let output = runs.run(&["./app", "kill", &signal.to_string()]);
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
    }
    // The program gets what is sent to atom.
    let words = ["run", "-q", "icount", "--", "./app", "wait"];
    let (mut child, _output) = ready(&mut runs.command(&words));
    // SAFETY: a system call on a process of ours.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGTERM));
}

#[test]
fn a_program_that_becomes_another_one_is_told() {
    let runs = Runs::new();
    let became = |path: &str| {
        let output = runs.run(&["./app", "become", path]);
        let report = String::from_utf8(runs.folder.read("icount.out")).unwrap();
        let second = report.lines().nth(1).unwrap_or_default().to_owned();
        let expected = format!("executed: {path}, ");
        (output.status.code(), second.starts_with(&expected))
    };
    assert_eq!(became("/bin/true"), (Some(0), true));
    // An execution that fails is none: this file has no format that the kernel knows.
    let file = runs.folder.join("nothing");
    fs::write(&file, [0; 64]).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(became("./nothing"), (Some(9), false));
}

/// Number of the child with a name of a process.
fn child_named(parent: u32, name: &str) -> i32 {
    let start = Instant::now();
    loop {
        let list = format!("/proc/{parent}/task/{parent}/children");
        let list = fs::read_to_string(list).expect("a list of its children");
        let is_wanted = |pid: &&str| {
            let found = fs::read_to_string(format!("/proc/{pid}/comm"));
            found.unwrap_or_default().trim_end() == name
        };
        if let Some(pid) = list.split_whitespace().find(is_wanted) {
            return pid.parse().expect("a number");
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no {name}");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_second_signal_of_one_request_costs_no_report() {
    let runs = Runs::new();
    // A static program dies at once, and its watcher reports.
    runs.folder.compile("still", PROGRAM, &["-O1", "-static"]);
    let words = ["run", "-q", "icount", "--", "./still", "wait"];
    let (mut child, _output) = ready(&mut runs.command(&words));
    let program = child_named(child.id(), "still");
    let watcher = child_named(child.id(), "atom-watcher");
    // SAFETY: system calls on processes of ours.
    let send = |pid: i32, signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    send(watcher, libc::SIGSTOP);
    send(program, libc::SIGTERM);
    let is_there = || fs::exists(format!("/proc/{program}")).expect("/proc is there");
    while is_there() {
        sleep(Duration::from_millis(1));
    }
    send(child.id() as i32, libc::SIGTERM);
    sleep(Duration::from_millis(50));
    send(watcher, libc::SIGCONT);
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert!(runs.folder.join("icount.out").exists());
}

#[test]
fn a_signal_that_is_ignored_by_inheritance_is_passed_on() {
    let runs = Runs::new();
    let atom = env!("CARGO_BIN_EXE_atom");
    for (ignored, before) in [("trap '' INT; ", 1), ("", 0)] {
        let script = format!("{ignored}exec {atom} run -q icount -- ./app handle");
        let mut shell = Command::new("sh");
        shell.current_dir(runs.folder.path());
        shell.env("XDG_CACHE_HOME", runs.cache());
        let (mut child, _output) = ready(shell.args(["-c", &script]));
        // SAFETY: a system call on a process of ours.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(10 * before + libc::SIGINT));
    }
}

#[test]
fn the_program_cannot_change_its_own_file() {
    let runs = Runs::new();
    for (name, flags) in [("dynamic", &["-O1"][..]), ("static", &["-O1", "-static"])] {
        runs.folder.compile(name, PROGRAM, flags);
        let path = format!("./{name}");
        let before = fs::read(runs.folder.path().join(name)).expect("a file");
        let output = runs.run(&[&path, "own"]);
        assert_eq!(output.status.code(), Some(0), "{name} {}", stderr(&output));
        let after = fs::read(runs.folder.path().join(name)).expect("a file");
        assert!(before == after, "{name}");
    }
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
    let listed = runs.command(&["kept"]).output().expect("atom runs");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    assert_eq!(listed.matches("/app with icount").count(), 3, "{listed}");
    let cleared = runs
        .command(&["kept", "--clear"])
        .output()
        .expect("atom runs");
    assert!(cleared.status.success(), "{}", stderr(&cleared));
    assert_eq!(runs.entries(), 0);
    assert_eq!(runs.run(&["./app", "exit", "7"]).status.code(), Some(7));
}

#[test]
fn scripts_run_under_their_interpreter() {
    let runs = Runs::new();
    let script = runs.folder.path().join("script");
    fs::write(&script, "#!./app copy\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    let output = runs.run(&["./script"]);
    assert_eq!(stderr(&output), "done\n");
    let listed = runs.command(&["kept"]).output().expect("atom runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("/app with icount"), "{listed}");
}

#[test]
fn mistakes_are_told() {
    let runs = Runs::new();
    let fails = |words: &[&str], reason: &str| {
        let output = runs.command(words).output().expect("atom runs");
        let said = stderr(&output);
        let code = code_of(&said);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(reason), "{words:?}: {said}");
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
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&cache, open).expect("a mode");
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
        fs::read_to_string(runs.folder.path().join(output)).expect("a report")
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
        let entry = fs::read_dir(entries).expect("entries").next();
        let app = entry.expect("one").expect("it is read").path().join("app");
        fs::metadata(app)
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
fn reports_of_other_names_and_sizes_need_no_other_program() {
    let runs = Runs::new();
    let run = |options: &[&str], children: &[&str]| {
        let line = [
            &["run", "-q"],
            children,
            &["icount"],
            options,
            &["--", "./app", "exit", "0"],
        ]
        .concat();
        assert_eq!(
            runs.command(&line).status().expect("atom runs").code(),
            Some(0)
        );
    };
    let text = |name: &str| String::from_utf8(runs.folder.read(name)).expect("a report");
    let rows = |name: &str| text(name).lines().filter(|l| l.contains('+')).count();
    run(&[], &[]);
    run(&["--output", "one.out", "--top=2"], &[]);
    run(
        &["--json", "two.json", "--per", "procedure", "--no-profile"],
        &[],
    );
    run(&["--json=three.json", "--profile", "other.profile"], &[]);
    run(&["--output=four.out", "--top", "3"], &["--children"]);
    // Another unit, and what follows executed programs, are programs of their own.
    assert_eq!(runs.entries(), 3);
    assert!(rows("icount.out") > 3);
    assert_eq!([rows("one.out"), rows("four.out")], [2, 3]);
    let written = ["icount", "one", "two", "three", "other", "four"];
    let has_profile = |name: &&str| runs.folder.join(&format!("{name}.profile")).exists();
    let profiles: Vec<_> = written.into_iter().filter(has_profile).collect();
    assert_eq!(profiles, ["icount", "one", "other", "four"]);
    assert!(text("two.json").starts_with('{') && text("three.json").starts_with('{'));
    assert!(!runs.folder.join("two.out").exists());
    // The profile says what the command line said.
    assert!(text("one.profile").contains("\"--top=2\""));
    // Nothing stays in the store.
    let records = fs::read_dir(runs.cache().join("atom/records")).expect("records");
    assert_eq!(records.count(), 0);
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
    fs::remove_file(folder.join("libanswer.so")).expect("it is there");
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
    fs::write(folder.join("libanswer.so"), "text").expect("it is written");
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
    assert_eq!(reports, ["icount.out", "icount.out"], "{list}");
    assert_eq!(
        files(&runs, "icount.out"),
        ["icount.out", "icount.out.children"]
    );
    let command = ["run", "--own", "--children", "icount", "--", "./other"];
    let output = runs.command(&command).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--children"),
        "{}",
        stderr(&output)
    );
}

/// The files of the folder whose names begin so.
fn files(runs: &Runs, start: &str) -> Vec<String> {
    let found = fs::read_dir(runs.folder.path()).expect("a folder");
    let names = found.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[test]
fn processes_have_one_report_together() {
    let runs = Runs::new();
    let program = r#"
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noipa)) void work(int n) { for (int i = 0; i < n; i++) sum += i; }
int main(void) {
    for (int i = 1; i <= 3; i++) {
        if (fork() == 0) { work(1000 * i); _exit(0); }
        wait(0);
    }
    work(10000);
    return 0;
}
"#;
    runs.folder.compile("tree", program, &["-O1", "-static"]);
    let facts = |options: &[&str]| {
        // Without random addresses: glibc's string functions take another number of instructions
        // for strings at another alignment.
        let atom = ["-R", env!("CARGO_BIN_EXE_atom"), "run"];
        let words = [&atom[..], options, &["icount", "--", "./tree"]].concat();
        let mut command = Command::new("setarch");
        command.current_dir(runs.folder.path()).args(words);
        let output = command.env("XDG_CACHE_HOME", runs.cache()).output();
        let output = output.expect("atom runs");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let profiles = files(&runs, "icount.profile");
        let sums = profiles.iter().map(|name| {
            let profile = profile::Profile::read(runs.folder.path().join(name)).expect("a profile");
            let fact = profile
                .fact("instructions")
                .expect("it counts instructions");
            fact.number().float().expect("a number")
        });
        let sums: Vec<f64> = sums.collect();
        for name in files(&runs, "icount.")
            .into_iter()
            .filter(|name| name != "icount.out")
        {
            fs::remove_file(runs.folder.path().join(name)).expect("a file");
        }
        sums
    };
    let each = facts(&["--per-process"]);
    assert_eq!(each.len(), 4);
    let all = facts(&[]);
    assert_eq!(all, [each.iter().sum::<f64>()]);
    let report = String::from_utf8(runs.folder.read("icount.out")).expect("UTF-8");
    let table = report
        .split("\n\n")
        .find(|part| part.starts_with("processes\n"));
    let rows = table.unwrap_or_else(|| panic!("{report}")).lines().count();
    assert_eq!(rows, 2 + 4, "{report}");
}

#[test]
fn code_that_is_made_at_run_time_is_told() {
    let runs = Runs::new();
    let program = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    /* mov eax, edi; again: dec eax; jne again; ret */
    static const unsigned char loop[] = {0x89, 0xf8, 0xff, 0xc8, 0x75, 0xfc, 0xc3};
    void *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, loop, sizeof loop);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    char name[40];
    sprintf(name, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx %zx made_loop\n", (long)made, sizeof loop);
    fclose(map);
    for (int i = 0; i < 20; i++) ((int (*)(int))made)(50000000);
    puts(name);
    return 0;
}
"#;
    runs.folder.compile("jit", program, &["-O1"]);
    let command = ["run", "icount", "--", "./jit"];
    let output = runs.command(&command).output().expect("atom runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    fs::remove_file(
        String::from_utf8(output.stdout.clone())
            .expect("UTF-8")
            .trim(),
    )
    .expect("a map");
    let setting = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    if setting.is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level > 2)) {
        // The kernel does not let users look at their own processes.
        return;
    }
    let report = String::from_utf8(runs.folder.read("icount.out")).expect("UTF-8");
    let told = report
        .lines()
        .find(|line| line.starts_with("not counted: "));
    let told = told.unwrap_or_else(|| panic!("{report}; {}", stderr(&output)));
    assert!(
        told.contains(" % in code made at run time (made_loop)"),
        "{told}"
    );
    let profile = profile::Profile::read(runs.folder.path().join("icount.profile"));
    let profile = profile.expect("a profile");
    let fact = profile.fact("time").expect("the fact");
    assert_eq!(format!("{:?}", fact.value), format!("Text({told:?})"));
}

/// Opens the library that its argument names.
const OPENER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    printf("%d\n", ((int (*)(int))dlsym(library, "opened"))(1000));
    return 0;
}
"#;

/// Executes at least ten instructions for each unit of its argument.
const OPENED: &str = r#"
int opened(int n)
{
    volatile int sum = 0;
    for (int i = 0; i < n; i++) sum += i ^ n;
    return sum;
}
"#;

#[test]
fn libraries_are_instrumented_when_they_are_opened() {
    let runs = Runs::new();
    runs.folder.compile("opener", OPENER, &["-O1"]);
    runs.folder
        .compile("opened.so", OPENED, &["-O0", "-shared", "-fPIC"]);
    let library = runs.folder.path().join("opened.so");
    let library = library.to_str().unwrap();
    let report = |options: &[&str]| {
        let words = [&["run"], options, &["icount", "--", "./opener", library]].concat();
        let output = runs.command(&words).output().expect("atom runs");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "523372\n");
        let report = fs::read_to_string(runs.folder.path().join("icount.out")).unwrap();
        let row = report.lines().find(|line| line.contains("opened.so+"));
        (row.map(str::to_owned), stderr(&output))
    };
    let (row, said) = report(&["--no-late"]);
    assert_eq!(row, None);
    assert!(
        said.contains("loaded later and not instrumented: opened.so"),
        "{said}"
    );
    fs::remove_dir_all(runs.cache()).unwrap();
    // When it is opened; the next run finds that in the cache. What is made again has it from the start.
    let (first, said) = report(&[]);
    assert!(!said.contains("not instrumented"), "{said}");
    let first = first.expect("a row of the library");
    let count = |row: &str| row.split_whitespace().next().unwrap().replace(',', "");
    assert!(count(&first).parse::<u64>().unwrap() > 10_000, "{first}");
    let entries = || {
        fs::read_dir(runs.cache().join("atom/entries"))
            .unwrap()
            .count()
    };
    for (options, made) in [(&[][..], 1), (&["--fresh"], 2), (&[], 2)] {
        let (row, _) = report(options);
        assert_eq!(count(&row.expect("a row of the library")), count(&first));
        assert_eq!(entries(), made, "entries after a run with {options:?}");
    }
}
