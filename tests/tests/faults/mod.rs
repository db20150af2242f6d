//! Faults of the tool: the process says which routine it was and where, and no handler of the program runs. Faults of the program's
//! own, also those that inserted code is the first to meet, come to the program as ever.

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::counts::Symbols;
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::source::End;
use atom_tests::{atom, cache, programs};

/// Routines of the tool `faulty`, the signal that ends the process, and whether a report is written.
const WAYS: [(&str, i32, bool); 7] = [
    ("divide", libc::SIGFPE, true),
    ("wild", libc::SIGSEGV, true),
    ("panics", libc::SIGABRT, true),
    ("aborts", libc::SIGABRT, true),
    ("jumps", libc::SIGSEGV, true),
    ("traps", libc::SIGILL, true),
    // The routine may hold a lock.
    ("locked", libc::SIGSEGV, false),
];

/// A program with a folder of its own.
struct Place {
    folder: PathBuf,
    is_static: bool,
}

impl Place {
    fn new(name: &str, is_static: bool) -> Self {
        let folder = atom_tests::cache::folder(&format!("faults/{name}"));
        let place = Self { folder, is_static };
        let source = here("program.c");
        let mut command = Command::new("gcc");
        programs::needed("gcc");
        command.args(["-O1", "-fno-optimize-sibling-calls"]);
        if is_static {
            command.arg("-static");
        }
        cache::compiled(command, &[source.clone().into()], &source, &place.program()).unwrap();
        place
    }

    fn program(&self) -> PathBuf {
        self.folder.join("program")
    }

    fn out(&self) -> PathBuf {
        self.folder.join("program.out")
    }

    fn report(&self) -> PathBuf {
        self.folder.join("faulty.out")
    }

    /// Instruments the program, with its libraries if it is dynamic.
    fn instrument(&self, words: &[&str]) {
        let mut command = Command::new(atom::command().unwrap());
        command.arg(self.program()).arg("-o").arg(self.out());
        command.args(["-q", "--check"]);
        if !self.is_static {
            command.arg("--libs");
        }
        let output = command.args(words).current_dir(&self.folder).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
    }

    fn run(&self, file: &Path, arguments: &[&str]) -> Outcome {
        let _ = std::fs::remove_file(self.report());
        let mut command = Command::new(file);
        plain_environment(&mut command);
        command.args(arguments).current_dir(&self.folder);
        run(&mut command, &Setting::default()).unwrap()
    }

    /// Runs the instrumented program, whose routine fails, and returns what was said.
    fn failing(&self, arguments: &[&str], routine: &str, signal: i32) -> String {
        let outcome = self.run(&self.out(), arguments);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let what = format!("{routine} {arguments:?}: {printed}{said}");
        assert_eq!(outcome.end, End::Signal(signal), "{what}");
        assert!(
            printed.starts_with("own ") && printed.lines().count() == 1,
            "{what}"
        );
        assert!(
            said.contains(&format!("in the analysis routine {routine} of the tool ")),
            "{what}"
        );
        assert!(
            said.contains("handlers of the program do not run"),
            "{what}"
        );
        let work = Symbols::read(&self.program()).address("work").unwrap();
        assert!(
            said.contains(&format!("  at the point {work:#x} in work of ")),
            "{what}"
        );
        // The frames have names, from the routine to the program's functions.
        let frames: Vec<&str> = said.lines().filter(|l| l.starts_with("    0x")).collect();
        let named = |name: &str| {
            frames
                .iter()
                .position(|l| l.split([' ', '+']).any(|w| w == name))
        };
        let order = [routine, "work", "thread"].map(named);
        assert!(
            order.is_sorted() && order.iter().all(Option::is_some),
            "{what}"
        );
        said
    }
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/faults")
        .join(file)
}

/// All ways to fail, in line and called, with handlers of the program.
fn told(name: &str, is_static: bool) {
    let place = Place::new(name, is_static);
    for (how, signal, reports) in WAYS {
        for inline in [&[][..], &["--no-inline"]] {
            let tool = ["--tool", "faulty"];
            let options = ["--", "--how", how, "--proc", "work", "--at", "5"];
            place.instrument(&[inline, &tool, &options].concat());
            for arguments in ["h", "ha", "hat"] {
                place.failing(&[arguments, "1000"], how, signal);
                let report = std::fs::read_to_string(place.report()).ok();
                let expected = reports && !arguments.contains('t');
                if expected {
                    assert_eq!(report.as_deref(), Some("5\n"), "{how} {arguments}")
                } else {
                    // Other threads go on meanwhile.
                    assert_eq!(report.is_some(), reports, "{how} {arguments}")
                }
            }
            // The routine does not fail yet.
            let arguments = ["ha", "4"];
            let expected = place.run(&place.program(), &arguments);
            let found = place.run(&place.out(), &arguments);
            assert_eq!(found.differs_from(&expected), None, "{how}");
        }
    }
}

