//! The tool `calllog` and `atom analyze`: logs that pair, calls counted right, time
//! that belongs to one procedure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::{End, find_program};
use object::{Object, ObjectSection};

/// The program of the exercise, written after its description: `main` calls A three
/// times, A and B call each other and B itself.
const EXERCISE: &str = r#"
static volatile int n;
static int main_rounds = 2, a_rounds = 20000, b_rounds = 20000;
#define WHOLE __attribute__((noinline, noclone, noipa))
WHOLE int A(void);
WHOLE int B(void);
int main(void) {
    START
    ENTER(0)
    for (int i = 0; i <= main_rounds; i++) { n = 0; A(); }
    LEAVE(0)
    WRITE
    return 0;
}
int A(void) {
    ENTER(1)
    n++;
    for (volatile int i = 0; i <= a_rounds; i++) {}
    if (n <= 200) B();
    LEAVE(1)
    return 0;
}
int B(void) {
    ENTER(2)
    for (volatile int i = 0; i <= b_rounds; i++) {}
    if (n % 2 == 0) A(); else { n++; B(); }
    LEAVE(2)
    return 0;
}
"#;

/// The same, plain.
const PLAIN: &str = "#define START\n#define ENTER(p)\n#define LEAVE(p)\n#define WRITE\n";

const CALLS: [(&str, u64); 3] = [("main", 1), ("A", 303), ("B", 600)];

/// Ways of leaving procedures other than by their exits.
const LEAVING: &str = r#"
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

/// Procedure, calls, and how often it was left without an exit.
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

