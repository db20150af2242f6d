//! Each execution of a procedure has a beginning and an end, whatever happens in between.

use atom_tests::atom::{self, Job};

use super::{compile, folder, in_all, json, ran, sums};

/// Ways of leaving procedures other than by their exits.
const LEAVING: &str = r#"
#include <csetjmp>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
#define HIDDEN __attribute__((noinline, noclone))
static volatile int sink;
static volatile double real;
static jmp_buf env;
HIDDEN void leaf(int i) { sink = i; }
HIDDEN void jumper(int d) { leaf(d); if (d) jumper(d - 1); else longjmp(env, 1); sink++; }
HIDDEN void thrower(int d) { leaf(d); if (d) thrower(d - 1); else throw std::runtime_error("x"); sink++; }
HIDDEN void catcher(int d) { try { thrower(d); } catch (std::exception &) { leaf(1); } sink++; }
HIDDEN void setter(int d) { if (!setjmp(env)) jumper(d); else leaf(2); sink++; }
HIDDEN int fib(int n) { if (n < 2) return n; int a = fib(n - 1); sink++; a += fib(n - 2); sink++; return a; }
HIDDEN void *thread(void *p) { for (int i = 0; i < 1000; i++) leaf(i); return p; }
HIDDEN void child() { leaf(7); sink++; exit(0); }
HIDDEN void forks() { pid_t p = fork(); if (!p) child(); waitpid(p, 0, 0); sink++; }
HIDDEN void flops() { for (int i = 0; i < 100; i++) real = real * 1.5 + 2.0; }
HIDDEN void deep(int d) { if (d) deep(d - 1); else exit(0); sink++; }
int main() {
    for (int i = 0; i < 10; i++) { setter(i); catcher(i); }
    pthread_t all[4];
    for (pthread_t &t : all) pthread_create(&t, 0, thread, 0);
    for (pthread_t t : all) pthread_join(t, 0);
    fib(10);
    flops();
    forks();
    deep(4);
}
"#;

/// Procedure and calls.
const CALLS: [(&str, u64); 11] = [
    ("main", 1),
    ("setter(int)", 10),
    ("catcher(int)", 10),
    ("jumper(int)", 55),
    ("thrower(int)", 55),
    ("thread(void*)", 4),
    ("forks()", 1),
    ("flops()", 1),
    ("deep(int)", 5),
    ("fib(int)", 177),
    ("leaf(int)", 55 + 10 + 55 + 10 + 4000),
];

#[test]
fn executions_pair_and_sums_are_complete() {
    let folder = folder("leaving");
    let program = compile(&folder, LEAVING);
    let options = [
        "--json",
        "out.json",
        "--csv",
        "rows",
        "--events",
        "exact:instructions,exact:flops,exact:calls",
    ];
    let ran = ran(&folder, &program, "counters", &options, &[]);
    let report = json(&ran.place, "out.json");
    let calls = sums(&report, "procedures", "calls");
    for (proc, n) in CALLS {
        assert_eq!(calls[proc], n, "{proc}");
    }
    let own = sums(&report, "exact:instructions", "self");
    let events = report["events"].as_array().unwrap();
    let outside = events[0]["outside"].as_u64().unwrap();
    let all = in_all(&report, "exact:instructions");
    assert_eq!(own.values().sum::<u64>() + outside, all);
    // Work of threads after their last note belongs to no procedure.
    assert!(outside < 100, "{outside}");
    // Each round has one multiplication and one addition.
    assert_eq!(sums(&report, "exact:flops", "self")["flops()"], 200);
    // The outermost execution of a recursion has all counts.
    let inclusive = sums(&report, "exact:calls", "inclusive");
    let fibs = sums(&report, "exact:instructions", "inclusive")["fib(int)"];
    assert!(
        inclusive["fib(int)"] <= 177 && fibs == own["fib(int)"],
        "{fibs}"
    );

    // A line for each execution, with the same sums.
    let rows = std::fs::read_to_string(ran.place.join("rows/fib_int_.csv")).unwrap();
    let lines: Vec<Vec<&str>> = rows.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(
        lines[0][..7],
        [
            "thread",
            "processor",
            "procedure",
            "start_ns",
            "stop_ns",
            "time_ns",
            "exact:instructions"
        ]
    );
    assert_eq!(lines.len(), 1 + 177);
    let number = |i: usize, k: usize| lines[i][k].parse::<u64>().unwrap();
    assert!((1..lines.len()).all(|i| number(i, 3) <= number(i, 4)));
    let outermost = (1..lines.len()).max_by_key(|i| number(*i, 6)).unwrap();
    assert_eq!(number(outermost, 6), fibs);
    let summary = std::fs::read_to_string(ran.place.join("rows/summary.csv")).unwrap();
    assert!(summary.lines().any(|l| l.starts_with("fib(int),0x")));

    // The child's report begins in the middle of `forks`, which does not count as a call there.
    let names = std::fs::read_dir(&ran.place).unwrap();
    let names: Vec<String> = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.starts_with("out.json."))
        .collect();
    let [child] = names.as_slice() else {
        panic!("{names:?}")
    };
    let calls = sums(&json(&ran.place, child), "procedures", "calls");
    assert_eq!(
        (calls["child()"], calls["leaf(int)"], calls["forks()"]),
        (1, 1, 0)
    );
    assert!(!calls.contains_key("fib(int)"));
}

