//! `atom attach`: entering processes that run, at random moments, and leaving them again.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Folder, code_of, stderr};

/// The procedure whose work is known, and one that marks the end of a round.
macro_rules! known_work {
    () => {
        r#"
static volatile unsigned long sink;
__attribute__((noinline, noipa)) unsigned long work(unsigned long n) {
    unsigned long s = 0;
    for (unsigned long i = 0; i < n; i++) { __asm__ volatile(""); s += i ^ (s >> 3); }
    return s;
}
__attribute__((noinline, noipa)) void marker(void) { sink++; }
"#
    };
}

/// Makes rounds of known work until there is a file `stop`; prints their number.
const ROUNDS: &str = concat!(
    known_work!(),
    r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    unsigned long rounds = 0, most = strtoul(argv[1], 0, 10);
    while (rounds < most && (rounds % 64 || access("stop", F_OK))) { sink += work(1000); marker(); rounds++; }
    printf("%lu\n", rounds);
    return 0;
}
"#
);

/// Threads that compute, sleep in the kernel in many ways, begin, end and fork, and that complain if a system call ends as it
/// should not. They end when there is a file `stop`. With an argument, `epoll_wait` may be interrupted.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile int over;
static int may_be_interrupted;
static volatile unsigned long ticks;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
#define BAD(what) do { printf("BAD %s %d\n", what, errno); exit(3); } while (0)
static void *busy(void *p) { volatile unsigned long x = 0; while (!over) for (int i = 0; i < 1000; i++) x += i; return 0; }
static void *sleeper(void *p) {
    while (!over) {
        double start = now();
        struct timespec t = {0, 300000000};
        if (nanosleep(&t, 0)) BAD("nanosleep");
        if (now() - start < 0.3) BAD("short sleep");
    }
    return 0;
}
static void *epoller(void *p) { int e = epoll_create1(0); struct epoll_event ev; while (!over) if (epoll_wait(e, &ev, 1, 200) && !may_be_interrupted) BAD("epoll_wait"); return 0; }
static void *poller(void *p) { sigset_t s; sigfillset(&s); while (!over) { struct timespec t = {0, 200000000}; if (ppoll(0, 0, &t, &s)) BAD("ppoll"); } return 0; }
static void *reader(void *p) { char c; for (;;) { int n = read(*(int *)p, &c, 1); if (n == 0) return 0; if (n != 1) BAD("read"); } }
static void *waiter(void *p) { pthread_mutex_lock(&m); while (!over) if (pthread_cond_wait(&cv, &m)) BAD("wait"); pthread_mutex_unlock(&m); return 0; }
static void *brief(void *p) { volatile int x = 0; for (int i = 0; i < 1000; i++) x += i; return 0; }
static void *maker(void *p) { while (!over) { pthread_t t; if (pthread_create(&t, 0, brief, 0)) BAD("create"); pthread_join(t, 0); } return 0; }
static void *forker(void *p) {
    while (!over) {
        pid_t child = fork();
        if (child == 0) { usleep(500); _exit(7); }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) BAD("fork");
    }
    return 0;
}
static void on_tick(int signal, siginfo_t *information, void *context) { ticks++; for (volatile int i = 0; i < 100; i++) ; }
int main(int argc, char **argv) {
    may_be_interrupted = argc > 1;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    int pipes[2];
    if (pipe(pipes)) return 1;
    void *(*const all_of[])(void *) = {busy, busy, sleeper, epoller, poller, reader, waiter, maker, forker};
    pthread_t threads[9];
    for (int i = 0; i < 9; i++) if (pthread_create(&threads[i], 0, all_of[i], pipes)) BAD("create");
    struct sigaction action = {0};
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    pthread_sigmask(SIG_SETMASK, &none, 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, 0);
    while (access("stop", F_OK)) { for (volatile int i = 0; i < 100000; i++) ; if (write(pipes[1], "x", 1) != 1) BAD("write"); }
    over = 1;
    close(pipes[1]);
    pthread_mutex_lock(&m);
    pthread_cond_broadcast(&cv);
    pthread_mutex_unlock(&m);
    for (int i = 0; i < 9; i++) pthread_join(threads[i], 0);
    puts(ticks > 10 ? "fine" : "BAD no signals");
    return 0;
}
"#;

