//! Windows: `--from` and `--to`, windows by the time, and `atom ctl`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{Folder, stderr};

/// `stages`: works before, in and after each of its two windows. `threads`: the same with threads that work all the time.
/// `asked`: works once for each line that it reads, in a forked child if the line is "fork". `sleep N`: N tenths of a second.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone, optimize("no-ipa-icf")))
static volatile unsigned long sink;
static volatile int over;
#define WORK(name, k) APART void name(int n) { for (int i = 0; i < n; i++) sink += i * k; }
WORK(before, 3) WORK(measured, 5) WORK(between, 7) WORK(after, 11) WORK(busy, 13)
APART void begin(void) { sink++; }
APART void end(void) { sink++; }
static void *run(void *x) { while (!over) busy(100); return x; }
static void stages(void)
{
    before(1000);
    for (int i = 0; i < 2; i++) {
        begin();
        measured(1000 + i);
        end();
        between(1000);
    }
    after(1000); /* the last line */
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "stages";
    char line[100];
    if (!strcmp(what, "stages")) {
        stages();
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, 0);
        for (int i = 0; i < 200; i++) stages();
        over = 1;
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    } else if (!strcmp(what, "sleep")) {
        struct timespec tenth = { 0, 100000000 };
        for (int i = 0; i < atoi(argv[2]); i++) { nanosleep(&tenth, 0); measured(1000); }
    } else {
        while (fgets(line, sizeof line, stdin)) {
            if (!strcmp(line, "fork\n")) {
                if (fork() == 0) { measured(2000); exit(0); }
                wait(0);
            } else {
                measured(1000);
            }
            puts("done");
            fflush(stdout);
        }
    }
    printf("%lu\n", sink);
    return 0;
}
"#;

struct Place {
    folder: Folder,
}

impl Place {
    fn new(flags: &[&str]) -> Self {
        Self::of(PROGRAM, flags)
    }

    fn of(program: &str, flags: &[&str]) -> Self {
        let folder = Folder::new();
        folder.compile("app", program, &[&["-O1", "-g"], flags].concat());
        Self { folder }
    }

    fn command(&self, words: &[&str]) -> Command {
        self.folder.command(words)
    }

    /// Runs the program under icount with options; returns what was printed.
    fn run(&self, options: &[&str], arguments: &[&str]) -> Output {
        let words = [
            &["run"],
            options,
            &["icount", "--top", "0", "--", "./app"],
            arguments,
        ]
        .concat();
        let output = self.command(&words).output().expect("atom runs");
        assert!(output.status.success(), "{options:?} {}", stderr(&output));
        output
    }

    fn report(&self) -> String {
        String::from_utf8(self.folder.read("icount.out")).unwrap()
    }

    /// Instructions of a procedure in the report.
    fn count(&self, procedure: &str) -> u64 {
        count(&self.report(), procedure)
    }
}

/// Instructions of a procedure in a report: the first number of its row.
fn count(report: &str, procedure: &str) -> u64 {
    let row = report
        .lines()
        .find(|l| l.split_whitespace().last() == Some(procedure));
    let number = row.and_then(|row| row.split_whitespace().next());
    number.map_or(0, |n| n.replace(',', "").parse().unwrap())
}

const STAGES: [&str; 4] = ["before", "measured", "between", "after"];

#[test]
fn a_window_has_what_is_between_its_ends() {
    for flags in [&[][..], &["-static"], &["-no-pie", "-O2"]] {
        let place = Place::new(flags);
        let plain = Command::new(place.folder.join("app")).output().unwrap();
        place.run(&[], &[]);
        let whole = STAGES.map(|stage| place.count(stage));
        assert!(whole.iter().all(|n| *n > 3000), "{whole:?}");
        let options = ["--from", "begin", "--to", "end"];
        for own in [&[][..], &["--own"]] {
            let output = place.run(&[&options, own].concat(), &[]);
            assert_eq!(output.stdout, plain.stdout);
            let found = STAGES.map(|stage| place.count(stage));
            assert_eq!(found, [0, whole[1], 0, 0], "{flags:?} {own:?}");
            assert!(
                place.report().contains("measured: 2 windows, "),
                "{}",
                place.report()
            );
            assert!(stderr(&output).contains("measured: 2 windows, "));
        }
        place.run(&["--from", "end"], &[]);
        let found = STAGES.map(|stage| place.count(stage));
        let second = whole[1] - whole[1] * 1000 / 2001;
        assert!(found[1].abs_diff(second) < 20, "{found:?} {second}");
        assert_eq!([found[0], found[2], found[3]], [0, whole[2], whole[3]]);
        place.run(&["--to", "begin"], &[]);
        assert_eq!(STAGES.map(|stage| place.count(stage)), [whole[0], 0, 0, 0]);
    }
}