/// A program that signals interrupt often, at any instruction.
const INTERRUPTED: &str = r#"
#include <csignal>
#include <sys/time.h>
static volatile unsigned sink, hits;
__attribute__((noinline)) void leaf(unsigned i) { sink += i; }
__attribute__((noinline)) void inner() { for (int i = 0; i < 50; i++) sink++; }
void handler(int) { inner(); hits++; }
int main() {
    signal(SIGALRM, handler);
    itimerval time = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &time, 0);
    while (hits < 2000) leaf(1);
    time = {};
    setitimer(ITIMER_REAL, &time, 0);
}
"#;

#[test]
fn interrupted_sums_are_complete() {
    let folder = folder("interrupted");
    let program = compile(&folder, INTERRUPTED);
    let options = [
        "--json=out.json",
        "--events",
        "exact:instructions,exact:taken",
    ];
    let ran = ran(&folder, &program, "counters", &options, &[]);
    let report = json(&ran.place, "out.json");
    for event in ["exact:instructions", "exact:taken"] {
        let own: u64 = sums(&report, event, "self").values().sum();
        let row = report["events"].as_array().unwrap();
        let row = row.iter().find(|r| r["event"] == event).unwrap();
        assert_eq!(
            own + row["outside"].as_u64().unwrap(),
            in_all(&report, event)
        );
    }
    // The report has the number of notes that were lost while a buffer was processed.
    let lost = report["notes_lost"].as_u64().unwrap_or(0);
    let calls = sums(&report, "procedures", "calls");
    assert!(
        calls["handler(int)"].abs_diff(2000) <= lost + 1,
        "{calls:?}"
    );
    assert!(lost < 10, "{lost}");
}

#[test]
fn an_event_that_is_missing_is_told_once() {
    let folder = folder("missing");
    let program = compile(&folder, LEAVING);
    // No processor has this event.
    let events = "PAPI_LD_INS,page-faults,exact:loads";
    let options = [
        "--json=out.json",
        "--events",
        events,
        "--proc",
        "fib",
        "--csv=rows",
    ];
    let ran = ran(&folder, &program, "counters", &options, &[]);
    let told = String::from_utf8_lossy(&ran.outcome.stderr).into_owned();
    assert_eq!(told.matches("PAPI_LD_INS").count(), 1, "{told}");
    assert!(told.contains("--events exact:loads"), "{told}");
    let report = json(&ran.place, "out.json");
    assert!(report["PAPI_LD_INS"].is_null() && report["exact:loads"].is_array());
    assert_eq!(report["procedures"].as_array().unwrap().len(), 1);
    let rows = std::fs::read_to_string(ran.place.join("rows/fib_int_.csv")).unwrap();
    let line: Vec<&str> = rows.lines().nth(1).unwrap().split(',').collect();
    assert_eq!((line.len(), line[6]), (9, ""));

    let fails = |options: &[&str]| {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let job = Job::Tool("counters".to_owned(), options);
        let out = folder.join("fails");
        atom::instrument(&program, &out, &job, false)
            .unwrap_err()
            .to_string()
    };
    assert!(fails(&["--events", "load"]).contains("`exact:loads`"));
    assert!(fails(&["--proc", "fibb"]).contains("did you mean"));
    let file = folder.join("energy");
    std::fs::write(&file, "second 1\nexact:stores 2\n").unwrap();
    let file = file.to_str().unwrap();
    let error = fails(&["--energy", file, "--events", "exact:loads"]);
    assert!(error.contains("line 2: `exact:stores`"), "{error}");
}