/// More rounds than there is time for.
const MANY: &str = "1000000000000";

/// A process that is ended with this value.
struct Process(Child);

impl Process {
    fn start(folder: &Folder, words: &[&str]) -> Self {
        let mut command = Command::new(folder.join(words[0]));
        command.args(&words[1..]).current_dir(folder.path());
        let child = command.stdout(Stdio::piped()).spawn();
        let process = Self(child.expect("the program starts"));
        // Until it sleeps or computes, what it has mapped changes.
        let mut before = process.maps();
        loop {
            sleep(Duration::from_millis(50));
            let now = process.maps();
            if now == before && !now.is_empty() {
                return process;
            }
            before = now;
        }
    }

    fn number(&self) -> String {
        self.0.id().to_string()
    }

    /// Lets it end, and waits for that; its output.
    fn finish(&mut self, folder: &Folder) -> String {
        folder.write("stop", "");
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        fs::remove_file(folder.join("stop")).unwrap();
        text
    }

    /// Waits until it has run its own code for 40 ms, however busy the machine is.
    fn works(&self) {
        let (start, before) = (Instant::now(), self.ticks());
        while self.ticks() < before + 5 {
            assert!(start.elapsed() < Duration::from_secs(120));
            sleep(Duration::from_millis(5));
        }
    }

    /// Time in its own code, in units of 10 ms.
    fn ticks(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, after_name) = text.rsplit_once(')').unwrap();
        after_name.split(' ').nth(12).unwrap().parse().unwrap()
    }

    /// What it has mapped, without what grows.
    fn maps(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
        let lines = text
            .lines()
            .filter(|l| l.contains(" r-xp ") || !l.contains(" 00:00 0"));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(|_| ()).unwrap_or_default();
    }
}

/// A number of milliseconds below a limit that is another one each time.
fn moment(limit: u32) -> Duration {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    Duration::from_millis((now.subsec_micros() % limit).into())
}

