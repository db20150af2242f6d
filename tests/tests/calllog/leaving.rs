//! Procedures that are left by other ways than their exits: each call is closed, once.

use std::path::PathBuf;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, run};
use atom_tests::source::End;

use super::{analyze, compile, figures, folder, log};

/// Ways of leaving procedures other than by their exits.
pub(super) const LEAVING: &str = r#"
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
#define HIDDEN __attribute__((noinline, noclone))
static volatile int sink;
static jmp_buf env;
HIDDEN void leaf(int i) { sink = i; }
HIDDEN void jumper(int d) { leaf(d); if (d) jumper(d - 1); else longjmp(env, 1); sink++; }
HIDDEN void thrower(int d) { leaf(d); if (d) thrower(d - 1); else throw std::runtime_error("x"); sink++; }
HIDDEN void catcher(int d) { try { thrower(d); } catch (std::exception &) { leaf(1); } sink++; }
HIDDEN void setter(int d) { if (!setjmp(env)) jumper(d); else leaf(2); sink++; }
HIDDEN void quits(int d) { if (d) quits(d - 1); else pthread_exit(0); sink++; }
HIDDEN void *thread(void *p) { for (int i = 0; i < 1000; i++) leaf(i); if (p) quits(3); sink++; return 0; }
HIDDEN void handler(int) { leaf(9); }
HIDDEN void child() { leaf(7); sink++; exit(0); }
HIDDEN void forks() { pid_t p = fork(); if (!p) child(); waitpid(p, 0, 0); sink++; }
HIDDEN void deep(int d) { if (d) deep(d - 1); else exit(0); sink++; }
int main() {
    for (int i = 0; i < 10; i++) { setter(i); catcher(i); }
    static char stack[1 << 16];
    stack_t other = {};
    other.ss_sp = stack;
    other.ss_size = sizeof stack;
    sigaltstack(&other, 0);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    for (int round = 0; round < 3; round++) {
        pthread_t all[4];
        for (long i = 0; i < 4; i++) pthread_create(&all[i], 0, thread, (void *)(i & 1));
        for (pthread_t t : all) pthread_join(t, 0);
    }
    forks();
    deep(4);
}
"#;

/// Procedure, number of calls, number of calls that were left without an exit.
const LEFT: [(&str, u64, u64); 12] = [
    ("main", 1, 1),
    ("setter(int)", 10, 0),
    ("catcher(int)", 10, 0),
    ("jumper(int)", 55, 55),
    ("thrower(int)", 55, 55),
    ("thread(void*)", 12, 6),
    ("quits(int)", 24, 24),
    ("handler(int)", 1, 0),
    ("forks()", 1, 0),
    ("deep(int)", 5, 5),
    ("leaf(int)", 55 + 10 + 55 + 10 + 12_000 + 1, 0),
    ("_start", 1, 1),
];