#[test]
fn windows_begin_at_lines_and_addresses() {
    let place = Place::new(&[]);
    let last = PROGRAM.lines().position(|l| l.contains("the last line"));
    // The compiler gets the source with this name.
    let line = format!("app.c:{}", last.unwrap() + 1);
    place.run(&["--from", &line], &[]);
    assert!(place.count("after") > 3000, "{}", place.report());
    assert_eq!(place.count("before") + place.count("measured"), 0);
    let shown = place.command(&["show", "--json", "app"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let procs = shown["procedures"].as_array().expect("procedures");
    let after = procs.iter().find(|p| p["name"] == "after").unwrap();
    let address = after["address"].as_str().unwrap();
    place.run(&["--from", address], &[]);
    assert!(place.count("after") > 3000, "{}", place.report());
    assert_eq!(place.count("between"), 0);
}

/// One begin and one end for each kind of mark; the procedures are too small for a place in their middle to be another block.
const MARKS: &str = r#"
#include "ato.h"
static volatile unsigned long sink;
#define WORK(name, k) __attribute__((noinline)) void name(int n) { for (int i = 0; i < n; i++) sink += i * k; }
WORK(before, 3) WORK(noted, 5) WORK(numbered, 7) WORK(magic, 9) WORK(after, 11)
int main(void)
{
    before(1000);
    ATO_KERNEL_BEGIN(solve);
    noted(1000);
    ATO_KERNEL_END(solve);
    before(1000);
    __asm__ volatile("movl $111, %%ebx; .byte 0x64, 0x67, 0x90" ::: "ebx", "memory");
    numbered(1000);
    __asm__ volatile("movl $222, %%ebx; .byte 0x64, 0x67, 0x90" ::: "ebx", "memory");
    before(1000);
    __asm__ volatile("movq $1, %%rax; xchg %%bx, %%bx" ::: "rax", "memory");
    magic(1000);
    __asm__ volatile("movq $2, %%rax; xchg %%bx, %%bx" ::: "rax", "memory");
    after(1000);
    return 0;
}
"#;

#[test]
fn windows_begin_at_marks() {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
    let place = Place::of(MARKS, &[include]);
    let all = ["before", "noted", "numbered", "magic", "after"];
    for (from, to, own) in [
        ("solve", "solve", 1),
        ("111", "222", 2),
        ("magic", "magic", 3),
    ] {
        place.run(
            &[
                "--from",
                &format!("mark:{from}"),
                "--to",
                &format!("mark:{to}"),
            ],
            &[],
        );
        for (i, name) in all.iter().enumerate() {
            assert_eq!(
                place.count(name) > 3000,
                i == own,
                "{from} {name}: {}",
                place.report()
            );
            assert_eq!(place.count(name) > 0, i == own, "{from} {name}");
        }
        assert!(place.report().contains("measured: 1 window, "), "{from}");
    }
}

#[test]
fn threads_are_measured_in_windows_too() {
    let place = Place::new(&["-pthread"]);
    let output = place.run(&["--from", "begin", "--to", "end"], &["threads"]);
    assert!(
        stderr(&output).contains("measured: 400 windows, "),
        "{}",
        stderr(&output)
    );
    // Nothing of the main thread's is outside; others are seen wherever they are.
    assert_eq!(
        ["before", "between", "after"].map(|p| place.count(p)),
        [0; 3]
    );
    assert!(place.count("measured") > 400 * 3000);
}

/// A window that begins in a procedure and ends after it has returned, or has been left by a jump.
const DEEP: &str = r#"
#include <setjmp.h>
#include <stdlib.h>
#define APART __attribute__((noinline, noclone, noipa))
static volatile unsigned long sink;
static jmp_buf place;
APART long leaf(long n) { return n * 7 + 3; }
APART long start(long n) { sink++; return n + 1; }
APART void stop(void) { sink++; }
APART long middle(long n) { long r = start(n); r += n * 5; sink += r; return leaf(r) ^ n; }
APART long outer(long n) { long r = middle(n); r ^= 0x55; if (r & 1) sink += r; return r + leaf(n); }
APART void jumps(long n) { sink += start(n); longjmp(place, 1); }
APART void chooses(long n)
{
    if (n & 1) sink += n;
    if (n & 2)
        sink ^= n; /* in the middle */
    if (n & 4) sink -= n;
}
static int compare(const void *a, const void *b) { start(1); return *(const int *)a - *(const int *)b; }
int main(void)
{
    int numbers[3] = { 3, 1, 2 };
    sink += leaf(outer(4));
    sink ^= 17;
    stop();
    for (long i = 0; i < 8; i++) chooses(i);
    stop();
    if (setjmp(place) == 0) jumps(5);
    sink ^= 19;
    sink += leaf(2);
    stop();
    sink += leaf(3);
    qsort(numbers, 3, sizeof *numbers, compare);
    sink += numbers[0];
    stop();
    sink += leaf(3);
    return 0;
}
"#;

#[test]
fn a_window_is_a_part_of_the_whole_trace() {
    let place = Place::of(DEEP, &["-O1", "-static"]);
    let trace = |options: &[&str]| {
        let tool = ["memtrace", "--instructions", "--", "./app"];
        let words = [&["run"], options, &tool].concat();
        let output = place.command(&words).output().expect("atom runs");
        assert!(output.status.success(), "{}", stderr(&output));
        let words = ["trace", "memtrace.trace", "--format", "text"];
        let output = place.command(&words).output().expect("atom trace");
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        // Addresses of the stack differ from run to run.
        let without = |line: &str| {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            words.remove(3);
            words.join(" ")
        };
        text.lines().map(without).collect::<Vec<_>>()
    };
    let whole = trace(&[]);
    // Counts and marks that follow from others by the flow of control know where windows begin and end.
    let figure = |options: &[&str], tool: &[&str], name: &str| {
        let words = [&["run"], options, tool, &["--", "./app"]].concat();
        let output = place.command(&words).output().expect("atom runs");
        assert!(output.status.success(), "{}", stderr(&output));
        let report = place.folder.read(&format!("{}.out", tool[0]));
        let report = String::from_utf8(report).unwrap();
        let line = report
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(name));
        let number = line
            .unwrap_or_else(|| panic!("{report}"))
            .trim()
            .replace(',', "");
        number.parse::<usize>().unwrap()
    };
    let middle = DEEP.lines().position(|l| l.contains("in the middle"));
    let middle = format!("app.c:{}", middle.unwrap() + 1);
    let mut windows = Vec::new();
    for from in [&middle, "start"] {
        let options = ["--from", from, "--to", "stop"];
        windows = trace(&options);
        let seen = windows.iter().filter(|l| l.split(' ').nth(2) == Some("X"));
        let seen = seen.count();
        for tool in ["icount", "calltree"] {
            assert_eq!(
                figure(&options, &[tool], "instructions "),
                seen,
                "{from} {tool}"
            );
        }
        let covered = |more: &[&str]| figure(&options, more, "blocks executed ");
        assert_eq!(
            covered(&["cover"]),
            covered(&["cover", "--counts"]),
            "{from}"
        );
    }
    let entry = |name: &str| {
        let output = Command::new("nm").arg(place.folder.join("app")).output();
        let names = String::from_utf8(output.unwrap().stdout).unwrap();
        let line = names.lines().find(|l| l.ends_with(&format!(" {name}")));
        let address = u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap();
        format!("{address:#x}")
    };
    let (start, stop) = (entry("start"), entry("stop"));
    let is_at = |line: &str, address: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words[1] == address && words[2] == "X"
    };
    let mut is_on = false;
    let mut expected = Vec::new();
    for line in &whole {
        is_on = (is_on || is_at(line, &start)) && !is_at(line, &stop);
        if is_on {
            expected.push(line.clone());
        }
    }
    assert!(expected.len() > 100, "{whole:#?}");
    let same = expected.iter().zip(&windows).take_while(|(a, b)| a == b);
    let at = same.count();
    assert_eq!(
        windows.get(at..windows.len().min(at + 5)),
        expected.get(at..expected.len().min(at + 5)),
        "at {at} of {} and {}",
        windows.len(),
        expected.len()
    );
}

