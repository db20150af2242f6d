//! Calls that a tool adds, and what it is refused.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use atom_core::cfg::seeds::FrameFacts;
use atom_core::cfg::{Cfg, Status};
use atom_core::image::Image;
use atom_core::tool::{Application, Argument, CallPlace, Calls, Scope, Tool, may_have_threads};
use atom_core::{Error, Result};

use crate::{run, temp, tool_file};

const PROGRAM: &str = r#"
    #include <stdio.h>
    __attribute__((noinline)) int square(int n) { __asm__ volatile(""); return n * n; }
    int main(int argc, char **argv) {
        if (argc > 2) puts("many");
        for (int i = 0; i < argc; i++) printf("%d %s\n", square(i), argv[i]);
        return 0;
    }
"#;

/// Compiles C; the file is renamed into place, so that tests may run in parallel.
fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (file, partial) = (
        temp(name),
        temp(&format!("{name}.{}.{}.part", unique.0, unique.1)),
    );
    let c = partial.with_extension("c");
    std::fs::write(&c, source).unwrap();
    run(Command::new("gcc")
        .arg("-O1")
        .args(flags)
        .arg("-o")
        .arg(&partial)
        .arg(&c)
        .args(
            // Libraries follow what needs them.
            flags.iter().filter(|f| f.starts_with("-l")),
        ));
    std::fs::rename(&partial, &file).unwrap();
    file
}

struct Loaded {
    image: Image,
    cfg: Cfg,
}

fn load(path: &Path) -> Loaded {
    let image = Image::open(path).unwrap();
    let frames = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&frames)).unwrap();
    Loaded { image, cfg }
}

fn trial() -> Loaded {
    load(&compile("trial.bin", PROGRAM, &[]))
}

fn instrument(program: &Loaded, args: &[&str]) -> Result<Calls> {
    let tool = Tool::load(tool_file())?;
    let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
    let application = Application {
        path: &program.image.path,
        image: &program.image,
        cfg: &program.cfg,
        lines: &(),
        selected: None,
        crossings: None,
        is_global: true,
        known: 1,
    };
    tool.instrument(
        &[application],
        &args,
        Default::default(),
        &|error: &Error| -> Infallible {
            eprintln!("{error}");
            std::process::exit(42)
        },
    )
}

#[test]
fn navigation_goes_both_ways() {
    let program = trial();
    for args in ["walk", "look"] {
        let calls = instrument(&program, &[args]).unwrap();
        assert!(calls.calls.is_empty());
    }
    // A C library has code of every kind.
    let whole = load(&compile("trial-static", PROGRAM, &["-static"]));
    instrument(&whole, &["walk"]).unwrap();
}