fn folder(name: &str) -> PathBuf {
    let folder = atom::target_folder().unwrap().join("test-programs");
    let folder = folder.join(format!("calllog-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (extension, compiler) = match source.contains("std::") {
        true => ("cc", "g++"),
        false => ("c", "gcc"),
    };
    let (file, program) = (
        folder.join("program").with_extension(extension),
        folder.join("program"),
    );
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .arg("-pthread");
    assert!(command.status().expect("a compiler runs").success());
    program
}

/// Instruments with a tool under `folder/NAME/`, and runs it there.
fn log(folder: &Path, program: &Path, tool: &str, options: &[&str], args: &[&str]) -> PathBuf {
    // Names of one length, for the stack's sake.
    let place = folder.join(if tool == "prof" { "profile" } else { tool });
    std::fs::create_dir_all(&place).unwrap();
    let out = place.join("program");
    let options = options.iter().map(|o| (*o).to_owned()).collect();
    atom::instrument(program, &out, &Job::Tool(tool.to_owned(), options), true).unwrap();
    let mut command = Command::new(&out);
    plain_environment(&mut command);
    command
        .args(args)
        .current_dir(&place)
        .env("PYTHONHASHSEED", "0");
    let setting = Setting {
        fixed_addresses: true,
        ..Setting::default()
    };
    let outcome = run(&mut command, &setting).unwrap();
    assert_eq!(
        outcome.end,
        End::Exit(0),
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    place
}

fn analyze(args: &[&str], file: &Path) -> String {
    let mut command = Command::new(atom::command().unwrap());
    command.arg("analyze").arg(file).args(args);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Procedures of the n-th report with calls and ways of being left.
fn figures(text: &str, report: usize) -> BTreeMap<String, (u64, u64)> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut all = BTreeMap::new();
    for proc in json["reports"][report]["procedures"].as_array().unwrap() {
        if let Some(calls) = proc["calls"].as_u64() {
            let entry: &mut (u64, u64) = all
                .entry(proc["procedure"].as_str().unwrap().to_owned())
                .or_default();
            entry.0 += calls;
            entry.1 += proc["left"].as_u64().unwrap();
        }
    }
    assert_eq!(
        json["reports"][report]["notes"].as_array().unwrap().len(),
        0
    );
    all
}

#[test]
fn the_exercises_program() {
    for (name, flags) in [
        ("O0", &["-O0"][..]),
        ("O2", &["-O2", "-fno-optimize-sibling-calls"]),
    ] {
        let folder = folder(&format!("exercise-{name}"));
        let program = compile(&folder, &format!("{PLAIN}{EXERCISE}"), flags);
        for clock in ["tsc", "monotonic", "cpu", "prof"] {
            let place = log(&folder, &program, "calllog", &["--clock", clock], &[]);
            let figures = figures(&analyze(&["--json"], &place.join("calllog.out")), 0);
            for (proc, calls) in CALLS {
                assert_eq!(figures[proc], (calls, 0), "{name} {clock} {proc}");
            }
        }
        // The exercise's own format, and its description of reports.
        let options = [
            "--format",
            "exercise",
            "--clock",
            "tsc",
            "--indat",
            "analyze.indat",
        ];
        let place = log(&folder, &program, "calllog", &options, &[]);
        let figures = figures(&analyze(&["--json"], &place.join("analyze.indat")), 0);
        for (proc, calls) in CALLS {
            assert_eq!(figures[proc].0, calls, "{name} {proc}");
        }
        assert_eq!(
            std::fs::metadata(place.join("timing.dat")).unwrap().len() % 24,
            0
        );
    }
}

/// What `profile.h` makes of the exercise's program, in C and in C++.
#[test]
fn a_program_augmented_by_hand() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let include = format!("-I{}", include.canonicalize().unwrap().display());
    let augmented = "#define log_size 5000\n#include \"profile.h\"\n\
        #define START start_log;\n#define ENTER(p) write_log(0, p);\n\
        #define LEAVE(p) write_log(1, p);\n#define WRITE write_log_to_file();\n";
    let reports = "timing.dat\nAll three.\n0 Main 1\n1 A 1\n2 B1 1\n\n\
        timing.dat\nTwo of them.\n0 Main 1\n1 A 0\n2 B1 1\n";
    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", &include];
    for (name, flags) in [
        (
            "c89",
            &["-std=gnu89", "-O0", "-Wno-declaration-after-statement"][..],
        ),
        ("c", &["-std=c11", "-D_GNU_SOURCE", "-O2"]),
        ("clock", &["-O2", "-Dlog_clock=CLOCK_MONOTONIC"]),
        ("cxx", &["-xc++", "-O2"]),
    ] {
        let folder = folder(&format!("profile-{name}"));
        let source = match name {
            // Without declarations in `for`.
            "c89" => EXERCISE
                .replace("for (int i", "int i; for (i")
                .replace("for (volatile int i", "volatile int i; for (i"),
            _ => EXERCISE.to_owned(),
        };
        let flags = [flags, &strict].concat();
        let program = compile(&folder, &format!("{augmented}{source}"), &flags);
        let mut command = Command::new(&program);
        assert!(command.current_dir(&folder).status().unwrap().success());
        std::fs::write(folder.join("analyze.indat"), reports).unwrap();
        let text = analyze(&["--json"], &folder.join("analyze.indat"));
        let all = figures(&text, 0);
        let want = [("Main", 1), ("A", 303), ("B1", 600)];
        for (proc, calls) in want {
            assert_eq!(all[proc].0, calls, "{name}");
        }
        let two = figures(&text, 1);
        assert_eq!(two.len(), 2);
        assert_eq!(two["B1"].0, 600);
        // An excluded procedure's time is its caller's: none is lost.
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let total = |report: usize| json["reports"][report]["time_ms"].as_f64().unwrap();
        assert!((total(0) - total(1)).abs() < 1e-9, "{name}");
        let table = analyze(&[], &folder.join("analyze.indat"));
        assert!(table.contains("\nA\n"), "{table}");
        assert!(table.contains("600   99.83%"), "{table}");
    }
}

/// A mistake is told with its line or record, and nothing is reported.
#[test]
fn mistakes_in_the_input_are_told() {
    let folder = folder("mistakes");
    let mut record = [0u8; 24];
    record[8] = 9;
    let mut end = record;
    (end[0], end[1]) = (1, 1);
    std::fs::write(folder.join("timing.dat"), [record, end].concat()).unwrap();
    for (text, want) in [
        ("timing.dat\nHeading\n0 Main yes\n", "a.indat, line 3"),
        (
            "timing.dat\nHeading\n0 Main 1\n1 A 1\n",
            "timing.dat, record 2",
        ),
        ("none.dat\nHeading\n0 Main 1\n", "none.dat"),
    ] {
        let file = folder.join("a.indat");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(atom::command().unwrap());
        let output = command.arg("analyze").arg(&file).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && message.contains(want),
            "{message}"
        );
        assert!(output.stdout.is_empty());
    }
}