/// Attaches, which must succeed; what is said.
fn attach(folder: &Folder, words: &[&str], pid: &str) -> String {
    let output = attached(folder, words, pid);
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

fn attached(folder: &Folder, words: &[&str], pid: &str) -> Output {
    let words = [&["attach"], words, &["--", pid]].concat();
    folder.command(&words).output().unwrap()
}

/// Counts of procedures in icount's report.
fn count(report: &str, procedure: &str) -> u64 {
    let row = report
        .lines()
        .find(|line| line.split_whitespace().next_back() == Some(procedure));
    let first = row
        .and_then(|row| row.split_whitespace().next())
        .unwrap_or("0");
    first.replace(',', "").parse().unwrap()
}

#[test]
fn known_work_is_counted_and_the_text_comes_back() {
    known_work("gcc", &[]);
}

/// Compilers and flags for programs that are static, or whose C library is musl.
const OTHERS: [(&str, &[&str]); 5] = [
    ("gcc", &["-static"]),
    ("gcc", &["-static-pie"]),
    ("musl-gcc", &[]),
    ("musl-gcc", &["-static"]),
    ("musl-gcc", &["-static-pie"]),
];

#[test]
fn known_work_is_counted_in_static_programs_and_those_of_musl() {
    for (compiler, flags) in OTHERS {
        known_work(compiler, flags);
    }
}

/// Compares counts of a program that is entered with those of its run.
fn known_work(compiler: &str, flags: &[&str]) {
    let folder = Folder::new();
    folder.compile_by(compiler, "rounds", ROUNDS, &[&["-O1"], flags].concat());
    let run = folder
        .command(&["run", "-q", "icount", "--", "./rounds", "1000"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let whole = String::from_utf8(folder.read("icount.out")).unwrap();
    let each = [count(&whole, "work") / 1000, count(&whole, "marker") / 1000];
    assert!(each[0] > 5000 && each[1] > 1, "{whole}");
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let before = process.maps();
    for time in ["1s", "200ms"] {
        sleep(moment(300));
        attach(&folder, &["--for", time, "icount"], &process.number());
        assert_eq!(process.maps(), before);
        let report = String::from_utf8(folder.read("icount.out")).unwrap();
        assert!(report.contains("\nattached: process "), "{report}");
        let (work, marker) = (count(&report, "work"), count(&report, "marker"));
        let rounds = marker / each[1];
        assert!(rounds > 100, "{report}");
        assert!(work.abs_diff(rounds * each[0]) <= 2 * each[0], "{report}");
    }
    let rounds: u64 = process.finish(&folder).trim().parse().unwrap();
    assert!(rounds > 1000);
}

#[test]
fn threads_that_sleep_start_fork_and_get_signals_notice_nothing() {
    let folder = Folder::new();
    folder.compile("threads", THREADS, &["-O2", "-pthread"]);
    let mut process = Process::start(&folder, &["threads"]);
    // Threads are in the middle of procedures, where most tools' calls rely on earlier ones.
    for tool in [
        "icount", "predict", "memtrace", "calltree", "reuse", "icount",
    ] {
        sleep(moment(200));
        let words = ["-q", "--for", "100ms", tool];
        attach(&folder, &words, &process.number());
    }
    assert_eq!(process.finish(&folder), "fine\n");
}

#[test]
fn threads_of_static_programs_and_those_of_musl_notice_nothing() {
    for (i, (compiler, flags)) in OTHERS.into_iter().enumerate() {
        let folder = Folder::new();
        // Some without names.
        let strip: &[&str] = if i % 2 == 0 { &["-s"] } else { &[] };
        let flags = [&["-O2", "-pthread"], strip, flags].concat();
        folder.compile_by(compiler, "threads", THREADS, &flags);
        let mut process = Process::start(&folder, &["threads"]);
        let before = process.maps();
        for tool in ["icount", "calltree", "icount"] {
            sleep(moment(200));
            let words = ["-q", "--for", "100ms", tool];
            attach(&folder, &words, &process.number());
            // With musl new code stays, as a handler may return to it.
            let now = process.maps();
            assert!(before.iter().all(|map| now.contains(map)), "{now:?}");
        }
        assert_eq!(process.finish(&folder), "fine\n", "{compiler} {flags:?}");
    }
}

#[test]
fn a_process_works_after_the_command_was_killed() {
    works_after_kills(&[]);
}

#[test]
fn a_static_process_works_after_the_command_was_killed() {
    works_after_kills(&["-static"]);
}

fn works_after_kills(flags: &[&str]) {
    let folder = Folder::new();
    let flags = [&["-O2", "-pthread"], flags].concat();
    folder.compile("threads", THREADS, &flags);
    // The next ones are quick.
    let mut first = Process::start(&folder, &["threads"]);
    attach(&folder, &["-q", "--for", "10ms", "icount"], &first.number());
    first.finish(&folder);
    for _ in 0..6 {
        let mut process = Process::start(&folder, &["threads", "killed"]);
        let words = [
            "attach",
            "-q",
            "--for",
            "50ms",
            "icount",
            "--",
            &process.number(),
        ];
        let mut command = folder.command(&words).spawn().unwrap();
        sleep(moment(600));
        command.kill().unwrap();
        let status = command.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9));
        sleep(moment(300));
        assert_eq!(process.finish(&folder), "fine\n");
    }
}

/// Asks for something by `atom ctl`.
fn ctl(folder: &Folder, pid: &str, what: &str) -> Output {
    folder.command(&["ctl", pid, what]).output().unwrap()
}

/// What `atom ctl` says of a process.
fn status(folder: &Folder, pid: &str) -> String {
    String::from_utf8(ctl(folder, pid, "status").stdout).unwrap()
}

/// A command that has entered a process.
fn entered(folder: &Folder, pid: &str) -> Child {
    entered_with(folder, &["icount"], pid, "1 window")
}

/// A command that has entered a process; `atom ctl` says `state` of it then.
fn entered_with(folder: &Folder, words: &[&str], pid: &str, state: &str) -> Child {
    let words = [&["attach"], words, &["--", pid]].concat();
    let mut command = folder.command(&words);
    let mut command = command.stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut byte) = (String::new(), [0]);
    let pipe = command.stderr.as_mut().unwrap();
    while !said.contains("attached to ") {
        assert_eq!(pipe.read(&mut byte).unwrap(), 1, "{said}");
        said.push(byte[0].into());
    }
    let start = Instant::now();
    while !status(folder, pid).contains(state) {
        assert!(start.elapsed() < Duration::from_secs(120));
        sleep(Duration::from_millis(50));
    }
    command
}