#[test]
fn calls_arrive_as_they_were_added() {
    let program = trial();
    let calls = instrument(&program, &["calls"]).unwrap();
    let tool = Tool::load(tool_file()).unwrap();
    let facts = tool.facts();
    let name = |routine: u64| {
        let found = facts.routines.iter().find(|r| r.1 == routine);
        found.map_or("", |r| r.0.as_str())
    };
    let points: Vec<_> = calls
        .calls
        .iter()
        .map(|c| (c.scope, c.place, name(c.routine.get())))
        .collect();
    use CallPlace::{After, Before};
    assert_eq!(
        points,
        [
            (Scope::Program, Before, "ten"),
            (Scope::Inst, Before, "cond_branch"),
            (Scope::Block, After, "nothing"),
            (Scope::Proc, Before, "nothing"),
            (Scope::Inst, Before, "access"),
            (Scope::Program, After, "table"),
            (Scope::Inst, Before, "by_name"),
            (Scope::Inst, After, "nothing"),
        ]
    );
    let args = |i: usize| {
        let range = &calls.calls[i].args;
        &calls.args[range.start as usize..range.end as usize]
    };
    let bytes = |start: u32, end: u32| &calls.data[start as usize..end as usize];

    let constant = |n: i64| Argument::Const(n as u64);
    let ten = args(0);
    let constants = [200, -1, 60000, -2, -1, -3, 1].map(constant);
    assert_eq!(ten[..7], constants);
    assert!(matches!(ten[7], Argument::Str(s, e) if bytes(s, e) == b"text"));
    let ints = [1i32, -2, 3].map(i32::to_le_bytes).concat();
    assert!(matches!(ten[8], Argument::Array(s, e, 4) if bytes(s, e) == ints));
    assert_eq!(ten[9], constant(9));

    assert_eq!(args(1), [constant(7), Argument::BrCondValue]);
    // The table: a header of 16 bytes, then rows of three cells.
    assert_eq!(
        args(4),
        [
            Argument::ThreadData(16 + 4 * 24),
            Argument::EffAddrValue,
            Argument::Regv(4)
        ]
    );
    let threads = &calls.thread_data;
    assert_eq!(threads.len, 16 + 5 * 24);
    assert_eq!(threads.initial, [(0, 0..16)]);
    assert_eq!(threads.contents, [5u64, 3].map(u64::to_le_bytes).concat());
    assert_eq!(threads.sums.len(), 1);
    assert_eq!(threads.sums[0], 16..16 + 5 * 24);
    assert_eq!(args(5)[0], Argument::ThreadData(0));
    assert!(
        matches!(args(5)[1], Argument::Array(s, e, 1) if bytes(s, e).ends_with("größe\0".as_bytes()))
    );

    let by_name = args(6);
    // A signed `char` cannot hold 200.
    assert_eq!(by_name[0], constant(-56));
    assert!(matches!(by_name[1], Argument::Str(s, e) if bytes(s, e) == b"s"));
    assert!(matches!(by_name[2], Argument::CStr(s, e) if bytes(s, e) == b"z"));
    assert!(matches!(by_name[3], Argument::Array(s, e, 8) if e - s == 16));
    assert!(matches!(by_name[4], Argument::CArray(s, e, 4) if bytes(s, e) == [255; 4]));
    assert_eq!(by_name[5..], [Argument::Regv(16), Argument::EffAddrValue]);

    // The point is the one that was meant.
    let branch = atom_core::InstId(calls.calls[1].id);
    assert!(
        program
            .cfg
            .decode(&program.image, branch)
            .is_jcc_short_or_near()
    );
}

#[test]
fn facts_are_addresses_in_the_file() {
    let facts = Tool::load(tool_file()).unwrap().facts();
    let bytes = std::fs::read(tool_file()).unwrap();
    let atom = atom_core::analysis::AnalysisImage::parse(tool_file(), &bytes, facts.clone());
    let atom = atom.unwrap();
    let end = atom.end();
    let all = facts.exports.iter().chain(&facts.routines).map(|e| e.1);
    assert!(
        all.chain(atom.header_functions())
            .all(|address| address > 0 && address < end)
    );
    assert!(facts.exports.iter().any(|e| e.0 == "malloc"));
    assert!(facts.routines.iter().any(|r| r.0 == "cond_branch"));
}