/// Two coroutines on stacks of their own, resumed eleven times each in turn.
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

/// Of a process that is killed there is what was streamed, and the report says so.
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

fn json_of(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Speedscope's schema: a file has `$schema`, `shared` and `profiles`; a frame has a name; an
/// evented profile has name, unit, range, and events that open and close frames in order.
fn check_speedscope(json: &serde_json::Value) -> usize {
    const UNITS: [&str; 6] = [
        "bytes",
        "microseconds",
        "milliseconds",
        "nanoseconds",
        "none",
        "seconds",
    ];
    assert_eq!(
        json["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = json["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        assert!(frame["name"].is_string());
        assert!(frame.get("line").is_none_or(|l| l.is_u64()));
        assert!(frame.get("file").is_none_or(|f| f.is_string()));
    }
    let profiles = json["profiles"].as_array().unwrap();
    assert!((json["activeProfileIndex"].as_u64().unwrap() as usize) < profiles.len());
    let mut events = 0;
    for profile in profiles {
        assert_eq!(profile["type"], "evented");
        assert!(profile["name"].is_string() && UNITS.contains(&profile["unit"].as_str().unwrap()));
        let mut at = profile["startValue"].as_f64().unwrap();
        let mut open = Vec::new();
        for event in profile["events"].as_array().unwrap() {
            let now = event["at"].as_f64().unwrap();
            assert!(now >= at);
            at = now;
            let frame = event["frame"].as_u64().unwrap();
            assert!((frame as usize) < frames.len());
            match event["type"].as_str().unwrap() {
                "O" => open.push(frame),
                "C" => assert_eq!(open.pop(), Some(frame)),
                other => panic!("{other}"),
            }
            events += 1;
        }
        assert!(open.is_empty() && at <= profile["endValue"].as_f64().unwrap());
    }
    events
}

/// The trace event format: an object with `traceEvents`; durations begin and end with B and E,
/// which nest in their thread and have a time in microseconds; M names process and threads.
fn check_chrome(json: &serde_json::Value) -> usize {
    let mut open: BTreeMap<(u64, u64), (f64, Vec<String>)> = BTreeMap::new();
    let mut events = 0;
    for event in json["traceEvents"].as_array().unwrap() {
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let name = event["name"].as_str().unwrap().to_owned();
        if event["ph"] == "M" {
            assert!(["process_name", "thread_name"].contains(&name.as_str()));
            assert!(event["args"]["name"].is_string());
            continue;
        }
        let state = open.entry(thread).or_default();
        let now = event["ts"].as_f64().unwrap();
        assert!(now >= state.0);
        state.0 = now;
        match event["ph"].as_str().unwrap() {
            "B" => state.1.push(name),
            "E" => assert_eq!(state.1.pop(), Some(name)),
            other => panic!("{other}"),
        }
        events += 1;
    }
    assert!(open.values().all(|(_, names)| names.is_empty()));
    events
}

#[test]
fn exports_keep_to_their_formats() {
    let folder = folder("exports");
    let program = compile(&folder, LEAVING, &["-O2"]);
    let place = log(&folder, &program, "calllog", &[], &[]);
    let [chrome, scope, html] = ["a.json", "b.json", "c.html"].map(|n| place.join(n));
    let files = [
        "--chrome",
        chrome.to_str().unwrap(),
        "--speedscope",
        scope.to_str().unwrap(),
    ];
    let options = [&files[..], &["--html", html.to_str().unwrap()]].concat();
    let text = analyze(
        &[&options[..], &["--json"]].concat(),
        &place.join("calllog.out"),
    );
    // Nothing is suspended here, so each call begins once.
    let calls: u64 = figures(&text, 0).values().map(|f| f.0).sum();
    assert_eq!(check_chrome(&json_of(&chrome)) as u64, calls * 2);
    let json = json_of(&scope);
    assert_eq!(check_speedscope(&json) as u64, calls * 2);
    assert_eq!(json["profiles"].as_array().unwrap().len(), 13);
    let page = std::fs::read_to_string(html).unwrap();
    let data = page
        .split_once("const data = ")
        .unwrap()
        .1
        .split_once(";\n")
        .unwrap()
        .0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["calls"].as_array().unwrap().len() as u64, calls);
    assert_eq!(data["threads"].as_array().unwrap().len(), 13);
    // Nothing is fetched from elsewhere.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("http"));
}

/// A program compiled with `-pg`: calls agree, and the circle of A and B is told.
#[test]
fn gprof_is_compared_with() {
    let folder = folder("gprof");
    for flags in [&["-O0", "-pg"][..], &["-O0", "-pg", "-no-pie"]] {
        let source = format!("{PLAIN}{EXERCISE}").replace("20000", "2000000");
        let program = compile(&folder, &source, flags);
        let mut command = Command::new(&program);
        assert!(command.current_dir(&folder).status().unwrap().success());
        let place = log(&folder, &program, "calllog", &["--clock", "cpu"], &[]);
        let gmon = folder.join("gmon.out");
        for app in [&[][..], &[program.to_str().unwrap()]] {
            let options = ["--json", "--gprof", gmon.to_str().unwrap()];
            let text = analyze(&[app, &options].concat(), &place.join("calllog.out"));
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let rows = json["procedures"].as_array().unwrap();
            let row = |name| rows.iter().find(|r| r["procedure"] == name).unwrap();
            for (name, calls, other) in [("A", 303, "B"), ("B", 600, "A")] {
                assert_eq!(row(name)["log"]["calls"], calls);
                assert_eq!(row(name)["gprof"]["calls"], calls);
                assert_eq!(row(name)["gprof"]["circle"][0], other);
                assert!(row(name)["gprof"]["samples"].as_f64().unwrap() > 0.0);
            }
            let remark = row("main")["remarks"][0].as_str().unwrap();
            assert!(remark.contains("from outside"), "{remark}");
        }
    }
}

/// All clocks are measured, and what must be so is so.
#[test]
fn clocks_are_measured() {
    let mut command = Command::new(atom::command().unwrap());
    let output = command
        .args(["clocks", "--json", "--time", "60"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let clocks = json["clocks"].as_array().unwrap();
    for option in ["tsc", "monotonic", "cpu", "prof"] {
        let clock = clocks.iter().find(|c| c["option"] == option).unwrap();
        assert!(clock["cost_ns"].as_f64().unwrap() > 0.0, "{clock}");
    }
    let monotonic = clocks.iter().find(|c| c["option"] == "monotonic").unwrap();
    assert_eq!(monotonic["backwards"], 0);
    assert!(monotonic["least_step_ns"].as_f64().unwrap() >= 1.0);
    assert!(json["tsc_ticks_per_ns"].as_f64().unwrap() > 0.1);
}

#[test]
fn everything_that_is_left_is_closed() {
    for (name, flags) in [("O2", &["-O2"][..]), ("static", &["-O2", "-static"])] {
        let folder = folder(&format!("leaving-{name}"));
        let program = compile(&folder, LEAVING, flags);
        // Streamed or not makes no difference.
        for (options, memory) in [(&[][..], ""), (&["--stream"], "streamed")] {
            let place = log(&folder, &program, "calllog", options, &[]);
            let text = analyze(&["--json"], &place.join("calllog.out"));
            let figures = figures(&text, 0);
            for (proc, calls, left) in LEFT {
                assert_eq!(figures[proc], (calls, left), "{name} {memory} {proc}");
            }
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["reports"][0]["threads"], 13);
            // The child's log begins in the middle of `forks`, which is no call there.
            let child = std::fs::read_dir(&place)
                .unwrap()
                .map(|e| e.unwrap().path());
            let child: Vec<_> = child
                .filter(|p| p.to_str().unwrap().contains("calllog.out."))
                .collect();
            assert_eq!(child.len(), 1);
            let figures = self::figures(&analyze(&["--json"], &child[0]), 0);
            assert_eq!(figures["child()"], (1, 1));
            assert_eq!(figures["leaf(int)"], (1, 0));
            assert_eq!(figures["forks()"], (0, 1));
            std::fs::remove_file(&child[0]).unwrap();
        }
    }
}

/// Entries by address, of what is not a stub: those of `prof`.
fn entries_of_prof(program: &Path, file: &Path) -> BTreeMap<String, u64> {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let stubs: Vec<_> = elf
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(".plt")))
        .map(|s| s.address()..s.address() + s.size())
        .collect();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut all = BTreeMap::new();
    for proc in json["procedures"].as_array().unwrap() {
        let pc = proc["pc"].as_str().unwrap().trim_start_matches("0x");
        let pc = u64::from_str_radix(pc, 16).unwrap();
        let entries = proc["entries"].as_u64().unwrap();
        if entries != 0 && !stubs.iter().any(|s| s.contains(&pc)) {
            *all.entry(proc["procedure"].as_str().unwrap().to_owned())
                .or_default() += entries;
        }
    }
    all
}

