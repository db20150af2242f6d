//! Programs that use the interface wrongly: each misuse is reported with its thread and section,
//! nothing crashes, and the valid calls are recorded in the file.

use std::sync::OnceLock;

use crate::common::{Program, compile, list};

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("gcc", &["misuse.c"], &["-O1"]))
}

/// Runs the case `what` in a folder of its own, with an error callback. It must report `problems`, in this
/// order, and record `records` and, at the end, the record that every case makes.
fn check(what: &str, problems: &[&str], records: &[(&str, f64)]) {
    let shared = program();
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(shared.path("program"), here.path("program")).expect("a link");
    let text = here.succeed(&[what]);
    let said: Vec<_> = text.lines().collect();
    assert_eq!(said, problems, "{what}");
    let mut expected = list(records);
    expected.push(("9@0".to_owned(), 1.0));
    let mut found = here.records("data.arp");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, expected, "{what}");
}

/// Runs the case `what`, which cannot record anything and must go on nevertheless.
fn check_without_data(what: &str, problems: &[&str]) {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    let text = here.succeed(&[what]);
    assert_eq!(text.lines().collect::<Vec<_>>(), problems, "{what}");
    assert!(!here.path("data.arp").exists());
}

/// Runs the case `what` without an error callback: it must print `message`, end with code 1 and save the data.
fn check_default(what: &str, message: &str, data: bool) {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    let output = here.run(&[what, "default"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(message), "{what}: {text}");
    assert_eq!(output.status.code(), Some(1), "{what}: {text}");
    assert_eq!(here.path("data.arp").exists(), data, "{what}");
    if data {
        here.records("data.arp");
    }
}

#[test]
fn leave_without_enter() {
    check(
        "leave-without-enter",
        &["non-fatal: thread 1: section 3 is left, but it is not open"],
        &[],
    );
}

#[test]
fn wrong_nesting() {
    let problems = [
        "non-fatal: thread 1: section 3 is left while 4 inside of it are open; those are not recorded",
        "non-fatal: thread 1: section 4 is left, but it is not open",
    ];
    check("wrong-nesting", &problems, &[]);
}

#[test]
fn nested_kernels() {
    let problems = [
        "non-fatal: thread 1: kernel 4 is entered within kernel 3; the inner one is not recorded",
        "non-fatal: thread 1: kernel 5 is entered within kernel 3; the inner one is not recorded",
    ];
    check("nested-kernels", &problems, &[("3@0", 1.0)]);
}

#[test]
fn recursion_through_a_profiled_section() {
    let problem = "non-fatal: thread 1: section 3 is entered while it is open; the inner execution is not recorded";
    check("recursion", &[problem], &[("3@0", 0.0)]);
    check("recursive-function", &[problem; 3], &[("3@0", 4.0)]);
}

#[test]
fn one_section_of_two_kinds() {
    let problems = [
        "non-fatal: thread 1: section 3 was kernel before and is profiled now; not recorded",
        "non-fatal: thread 1: section 4 was plain before and is kernel now; not recorded",
    ];
    check("other-kind", &problems, &[("3@0", 1.0)]);
}

#[test]
fn unknown_numbers() {
    let problem = "non-fatal: thread 1: section 10 is above the highest section number, 9";
    check("unknown-section", &[problem], &[]);
    let five = "non-fatal: thread 5: its number is above the highest thread number, 4; section 1 is not recorded";
    let nine = "non-fatal: thread 9: its number is above the highest thread number, 4";
    check("unknown-thread", &[five, five, nine, nine], &[]);
}

#[test]
fn a_thread_that_is_not_joined() {
    let problems = [
        "warning: thread 2: not joined when thread 1 left section 5, in which it was spawned",
        "warning: thread 2: was not joined before the end",
    ];
    check("not-joined", &problems, &[("5@0 3@0", 1.0)]);
}

#[test]
fn thread_numbers() {
    let problem = "warning: thread 2: uses a number that was not announced as spawned";
    check("not-spawned", &[problem], &[("1@0", 1.0), ("3@0", 1.0)]);
    let problem = "non-fatal: thread 1: section 3 is entered or left by a thread that does not own this number; not recorded";
    check("shared", &[problem, problem], &[("1@0", 1.0)]);
    let problem =
        "non-fatal: thread 2: spawned again before the last thread with this number was joined";
    check("spawned-twice", &[problem], &[]);
    let problems = [
        "non-fatal: thread 2: joined, but it was not spawned",
        "non-fatal: thread 3: joined, but it was not spawned",
    ];
    check("joined-twice", &problems, &[]);
}

#[test]
fn longjmp_across_sections() {
    let problem = "warning: thread 1: sections 5, 1 were never left (a longjmp, or a missing call); they are closed and not recorded";
    let records = [("8@0 7@1 5@0 1@0", 0.0), ("8@0 7@2 5@0 1@0", 0.0)];
    check("longjmp", &[problem], &records);
    let problem = problem.replace("5, 1", "7, 5, 1");
    let records = [("7@1 5@0 1@0", 0.0), ("7@2 5@0 1@0", 0.0)];
    check("longjmp-out", &[&problem], &records);
    // A program that announces the jump causes no problem.
    check("unwind", &[], &records);
}

#[test]
fn a_cancelled_thread() {
    let problem = "warning: thread 2: ended with sections 6, 2 open; they are not recorded";
    check("cancel", &[problem], &[("6@0 1@0", 1.0)]);
    // The same while the library calls one of its callbacks.
    check("cancel-in-callback", &[problem], &[("6@0 1@0", 1.0)]);
}

#[test]
fn a_main_thread_that_ends_before_others() {
    for what in ["main-exits", "main-cancelled"] {
        let here = Program {
            folder: tempfile::tempdir().expect("a folder"),
        };
        std::os::unix::fs::symlink(program().path("program"), here.path("program"))
            .expect("a link");
        let problem = "warning: thread 1: ended with sections 5 open; they are not recorded";
        assert_eq!(
            here.succeed(&[what]).lines().collect::<Vec<_>>(),
            [problem],
            "{what}"
        );
        assert_eq!(
            here.records("data.arp"),
            list(&[("1@0", 1.0), ("5@0 3@0", 1.0)]),
            "{what}"
        );
    }
}

#[test]
fn threads_that_still_run_at_the_end() {
    let problems = [
        "warning: there still are 1 other thread(s): 2; what they do from now on is not recorded",
        "warning: thread 2: ended with sections 6, 2 open; they are not recorded",
    ];
    check("running", &problems, &[("6@0 1@0", 1.0)]);
}

#[test]
fn calls_out_of_order() {
    let problems = [
        "fatal: arp_add_callbacks: called after arp_start",
        "fatal: arp_start: called twice",
        "fatal: arp_set_file_name: called after arp_start",
        "fatal: arp_set_output_file_format: called after arp_start",
    ];
    check("start-twice", &problems, &[]);
    check_default(
        "no-start",
        "arp: error: arp_enter: called before arp_start",
        false,
    );
    check_default(
        "null-callback",
        "arp: error: arp_add_callbacks: an enter and a leave callback are needed",
        false,
    );
    check_default(
        "finish-twice",
        "arp: error: arp_finish: called after arp_finish",
        true,
    );
    check_without_data(
        "no-callbacks",
        &["fatal: arp_start: arp_add_callbacks has not been called"],
    );
    check_without_data("no-such-mode", &["fatal: arp_start: there is no such mode"]);
}

#[test]
fn files_that_cannot_be() {
    let problem =
        "io: cannot create no/such/folder/data.arp: No such file or directory (os error 2)";
    check_without_data("no-such-folder", &[problem]);
    let problem = "io: cannot open data.arp: No such file or directory (os error 2)";
    check_without_data("nothing-to-play", &[problem]);
}

#[test]
fn callbacks_that_enter_sections() {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    let text = here.succeed(&["reenter"]);
    let problem = "non-fatal: thread 1: section 7 is entered or left from within a callback or a signal handler; not recorded";
    assert_eq!(text.lines().collect::<Vec<_>>(), [problem; 2]);
    assert_eq!(here.records("data.arp").len(), 1);
}

#[test]
fn too_many_open_sections() {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    let text = here.succeed(&["deep"]);
    let problem = "non-fatal: thread 1: too many open sections at section 3; it is not recorded";
    assert!(text.lines().all(|line| line == problem));
    assert_eq!(text.lines().count(), 4_000);
    assert_eq!(here.records("data.arp"), list(&[("9@0", 1.0)]));
}

#[test]
fn a_forked_child_has_its_own_file() {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    assert_eq!(here.succeed(&["fork"]), "");
    let parent = list(&[("3@0 1@0", 1.0), ("3@0 1@1", 1.0), ("9@0", 1.0)]);
    assert_eq!(here.records("data.arp"), parent);
    let names = here.folder.path().read_dir().expect("the folder").flatten();
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    let child: Vec<_> = names.filter(|name| name.starts_with("data.arp.")).collect();
    assert_eq!(child.len(), 1, "{child:?}");
    // The child continues in the open section, with its counters.
    let expected = list(&[("3@0 2@0", 1.0), ("3@0 1@1", 1.0)]);
    assert_eq!(here.records(&child[0]), expected);
}

#[test]
fn a_program_that_exits_without_finish() {
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    here.succeed(&["no-finish"]);
    assert_eq!(here.records("data.arp"), list(&[("1@0", 1.0)]));
}

#[test]
fn without_an_error_callback() {
    for (what, message) in [
        (
            "leave-without-enter",
            "arp: error: thread 1: section 3 is left, but it is not open",
        ),
        (
            "nested-kernels",
            "arp: error: thread 1: kernel 4 is entered within kernel 3",
        ),
        (
            "recursive-function",
            "arp: error: thread 1: section 3 is entered while it is open",
        ),
        (
            "unknown-section",
            "arp: error: thread 1: section 10 is above",
        ),
        (
            "joined-twice",
            "arp: error: thread 2: joined, but it was not spawned",
        ),
        (
            "start-twice",
            "arp: error: arp_add_callbacks: called after arp_start",
        ),
    ] {
        check_default(what, message, true);
    }
    check_default(
        "no-such-mode",
        "arp: error: arp_start: there is no such mode",
        false,
    );
    check_default(
        "no-such-folder",
        "arp: error: cannot create no/such/folder/data.arp",
        false,
    );
    // Warnings do not end the program.
    let here = Program {
        folder: tempfile::tempdir().expect("a folder"),
    };
    std::os::unix::fs::symlink(program().path("program"), here.path("program")).expect("a link");
    let output = here.run(&["cancel", "default"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("arp: warning: thread 2: ended with sections 6, 2 open"),
        "{text}"
    );
}
