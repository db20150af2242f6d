//! The tool `counters`: executions that pair, sums that are those of other tools and of a
//! single-step trace, messages about what cannot be counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts::Missed;
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::source::{End, find_program};
use atom_tests::stepper::{self, Options, Step};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
use object::{Object, ObjectSection};
use serde_json::Value;

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

fn folder(name: &str) -> PathBuf {
    let folder = atom::target_folder().unwrap().join("test-programs");
    let folder = folder.join(format!("counters-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn compile(folder: &Path, source: &str) -> PathBuf {
    let (file, program) = (folder.join("program.cc"), folder.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("g++");
    command
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(&file);
    assert!(command.status().expect("a compiler runs").success());
    program
}

/// A run of an instrumented program.
struct Ran {
    place: PathBuf,
    outcome: Outcome,
    report: Value,
}

/// Instruments with a tool under `folder/`, and runs it there.
fn ran(folder: &Path, program: &Path, tool: &str, options: &[&str], args: &[&str]) -> Ran {
    // Names of one length, for the stack's sake.
    let place = folder.join(format!("{tool:_<8}"));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let out = place.join("program");
    let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    let job = Job::Tool(tool.to_owned(), options);
    let report = atom::instrument(program, &out, &job, true).unwrap().report;
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command.args(args).current_dir(&place);
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    let outcome = run(&mut command, &setting).unwrap();
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exit(0), "{text}");
    Ran {
        place,
        outcome,
        report,
    }
}

fn json(place: &Path, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.join(file)).unwrap()).unwrap()
}

fn sums(json: &Value, table: &str, column: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for row in json[table].as_array().unwrap() {
        let name = row["procedure"].as_str().unwrap().to_owned();
        *all.entry(name).or_default() += row[column].as_u64().unwrap();
    }
    all
}

fn in_all(json: &Value, event: &str) -> u64 {
    let rows = json["events"].as_array().unwrap();
    let row = rows.iter().find(|r| r["event"] == event).unwrap();
    row["in_all"].as_u64().unwrap()
}

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
    // What threads do after their last note is in no procedure.
    assert!(outside < 100, "{outside}");
    // A multiplication and an addition a round.
    assert_eq!(sums(&report, "exact:flops", "self")["flops()"], 200);
    // Of a recursion the outermost execution has all.
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

    // The child's report begins in the middle of `forks`, which is no call there.
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

/// A program that is interrupted again and again, wherever it is.
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
    // A note that is lost while a buffer is worked on is told.
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
    // No processor has this one.
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

fn installed(name: &str) -> Option<PathBuf> {
    let found = find_program(name).and_then(|f| std::fs::canonicalize(f).ok());
    if found.is_none() {
        println!("{name}: skipped, it is not installed");
    }
    found
}

const SCRIPT: &str = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); case $i in *7) x=$x.;; esac; done; \
                      echo ${#x}; (exit 3); echo $?";

#[test]
fn figures_are_those_of_other_tools() {
    let text = "The quick brown fox jumps over the lazy dog, again and again.\n".repeat(50);
    for (name, args) in [
        ("dash", &["-c", SCRIPT][..]),
        ("sed", &["-n", "s/o\\(.\\)/\\1/gp", "../text"]),
        (
            "sqlite3",
            &[":memory:", "select sum(1) from (values (1), (2));"],
        ),
        ("bzip2", &["-zkc", "../text"]),
    ] {
        let Some(program) = installed(name) else {
            continue;
        };
        let folder = folder(name);
        std::fs::write(folder.join("text"), &text).unwrap();
        let ran = |tool: &str, options: &[&str]| ran(&folder, &program, tool, options, args);
        let events = "exact:instructions,exact:branches,exact:taken,exact:not-taken,\
                      model:L1-misses,model:L2-misses";
        // The default cache of the tool `cache`.
        let cache = ["--line", "32", "--l1", "8k:1"];
        let options = [&["--json", "o.json", "--events", events], &cache[..]].concat();
        let counters = ran("counters", &options);
        let report = json(&counters.place, "o.json");
        let all = |event: &str| in_all(&report, event);
        let own = sums(&report, "exact:instructions", "self");
        assert_eq!(
            own.values().sum::<u64>(),
            all("exact:instructions"),
            "{name}"
        );

        let other = ran("icount", &["--json", "o.json"]);
        assert_eq!(other.outcome.stdout, counters.outcome.stdout, "{name}");
        let other = json(&other.place, "o.json");
        assert_eq!(other["instructions"], all("exact:instructions"), "{name}");
        let other = json(&ran("branch", &["--json", "o.json"]).place, "o.json");
        assert_eq!(other["executed"], all("exact:branches"), "{name}");
        assert_eq!(other["taken"], all("exact:taken"), "{name}");
        assert_eq!(
            all("exact:taken") + all("exact:not-taken"),
            all("exact:branches")
        );
        let other = json(&ran("cache", &["--json", "o.json"]).place, "o.json");
        assert_eq!(other["misses"], all("model:L1-misses"), "{name}");
        assert!(all("model:L2-misses") <= all("model:L1-misses"));

        let other = json(
            &ran("prof", &["--json", "o.json", "--entries"]).place,
            "o.json",
        );
        let entries = sums(&other, "procedures", "entries");
        let calls = sums(&report, "procedures", "calls");
        assert!(calls.len() > 5, "{name}");
        for (proc, n) in &calls {
            assert_eq!(entries.get(proc).copied().unwrap_or(0), *n, "{name} {proc}");
        }
    }
}

/// What a single-step trace counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Truth {
    loads: u64,
    stores: u64,
    bytes: u64,
    calls: u64,
    taken: u64,
}