/// Calls of a program as it comes from the distribution are those that `prof` counts.
fn as_prof(name: &str, args: &[&str], files: &[(&str, &str)]) -> Option<PathBuf> {
    let program = match name.contains('/') {
        true => Some(PathBuf::from(name)),
        false => find_program(name),
    };
    let Some(program) = program.and_then(|f| std::fs::canonicalize(f).ok()) else {
        println!("{name}: skipped, it is not installed");
        return None;
    };
    let folder = folder(&name.replace('/', "-"));
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let prof = log(
        &folder,
        &program,
        "prof",
        &["--json", "prof.json", "--entries"],
        args,
    );
    let place = log(&folder, &program, "calllog", &[], args);
    let want = entries_of_prof(&program, &prof.join("prof.json"));
    let figures = figures(&analyze(&["--json"], &place.join("calllog.out")), 0);
    let have: BTreeMap<_, _> = figures
        .into_iter()
        .filter(|(_, f)| f.0 != 0)
        .map(|(name, f)| (name, f.0))
        .collect();
    assert!(have.len() > 5, "{name}");
    let names = have.keys().chain(want.keys());
    let differ: Vec<_> = names
        .filter(|n| have.get(*n) != want.get(*n))
        .map(|n| (n, have.get(n), want.get(n)))
        .collect();
    assert!(differ.is_empty(), "{name}: {differ:?}");
    Some(place)
}