#[test]
fn mistakes_are_told() {
    let place = Place::new(&[]);
    let fails = |options: &[&str], needle: &str| {
        let words = [&["run"], options, &["icount", "--", "./app"]].concat();
        let output = place.command(&words).output().expect("atom runs");
        assert!(!output.status.success(), "{options:?}");
        assert!(stderr(&output).contains(needle), "{}", stderr(&output));
    };
    fails(&["--from", "bgin"], "did you mean `begin`?");
    fails(
        &["--from", "begin", "--to", "begin"],
        "begins and ends at 0x",
    );
    fails(&["--from", "app.c:1"], "no code comes from line 1 of app.c");
    fails(&["--off", "--for", "1s"], "cannot be used with");
    fails(&["--for", "2s", "--each", "1s"], "choose a smaller --for");
    let output = place.command(&["ctl", "1", "on"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("is no `atom run` with windows"),
        "{}",
        stderr(&output)
    );
}

/// A program that works when it is told to, and `atom ctl`.
struct Asked<'a> {
    place: &'a Place,
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl<'a> Asked<'a> {
    fn start(place: &'a Place, options: &[&str]) -> Self {
        let words = [
            &["run"],
            options,
            &["icount", "--top", "0", "--", "./app", "asked"],
        ]
        .concat();
        let mut command = place.command(&words);
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("atom runs");
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            place,
            child,
            lines,
        }
    }

    /// Lets the program work once.
    fn work(&mut self, how: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{how}").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn ctl(&self, what: &str) -> String {
        let pid = self.child.id().to_string();
        let output = self.place.command(&["ctl", &pid, what]).output().unwrap();
        assert!(output.status.success(), "{what} {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The program ends; what `atom run` has said.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.lines.read_to_string(&mut said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    }
}

#[test]
fn a_run_is_controlled_from_outside() {
    let place = Place::new(&[]);
    let mut whole = Asked::start(&place, &[]);
    (0..3).for_each(|_| whole.work("once"));
    whole.end();
    let once = place.count("measured") / 3;

    let mut asked = Asked::start(&place, &["--off"]);
    asked.work("once");
    assert_eq!(asked.ctl("status"), "off; measured: nothing\n");
    asked.ctl("on");
    asked.work("once");
    asked.work("once");
    assert!(asked.ctl("status").starts_with("on; measured: 1 window, "));
    asked.ctl("off");
    asked.work("once");
    let now = place.folder.join("icount.out.now");
    let told = format!("report: {}\n", now.display());
    assert_eq!(asked.ctl("report"), told);
    let text = std::fs::read_to_string(&now).expect("a report");
    // What runs until the first test of the window is missing: here the start of the procedure.
    let (found, start) = (count(&text, "measured"), 10);
    assert!(found <= 2 * once && found + start > 2 * once, "{text}");
    asked.ctl("on");
    asked.work("once");
    asked.ctl("detach");
    let pid = asked.child.id().to_string();
    let again = place.command(&["ctl", &pid, "on"]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("was detached before"));
    asked.work("once");
    let said = asked.end();
    assert!(said.contains("measured: 2 windows, "), "{said}");
    let found = place.count("measured");
    assert!(
        found <= 3 * once && found + 2 * start > 3 * once,
        "{}",
        place.report()
    );
}

#[test]
fn forked_children_have_the_windows_of_the_run() {
    let place = Place::new(&[]);
    let mut asked = Asked::start(&place, &["--off"]);
    asked.work("fork");
    asked.ctl("on");
    asked.work("fork");
    asked.ctl("off");
    asked.work("fork");
    asked.end();
    let found = place.count("measured");
    assert!(
        (6000..20_000).contains(&found),
        "{found}: {}",
        place.report()
    );
}

#[test]
fn windows_follow_the_clock() {
    let place = Place::new(&[]);
    place.run(&[], &["sleep", "1"]);
    let once = place.count("measured");
    let said = |options: &[&str], tenths: &str| {
        let output = place.run(options, &["sleep", tenths]);
        let told = stderr(&output);
        let line = told
            .lines()
            .find(|l| l.contains("measured: "))
            .unwrap()
            .to_owned();
        (line, place.count("measured") / once)
    };
    // Each step takes a tenth of a second and a little more.
    let (line, steps) = said(&["--after", "500ms"], "10");
    assert!(line.contains("measured: 1 window, "), "{line}");
    assert!((2..=6).contains(&steps), "{steps} {line}");
    let (line, steps) = said(&["--for", "500ms"], "10");
    assert!(line.contains("measured: 1 window, 0.5"), "{line}");
    assert!((1..=5).contains(&steps), "{steps} {line}");
    let (line, steps) = said(&["--for", "200ms", "--each", "500ms"], "12");
    assert!(
        line.contains("measured: 3 windows, ") || line.contains("measured: 4 windows, "),
        "{line}"
    );
    assert!((2..=9).contains(&steps), "{steps} {line}");
}

#[test]
fn without_a_profile_the_head_says_what_was_measured_too() {
    let place = Place::new(&[]);
    let words = [
        "run",
        "-q",
        "--for",
        "1h",
        "icount",
        "--no-profile",
        "--",
        "./app",
    ];
    let output = place.command(&words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!place.folder.join("icount.profile").exists());
    let report = place.report();
    assert!(report.contains("\nmeasured: 1 window, "), "{report}");
}