#[test]
fn a_static_program_says_which_routine_failed() {
    told("static", true);
}

#[test]
fn a_whole_process_says_which_routine_failed() {
    told("whole", false);
}

#[test]
fn a_routine_at_the_end_fails() {
    for is_static in [false, true] {
        let place = Place::new(if is_static { "late-static" } else { "late" }, is_static);
        place.instrument(&["--tool", "faulty", "--", "--how", "late", "--proc", "work"]);
        let outcome = place.run(&place.out(), &["h", "10"]);
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Signal(libc::SIGSEGV), "{said}");
        assert_eq!(outcome.stdout, b"own 11\ndone 135\n", "{said}");
        assert!(
            said.contains("in the analysis routine late of the tool faulty"),
            "{said}"
        );
        assert!(said.contains("in a call at the program's end"), "{said}");
    }
}

/// Without a handler, too, the fault is the tool's.
#[test]
fn a_program_without_handlers_says_whose_fault_it_was() {
    for is_static in [false, true] {
        let place = Place::new(if is_static { "bare-static" } else { "bare" }, is_static);
        let tool = ["--tool", "faulty", "--", "--how", "wild", "--proc", "main"];
        place.instrument(&tool);
        let outcome = place.run(&place.out(), &["x", "10"]);
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Signal(libc::SIGSEGV), "{said}");
        assert!(
            said.contains("at address 0x10 in the analysis routine wild"),
            "{said}"
        );
        assert!(said.contains(" in main of "), "{said}");
        // The program's own fault is not told.
        place.instrument(&["--tool", "icount"]);
        let outcome = place.run(&place.out(), &["x", "10"]);
        assert_eq!(outcome.end, End::Signal(libc::SIGSEGV));
        assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    }
}

#[test]
fn a_tool_in_c_says_which_routine_failed() {
    let place = Place::new("in-c", false);
    let files = ["faulty.inst.c", "faulty.anal.c"].map(here);
    let [inst, anal] = files.each_ref().map(|f| f.to_str().unwrap());
    for (how, signal) in [
        ("divide", libc::SIGFPE),
        ("wild", libc::SIGSEGV),
        ("aborts", libc::SIGABRT),
    ] {
        for inline in [&[][..], &["--no-inline"]] {
            let tool = [inst, anal, "--", how, "work", "5"];
            place.instrument(&[inline, &tool].concat());
            place.failing(&["ha", "1000"], how, signal);
        }
    }
}

/// The stack is full where inserted code uses it first; a routine reads a page that the program protects.
#[test]
fn faults_of_the_programs_own_come_to_its_handlers() {
    for is_static in [false, true] {
        let place = Place::new(if is_static { "own-static" } else { "own" }, is_static);
        let faulty = [
            "--tool",
            "faulty",
            "--",
            "--how",
            "divide",
            "--proc",
            "deep",
            "--at",
            "1000000000",
        ];
        let tools = [&faulty[..], &["--tool", "cache"], &["--tool", "icount"]];
        for tool in tools {
            for inline in [&[][..], &["--no-inline"]] {
                place.instrument(&[inline, tool].concat());
                for arguments in ["hap", "hapo"] {
                    let expected = place.run(&place.program(), &[arguments, "10"]);
                    let found = place.run(&place.out(), &[arguments, "10"]);
                    assert_eq!(found.differs_from(&expected), None, "{tool:?} {arguments}");
                }
            }
        }
    }
}

#[test]
fn a_program_of_go_says_which_routine_failed() {
    programs::needed("go");
    let folder = atom_tests::cache::folder("faults/go");
    let (program, out) = (folder.join("program"), folder.join("program.out"));
    let mut build = Command::new("go");
    build
        .env("GOCACHE", folder.join("cache"))
        .args(["build", "-o"]);
    let built = build
        .arg(&program)
        .arg(here("program.go"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    for (how, signal, _) in WAYS {
        for inline in [&[][..], &["--no-inline"]] {
            let mut command = Command::new(atom::command().unwrap());
            command
                .arg(&program)
                .arg("-o")
                .arg(&out)
                .args(["-q", "--check"]);
            command
                .args(inline)
                .args(["--tool", "faulty", "--", "--how", how]);
            command.args(["--proc", "main.work", "--at"]);
            let made = |at: &str, command: &mut Command| {
                let output = command.arg(at).current_dir(&folder).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                run(Command::new(&out).current_dir(&folder), &Setting::default()).unwrap()
            };
            let outcome = made("7", &mut command);
            let said = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!(outcome.end, End::Signal(signal), "{how} {inline:?}: {said}");
            assert!(
                said.contains(&format!("in the analysis routine {how} of the tool faulty")),
                "{how}: {said}"
            );
            assert!(said.contains(" in main.work"), "{how} {inline:?}: {said}");
            // Go's runtime would say this of a fault that comes to it.
            assert!(!said.contains("goroutine"), "{how}: {said}");
        }
    }
}