#[test]
fn another_command_asks_for_a_report_and_leaves() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let pid = process.number();
    let command = entered(&folder, &pid);
    process.works();
    let output = ctl(&folder, &pid, "report");
    assert!(output.status.success(), "{}", stderr(&output));
    let report = String::from_utf8(folder.read("icount.out.now")).unwrap();
    assert!(count(&report, "work") > 1000, "{report}");
    let again = attached(&folder, &["icount"], &pid);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        stderr(&again).contains("is instrumented already"),
        "{}",
        stderr(&again)
    );
    // Nothing is counted between two windows.
    assert!(ctl(&folder, &pid, "off").status.success());
    let counted = || {
        assert!(ctl(&folder, &pid, "report").status.success());
        let report = String::from_utf8(folder.read("icount.out.now")).unwrap();
        count(&report, "work")
    };
    process.works();
    let off = counted();
    process.works();
    assert_eq!(counted(), off);
    assert!(ctl(&folder, &pid, "on").status.success());
    process.works();
    assert!(counted() > off);
    assert!(ctl(&folder, &pid, "detach").status.success());
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("icount.out\n"),
        "{}",
        stderr(&output)
    );
    process.0.kill().unwrap();
}

#[test]
fn a_process_that_ends_meanwhile_is_reported() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let command = entered(&folder, &process.number());
    process.works();
    process.0.kill().unwrap();
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = String::from_utf8(folder.read("icount.out")).unwrap();
    assert!(count(&report, "work") > 1000, "{report}");
    assert!(report.contains("until it ended"), "{report}");
}

#[test]
fn what_cannot_be_entered_is_refused_with_the_reason() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let refused = |words: &[&str], pid: &str, reason: &str| {
        let output = attached(&folder, words, pid);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code_of(&said)), "{said}");
        assert!(said.contains(reason), "{said}");
    };
    refused(&["icount"], "no-number", "not named by its number");
    let stopped = Process::start(&folder, &["rounds", MANY]);
    let pid = stopped.number();
    refused(
        &["--sample", "1%", "--after", "1s", "icount"],
        &pid,
        "sampled as a whole, or measured in windows",
    );
    refused(
        &["--off", "--sample", "1%", "icount"],
        &pid,
        "sampled as a whole, or measured in windows",
    );
    refused(&["memcheck"], &pid, "replaced");
    Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    sleep(Duration::from_millis(50));
    refused(&["icount"], &pid, "is stopped");
    Command::new("kill").args(["-CONT", &pid]).status().unwrap();
}

#[test]
fn measuring_lasts_after_the_command_has_ended() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let pid = process.number();
    let before = process.maps();
    let report = || fs::read_to_string(folder.join("icount.out")).unwrap_or_default();
    let is_left = || {
        let start = Instant::now();
        while report().is_empty() || process.maps() != before {
            assert!(start.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(20));
        }
    };
    // Its output ends with the first of the two processes.
    let said = attach(&folder, &["--stay", "icount"], &pid);
    assert!(
        said.contains(&format!("`atom ctl {pid} detach` leaves")),
        "{said}"
    );
    assert!(report().is_empty() && process.maps() != before);
    let output = ctl(&folder, &pid, "report");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.join("icount.out.now").exists());
    let output = ctl(&folder, &pid, "detach");
    assert!(output.status.success(), "{}", stderr(&output));
    is_left();
    assert!(count(&report(), "work") > 1000, "{}", report());
    fs::remove_file(folder.join("icount.out")).unwrap();
    attach(&folder, &["--stay", "--for", "300ms", "icount"], &pid);
    is_left();
    assert!(count(&report(), "work") > 1000, "{}", report());
    // What fails is told by the command that was started.
    let output = attached(&folder, &["--stay", "memcheck"], &pid);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("replaced"), "{}", stderr(&output));
    process.finish(&folder);
}

