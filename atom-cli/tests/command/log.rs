//! Lines that a tool writes while the program runs are whole and come once, whatever the program does
//! with processes, threads, signals and descriptors.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{Folder, stderr, tool};

/// A program that calls `work` with a number for each caller: the parent, its threads, a signal handler, a
/// child that is forked while threads write, and the parent after all descriptors were closed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sink;
static volatile sig_atomic_t stop;
__attribute__((noipa)) long work(long n) { sink += n; return n + 1; }
static void *thread(void *n) { for (int i = 0; i < 5000; i++) work((long)n); return 0; }
static void on_signal(int s) { (void)s; work(5); }
int main(void)
{
    pthread_t t[2];
    struct itimerval every = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    for (int i = 0; i < 100; i++) work(1);
    signal(SIGALRM, on_signal);
    setitimer(ITIMER_REAL, &every, 0);
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, thread, (void *)(2 + i));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            for (int n = 0; n < 10; n++) work(100 + i);
            exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) return 1;
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    setitimer(ITIMER_REAL, &never, 0);
    puts("done");
    fclose(stdout);
    close_range(3, ~0U, 0);
    for (int i = 0; i < 7000; i++) work(4);
    return 3;
}
"#;

#[test]
fn each_line_is_whole_and_there_once() {
    let folder = Folder::new();
    folder.compile("app", PROGRAM, &["-O1", "-pthread"]);
    let logger = tool("logger");
    folder.atom_ok(&["app", &logger, "-o", "out", "--", "--proc", "work"]);
    let output = Command::new("./out")
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");

    let mut parent = BTreeMap::new();
    let mut children = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("the folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("UTF-8");
        let Some(rest) = name.strip_prefix("logger.out") else {
            continue;
        };
        let mut counts = BTreeMap::new();
        for line in String::from_utf8(folder.read(name)).expect("UTF-8").lines() {
            let numbers = line
                .strip_prefix("work(")
                .and_then(|l| l.strip_suffix(')'))
                .or_else(|| line.strip_prefix("work returns "));
            let number = numbers.and_then(|n| n.parse::<u64>().ok());
            let number = number.unwrap_or_else(|| panic!("{name}: {line:?}"));
            *counts.entry((line.contains('('), number)).or_insert(0u32) += 1;
        }
        match rest {
            "" => parent = counts,
            _ => children.push(counts),
        }
    }
    for (n, calls) in [(1, 100), (2, 5000), (3, 5000), (4, 7000)] {
        assert_eq!(parent[&(true, n)], calls, "{n}");
    }
    assert!(parent.contains_key(&(true, 5)), "no signal came");
    for n in 1..=5 {
        let returned = (1..=5).map(|n| parent.get(&(false, n + 1)).copied());
        assert_eq!(
            Some(parent[&(true, n)]),
            returned.clone().nth(n as usize - 1).flatten()
        );
    }
    assert_eq!(parent.len(), 10, "{parent:?}");
    // Timers are not inherited, so the signal handler does not run in a child.
    let mut seen: Vec<u64> = children
        .iter()
        .map(|counts| {
            assert_eq!(counts.len(), 2, "{counts:?}");
            assert!(counts.values().all(|calls| *calls == 10), "{counts:?}");
            counts.keys().map(|key| key.1).min().expect("two keys")
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (100..120).collect::<Vec<u64>>());
}

/// A program that closes its standard output, as coreutils do, does not close the descriptor that the
/// tool has kept.
#[test]
fn standard_output_is_kept() {
    let folder = Folder::new();
    let closes = "#include <stdio.h>\n#include <unistd.h>\n#include <stdlib.h>\n\
        static void end(void) { fclose(stdout); fclose(stderr); }\n\
        int main(void) { atexit(end); puts(\"mine\"); return 0; }";
    folder.compile("app", closes, &["-O1"]);
    folder.atom_ok(&["app", &tool("logger"), "-o", "out", "--", "--proc", "main"]);
    let output = Command::new("./out")
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    // There are no child processes, so one process ends.
    assert_eq!(lines, "mine\nlogged\n");
}

/// A failure to write is reported once, and the program continues.
#[test]
fn what_cannot_be_written_is_told_once() {
    let folder = Folder::new();
    let source = "__attribute__((noipa)) long work(long n) { return n; }\n\
        int main(void) { for (int i = 0; i < 100000; i++) work(i); return 0; }";
    folder.compile("app", source, &["-O1"]);
    let file = "missing/log";
    let options = ["--proc", "work", "--output", file];
    folder.atom_ok(&[&["app", &tool("logger"), "-o", "out", "--"], &options[..]].concat());
    let output = Command::new("./out")
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    assert!(output.status.success());
    let told = stderr(&output);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("missing/log: No such file"), "{told}");
}