/// Two coroutines, each with its own stack, are resumed eleven times each in turn.
const COROUTINES: &str = r#"
#define _GNU_SOURCE
#include <sys/mman.h>
#include <ucontext.h>
#define HIDDEN __attribute__((noinline, noclone))
static volatile int sink;
static ucontext_t home, other[2];
static int turn;
HIDDEN void leaf(int i) { sink = i; }
HIDDEN void yields(int me) { leaf(me); swapcontext(&other[me], &home); sink++; }
HIDDEN void body(int me) { for (int i = 0; i < 10; i++) yields(me); sink++; }
static void start(void) { body(turn); sink++; }
HIDDEN void resume(int i) { turn = i; swapcontext(&home, &other[i]); sink++; }
int main(void) {
    for (int i = 0; i < 2; i++) {
        getcontext(&other[i]);
        /* What is beside it must not be one mapping with it. */
        char *memory = mmap(0, 1 << 17, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(memory + 4096, 1 << 16, PROT_READ | PROT_WRITE);
        other[i].uc_stack.ss_sp = memory + 4096;
        other[i].uc_stack.ss_size = 1 << 16;
        other[i].uc_link = &home;
        makecontext(&other[i], start, 0);
    }
    for (int round = 0; round < 11; round++)
        for (int i = 0; i < 2; i++) resume(i);
    return 0;
}
"#;

/// A coroutine that is left is suspended, not ended: its calls count once.
#[test]
fn coroutines_are_suspended() {
    let folder = folder("coroutines");
    let program = compile(&folder, COROUTINES, &["-O2"]);
    let place = log(&folder, &program, "calllog", &[], &[]);
    let figures = figures(&analyze(&["--json"], &place.join("calllog.out")), 0);
    for (proc, calls, suspended) in [
        ("main", 1, 0),
        ("resume", 22, 0),
        ("start", 2, 20),
        ("body", 2, 20),
        ("yields", 20, 20),
        ("leaf", 20, 0),
    ] {
        assert_eq!(figures[proc], (calls, suspended), "{proc}");
    }
}

/// A killed process leaves the streamed part of its log, and the report says so.
#[test]
fn a_killed_process_leaves_what_was_streamed() {
    const PROGRAM: &str = "#include <signal.h>\nstatic volatile int sink;\n\
        __attribute__((noinline, noclone)) void leaf(int i) { sink = i; }\n\
        int main(void) { for (int i = 0; i < 100000; i++) leaf(i); raise(SIGKILL); return 0; }\n";
    let folder = folder("killed");
    let program = compile(&folder, PROGRAM, &["-O2"]);
    let out = folder.join("out");
    let options = vec!["--stream".to_owned()];
    atom::instrument(
        &program,
        &out,
        &Job::Tool("calllog".to_owned(), options),
        true,
    )
    .unwrap();
    let outcome = run(Command::new(&out).current_dir(&folder), &Setting::default()).unwrap();
    assert_eq!(outcome.end, End::Signal(9));
    let text = analyze(&["--json"], &folder.join("calllog.out"));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let report = &json["reports"][0];
    assert!(report["notes"][0].as_str().unwrap().contains("killed"));
    let procs = report["procedures"].as_array().unwrap();
    let leaf = procs.iter().find(|p| p["procedure"] == "leaf").unwrap();
    let calls = leaf["calls"].as_u64().unwrap();
    assert!((95_000..=100_000).contains(&calls), "{calls}");
    assert!(leaf["time_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn everything_that_is_left_is_closed() {
    for (name, flags) in [("O2", &["-O2"][..]), ("static", &["-O2", "-static"])] {
        let folder = folder(&format!("leaving-{name}"));
        let program = compile(&folder, LEAVING, flags);
        // The option `--stream` makes no difference.
        for (options, memory) in [(&[][..], ""), (&["--stream"], "streamed")] {
            let place = log(&folder, &program, "calllog", options, &[]);
            let text = analyze(&["--json"], &place.join("calllog.out"));
            let figures = figures(&text, 0);
            for (proc, calls, left) in LEFT {
                assert_eq!(figures[proc], (calls, left), "{name} {memory} {proc}");
            }
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["reports"][0]["threads"], 13);
            // The child's log begins in the middle of `forks`, which does not count as a call there.
            let child = std::fs::read_dir(&place)
                .unwrap()
                .map(|e| e.unwrap().path());
            // A log with a number of one digit is an older one.
            let is_child = |p: &PathBuf| {
                p.to_str().unwrap().contains("calllog.out.") && p.extension().unwrap().len() > 1
            };
            let child: Vec<_> = child.filter(is_child).collect();
            assert_eq!(child.len(), 1);
            let figures = self::figures(&analyze(&["--json"], &child[0]), 0);
            assert_eq!(figures["child()"], (1, 1));
            assert_eq!(figures["leaf(int)"], (1, 0));
            assert_eq!(figures["forks()"], (0, 1));
            std::fs::remove_file(&child[0]).unwrap();
        }
    }
}