const TEXT: &str = "The quick brown fox jumps over the lazy dog, again and again.\n";

#[test]
fn counts_are_those_of_prof() {
    as_prof(
        "bzip2",
        &["-zkc", "../text"],
        &[("text", &TEXT.repeat(300))],
    );
    as_prof(
        "sqlite3",
        &[":memory:", "select sum(1) from (values (1), (2));"],
        &[],
    );
    as_prof(
        "/usr/bin/python3",
        &["-S", "-c", "print(sum(i * i for i in range(100)))"],
        &[],
    );
}

#[test]
fn counts_of_threads_and_children_are_those_of_prof() {
    let threaded = ["-T2", "--block-size=100KiB", "-1kc", "../text"];
    as_prof("xz", &threaded, &[("text", &TEXT.repeat(10_000))]);
    let script = "for i in 1 2 3; do (echo $i; true); done; echo $(echo x)";
    if let Some(place) = as_prof("dash", &["-c", script], &[]) {
        let all = std::fs::read_dir(place).unwrap().map(|e| e.unwrap().path());
        let children: Vec<_> = all
            .filter(|p| p.to_str().unwrap().contains("calllog.out."))
            .collect();
        assert_eq!(children.len(), 4);
        for child in children {
            assert!(figures(&analyze(&["--json"], &child), 0).len() > 5);
        }
    }
}