/// The report, and of its line on windows: how many, for how long, and how long the process was entered.
fn windows(folder: &Folder) -> (String, [f64; 3]) {
    let report = String::from_utf8(folder.read("icount.out")).unwrap();
    let line = report.lines().find(|line| line.starts_with("measured: "));
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("{report}"));
    let numbers = [number(1), number(3), number(6)];
    (report, numbers)
}

#[test]
fn windows_by_the_time_are_as_in_a_run() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let (pid, before) = (process.number(), process.maps());
    attach(
        &folder,
        &["--after", "600ms", "--for", "200ms", "icount"],
        &pid,
    );
    assert_eq!(process.maps(), before);
    let (report, [number, measured, whole]) = windows(&folder);
    assert_eq!(number, 1.0, "{report}");
    assert!((0.2..2.0).contains(&measured), "{report}");
    assert!((0.8..5.0).contains(&whole), "{report}");
    assert!(count(&report, "work") > 1000, "{report}");
    // Until somebody says that it is enough.
    let words = ["--each", "200ms", "--for", "20ms", "icount"];
    let command = entered_with(&folder, &words, &pid, "3 windows");
    assert!(ctl(&folder, &pid, "detach").status.success());
    let output = command.wait_with_output().unwrap();
    assert!(stderr(&output).contains("note: measured: "), "{output:?}");
    let (report, [number, measured, whole]) = windows(&folder);
    assert!(number >= 3.0 && measured >= 0.04, "{report}");
    assert!(measured < 0.6 * whole, "{report}");
    assert!(count(&report, "work") > 1000, "{report}");
    // By another command alone.
    let command = entered_with(
        &folder,
        &["--off", "icount"],
        &pid,
        "off; measured: nothing",
    );
    assert!(ctl(&folder, &pid, "on").status.success());
    assert!(status(&folder, &pid).starts_with("on; measured: 1 window"));
    process.works();
    for what in ["off", "detach"] {
        assert!(ctl(&folder, &pid, what).status.success());
    }
    assert!(command.wait_with_output().unwrap().status.success());
    let (report, [number, ..]) = windows(&folder);
    assert_eq!(number, 1.0, "{report}");
    assert!(count(&report, "work") > 1000, "{report}");
    // No window begins.
    attach(&folder, &["--off", "--for", "100ms", "icount"], &pid);
    let report = String::from_utf8(folder.read("icount.out")).unwrap();
    assert!(!report.contains("measured: "), "{report}");
    assert_eq!(count(&report, "work"), 0, "{report}");
    assert_eq!(process.maps(), before);
    process.finish(&folder);
}

#[test]
fn windows_at_places_have_what_runs_in_them() {
    let folder = Folder::new();
    folder.compile("rounds", ROUNDS, &["-O1"]);
    let run = folder.command(&["run", "-q", "icount", "--", "./rounds", "1000"]);
    assert!({ run }.output().unwrap().status.success());
    let whole = String::from_utf8(folder.read("icount.out")).unwrap();
    let each = count(&whole, "work") / 1000;
    let mut process = Process::start(&folder, &["rounds", MANY]);
    let (pid, before) = (process.number(), process.maps());
    let words = ["--from", "work", "--to", "marker", "icount"];
    let command = entered_with(&folder, &words, &pid, "as the program says; measured: ");
    let refused = ctl(&folder, &pid, "on");
    assert!(stderr(&refused).contains("itself"), "{}", stderr(&refused));
    process.works();
    process.works();
    assert!(ctl(&folder, &pid, "detach").status.success());
    assert!(command.wait_with_output().unwrap().status.success());
    assert_eq!(process.maps(), before);
    let (report, [number, measured, time]) = windows(&folder);
    assert!(number > 100.0 && measured <= time, "{report}");
    assert_eq!(count(&report, "marker"), 0, "{report}");
    // The process may have been left in a window.
    let expected = number as u64 * each;
    assert!(
        count(&report, "work").abs_diff(expected) <= 2 * each,
        "{report}"
    );
    process.finish(&folder);
    // A forked child counts nothing, and adds no windows.
    folder.compile("gated", GATED, &["-O1"]);
    let (_, report) = gated(&folder, &["1000"], &words, "as the program says");
    let (_, [number, ..]) = windows(&folder);
    assert_eq!(number, 1000.0, "{report}");
    assert_eq!(count(&report, "work"), 1000 * each, "{report}");
}