#[test]
fn memory_is_that_of_a_trace() {
    for (name, args) in [
        ("dash", &["-c", SCRIPT][..]),
        ("sed", &["-n", "s/o\\(.\\)/\\1/gp", "../text"]),
    ] {
        let Some(program) = installed(name) else {
            continue;
        };
        let folder = folder(&format!("trace-{name}"));
        std::fs::write(folder.join("text"), "The quick brown fox\n".repeat(3)).unwrap();
        let events = "exact:loads,exact:stores,exact:bytes,exact:calls,exact:taken,\
                      exact:references,exact:loads:opcode=mov*";
        let ran = ran(
            &folder,
            &program,
            "counters",
            &["--json=o.json", "--events", events],
            args,
        );
        let report = json(&ran.place, "o.json");
        let missed = Missed::from_report(&ran.report);
        let truth = trace(&program, &ran.place, args, &missed);
        let all = |event: &str| in_all(&report, event);
        let have = Truth {
            loads: all("exact:loads"),
            stores: all("exact:stores"),
            bytes: all("exact:bytes"),
            calls: all("exact:calls"),
            taken: all("exact:taken"),
        };
        assert_eq!(have, truth, "{name}");
        assert_eq!(all("exact:references"), truth.loads + truth.stores);
        let moves = all("exact:loads:opcode=mov*");
        assert!(0 < moves && moves < truth.loads);
    }
}

fn trace(program: &Path, place: &Path, args: &[&str], missed: &Missed) -> Truth {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let sections: Vec<(u64, &[u8])> = elf
        .sections()
        .filter(|s| s.kind() == object::SectionKind::Text)
        .map(|s| (s.address(), s.data().unwrap()))
        .collect();
    let mut factory = InstructionInfoFactory::new();
    let mut truth = Truth::default();
    let mut tell = |step: &Step<'_>| {
        let known = |s: &&(u64, &[u8])| (s.0..s.0 + s.1.len() as u64).contains(&step.pc);
        let Some((start, code)) = sections.iter().find(known) else {
            return;
        };
        if missed.around(step.pc).is_some() {
            return;
        }
        let code = &code[(step.pc - start) as usize..];
        let insn = Decoder::with_ip(64, code, step.pc, DecoderOptions::NONE).decode();
        if !step.repeated {
            match insn.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => truth.calls += 1,
                FlowControl::ConditionalBranch => {
                    truth.taken += u64::from(step.next != insn.next_ip());
                }
                _ => {}
            }
        }
        if step.references.is_empty() {
            return;
        }
        for memory in factory.info(&insn).used_memory() {
            // Of a repeated instruction that is the whole, which is not known.
            let size = match memory.memory_size().size() {
                0 => insn.memory_size().size(),
                size => size,
            } as u64;
            let (reads, writes) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (1, 0),
                OpAccess::Write | OpAccess::CondWrite => (0, 1),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (1, 1),
                OpAccess::None | OpAccess::NoMemAccess => (0, 0),
            };
            truth.loads += reads;
            truth.stores += writes;
            truth.bytes += (reads + writes) * size;
        }
    };
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.args(args).current_dir(place);
    command.stdout(std::process::Stdio::null());
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    stepper::watch(program, &mut command, options, &mut tell).unwrap();
    truth
}