/// Calls with data that was not placed are no errors of their own.
#[test]
fn lacking_data_is_one_error() {
    let error = instrument(&trial(), &["refused", "lacking-data"]).unwrap_err();
    assert!(error.reason.contains("exceed"), "{error}");
    assert!(!error.reason.contains("more error"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let program = trial();
    let refused = |what: &str, expected: &[&str]| {
        let error = instrument(&program, &["refused", what])
            .expect_err(what)
            .to_string();
        for part in expected {
            assert!(error.contains(part), "{what}: {error}");
        }
    };
    let main = program
        .cfg
        .procs
        .iter()
        .find(|p| p.name.as_deref() == Some("main"))
        .unwrap();
    let at_main = format!(" at {:#x}", main.start);
    refused(
        "not-a-branch",
        &[
            "`cond_branch` before `",
            "argument 2",
            "BrCondValue",
            &at_main,
        ],
    );
    refused("after-a-branch", &["after `j", "BrCondValue"]);
    refused("branch-of-block", &["before a block", "BrCondValue"]);
    refused("no-memory", &["EffAddrValue", "accesses memory"]);
    refused("loaded-by-branch", &["LoadedValue", "reads memory"]);
    refused("no-such-operand", &["memory operand 5", "has"]);
    refused("not-a-vector", &["vector register"]);
    refused("no-avx512", &["xmm20", "AVX-512"]);
    refused("target-of-plain", &["BranchTarget", "jump, call or return"]);
    refused("value-of-block", &["StoredValue", "only at an instruction"]);
    refused(
        "register-of-program",
        &["`access` before the program", "register"],
    );
    refused("null-inside", &["`by_name`", "argument 3", "null"]);
    refused("two-errors", &["(and one more error)"]);
    refused("too-much-data", &["all data", "exceed"]);
    refused("unknown-routine", &["`missing(int)`", "#[analysis]"]);
    refused("no-prototype", &["`nothing`", "add_call_proto"]);
    refused("prototype-count", &["1 parameters", "has 2"]);
    refused("prototype-type", &["parameter 1", "`long`"]);
    refused("bad-type", &["`double`", "VALUE"]);
    refused("no-list", &["no parameter list"]);
    refused("argument-count", &["2 arguments", "has 1"]);
    refused("argument-range", &["argument 1", "4294967296 does not fit"]);
    refused("argument-type", &["argument 1", "`int`"]);
    refused("chain", &["reading the limit: invalid digit"]);
    // What the cfg would say of code that it cannot follow.
    let mut program = trial();
    let square = program
        .cfg
        .procs
        .iter_mut()
        .find(|p| p.name.as_deref() == Some("square"));
    let square = square.unwrap();
    (square.status, square.block_count) = (Status::Opaque("data in code".to_owned()), 0);
    let error = instrument(&program, &["refused", "opaque"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`square`") && error.contains("opaque") && error.contains("data in code"),
        "{error}"
    );
}

#[test]
fn an_unknown_wish_is_an_error() {
    let program = trial();
    let error = instrument(&program, &["refused", "nonsense"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not know `nonsense`"), "{error}");
}

#[test]
fn options_are_read_and_mistakes_named() {
    let program = trial();
    instrument(&program, &["options", "--output", "x"]).unwrap();
    instrument(&program, &["options", "--output=x"]).unwrap();
    let error = instrument(&program, &["options", "--per", "x"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unknown option `--per`") && error.contains("--output"),
        "{error}"
    );
}

/// A panic ends the process, so it happens in one of its own.
#[test]
fn a_panic_is_a_message() {
    const CHILD: &str = "ATOM_TEST_PANIC";
    if let Ok(how) = std::env::var(CHILD) {
        let _ = instrument(&trial(), &[&how]);
        std::process::exit(1);
    }
    for (how, text) in [
        ("panic", "out of luck"),
        ("overflow", "row 1 of a table of 1 counters"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "calls::a_panic_is_a_message", "--nocapture"])
            .env(CHILD, how)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(42), "{stderr}");
        assert!(
            stderr.contains("panicked at ") && stderr.contains(text),
            "{stderr}"
        );
        assert!(stderr.contains(".rs:"), "{stderr}");
    }
}

#[test]
fn what_is_no_tool_is_refused() {
    let good = std::fs::read(tool_file()).unwrap();
    let header = good.windows(8).position(|w| w == b"ATOMTOOL").unwrap();
    let patched = |name: &str, at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let path = temp(name);
        std::fs::write(&path, file).unwrap();
        path
    };
    let truncated = temp("truncated.so");
    std::fs::write(&truncated, &good[..good.len() / 2]).unwrap();
    let text = temp("text.so");
    std::fs::write(&text, "not a tool").unwrap();
    let libm = compile(
        "other.so",
        "int f(void) { return 1; }",
        &["-shared", "-fPIC"],
    );
    let program = compile("trial.bin", PROGRAM, &[]);

    let refused = |path: &Path, expected: &str| {
        let error = Tool::load(path)
            .err()
            .unwrap_or_else(|| panic!("{} is a tool", path.display()));
        let line = error.to_string();
        assert!(line.contains(expected), "{}: {line}", path.display());
        assert!(line.contains(&path.display().to_string()), "{line}");
    };
    refused(&temp("missing.so"), "no such file");
    refused(Path::new("/tmp"), "directory");
    refused(&text, "not a shared object");
    refused(&libm, "not a tool");
    refused(&program, "not a tool");
    refused(&patched("arm.so", 18, &[0xb7, 0]), "not for x86-64");
    refused(&patched("class.so", 4, &[1]), "not a 64-bit");
    refused(
        &patched("magic.so", header, b"X"),
        "header is not that of a tool",
    );
    refused(
        &patched("version.so", header + 8, &[0xff, 0, 0, 0]),
        "version 255 of the tool interface",
    );
    refused(
        &patched("size.so", header + 12, &[9, 0, 0, 0]),
        "a header of 9 bytes",
    );
    // Without its section headers or its tables it is damaged, or simply no tool.
    assert!(Tool::load(&truncated).is_err());
}

#[test]
fn threads_are_suspected_but_not_everywhere() {
    let threaded = r#"
        #include <pthread.h>
        static void *run(void *p) { return p; }
        int main(void) { pthread_t t; return pthread_create(&t, 0, run, 0); }
    "#;
    let raw = |number: &str| {
        format!(
            "#include <unistd.h>\n#include <sys/syscall.h>\nint main(int c, char **v) {{ return syscall({number}, 0); }}"
        )
    };
    let cloned = r#"
        #define _GNU_SOURCE
        #include <sched.h>
        static int run(void *p) { return 0; }
        static char stack[65536];
        int main(void) { return clone(run, stack + 65536, CLONE_VM, 0); }
    "#;
    let pointer = r#"
        #define _GNU_SOURCE
        #include <sched.h>
        int (*volatile f)(int (*)(void *), void *, int, void *, ...) = clone;
        int main(void) { return f == 0; }
    "#;
    let cases: &[(&str, &str, &[&str], bool)] = &[
        ("one", PROGRAM, &[], false),
        ("one-static", PROGRAM, &["-static"], false),
        ("one-static-stripped", PROGRAM, &["-static", "-s"], true),
        ("one-stripped", PROGRAM, &["-s"], false),
        (
            "spawns",
            "#include <stdlib.h>\nint main(void) { return system(\"true\"); }",
            &["-static"],
            // The child runs in this process's memory.
            true,
        ),
        ("many", threaded, &["-pthread"], true),
        ("many-static", threaded, &["-static", "-pthread"], true),
        ("clone", cloned, &[], true),
        ("clone-static", cloned, &["-static"], true),
        ("pointer-static", pointer, &["-static"], true),
        ("getpid", &raw("SYS_getpid"), &[], false),
        ("getpid-static", &raw("SYS_getpid"), &["-static"], false),
        ("raw", &raw("SYS_clone"), &[], true),
        ("raw-static", &raw("SYS_clone"), &["-static"], true),
        ("unknown", &raw("c"), &[], true),
        ("unknown-static", &raw("c"), &["-static"], true),
        (
            "dlopen",
            "#include <dlfcn.h>\nint main(int c, char **v) { return !dlopen(v[0], 1); }",
            &[],
            true,
        ),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .filter(|(name, source, flags, expected)| {
            let program = load(&compile(&format!("threads-{name}"), source, flags));
            may_have_threads(&program.image, &program.cfg) != *expected
        })
        .map(|case| (case.0, case.3))
        .collect();
    assert!(wrong.is_empty(), "not as expected: {wrong:?}");
}