/// As [`ROUNDS`], but it waits for a file `go`, makes the rounds that its argument says and a file `done`, and waits for a file `stop`. In between
/// it opens the library that a second argument names; without one, a forked child makes the same rounds.
const GATED: &str = concat!(
    known_work!(),
    r#"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    while (access("go", F_OK)) usleep(1000);
    if (argc > 2) {
        void *library = dlopen(argv[2], RTLD_NOW);
        if (!library || ((int (*)(void))dlsym(library, "answer"))() != 42) return 1;
    }
    pid_t child = argc > 2 ? 1 : fork();
    for (unsigned long n = strtoul(argv[1], 0, 10); n > 0; n--) { sink += work(1000); marker(); }
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    close(creat("done", 0600));
    while (access("stop", F_OK)) usleep(1000);
    return 0;
}
"#
);

/// Lets a program of [`GATED`] work while it is entered; what is said, and the report.
fn gated(folder: &Folder, arguments: &[&str], words: &[&str], state: &str) -> (String, String) {
    let words_of_program = [&["gated"], arguments].concat();
    let mut process = Process::start(folder, &words_of_program);
    let (pid, before) = (process.number(), process.maps());
    let command = entered_with(folder, words, &pid, state);
    folder.write("go", "");
    let start = Instant::now();
    while !folder.join("done").exists() {
        assert!(start.elapsed() < Duration::from_secs(120));
        sleep(Duration::from_millis(10));
    }
    assert!(ctl(folder, &pid, "detach").status.success());
    let output = command.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let now = process.maps();
    assert!(before.iter().all(|map| now.contains(map)), "{now:?}");
    process.finish(folder);
    for file in ["go", "done"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    let report = String::from_utf8(folder.read("icount.out")).unwrap();
    (said, report)
}

#[test]
fn a_sampled_process_is_estimated() {
    let folder = Folder::new();
    folder.compile("gated", GATED, &["-O1"]);
    let rounds = ["100000"];
    let (_, exact) = gated(&folder, &rounds, &["icount"], "1 window");
    let sample = ["--sample", "10%", "--burst", "2k", "icount"];
    let (said, sampled) = gated(&folder, &rounds, &sample, "as the program says");
    assert!(said.contains("note: sampled: "), "{said}");
    let line = sampled.lines().find(|line| line.starts_with("sampled: "));
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let (bursts, share): (u64, f64) = (words[1].parse().unwrap(), words[3].parse().unwrap());
    assert!(bursts > 1000 && (9.0..11.0).contains(&share), "{sampled}");
    for (procedure, limit) in [("work", 0.05), ("marker", 0.2)] {
        let [exact, estimate] = [&exact, &sampled].map(|r| count(r, procedure) as f64);
        assert!(exact >= 100_000.0, "{exact}");
        let off = (estimate / exact - 1.0).abs();
        assert!(off < limit, "{procedure}: {exact} {estimate}");
    }
}

#[test]
fn what_is_not_counted_is_said_with_and_without_a_profile() {
    const ANSWER: &str = "int answer(void) { return 42; }";
    let folder = Folder::new();
    folder.compile("gated", GATED, &["-O1"]);
    folder.compile("libanswer.so", ANSWER, &["-shared", "-fPIC"]);
    for words in [&["icount"][..], &["icount", "--no-profile"]] {
        let (_, report) = gated(&folder, &["1000", "./libanswer.so"], words, "1 window");
        assert_eq!(folder.join("icount.profile").exists(), words.len() == 1);
        let lines = report.lines().filter(|line| line.starts_with("attached: "));
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines.len(), 1, "{report}");
        assert!(
            lines[0].ends_with(", nor libraries that it opened (libanswer.so)"),
            "{report}"
        );
        assert!(report.contains("\nmeasured: 1 window, "), "{report}");
        fs::remove_file(folder.join("icount.profile")).unwrap_or_default();
    }
}
