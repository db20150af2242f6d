//! Meaning of the points: calls before and after procedures and after call
//! instructions are made as often as the source says, in the order of their addition.

use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::source::Source;

/// `(name, before, after, calls that came back)` as the source states them.
fn stated(path: &Path) -> Vec<(String, [u64; 3])> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|l| l.strip_prefix("// point: "));
    let stated = lines.map(|line| {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
        (name.to_owned(), numbers.try_into().unwrap())
    });
    stated.collect()
}

/// The counters of a name.
type Counts<'a> = &'a dyn Fn(&str) -> Vec<u64>;

/// Builds and runs a source with the tool `points`; `more` checks each result further.
fn check(name: &str, more: &dyn Fn(&str, Counts<'_>)) {
    let source = Source::named(name).unwrap();
    let stated = stated(&source.path);
    assert!(!stated.is_empty());
    let target = atom_tests::cache::target_folder().unwrap();
    let folder = target.join("test-programs").join("points").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for variant in &source.variants {
        let program = folder.join(&variant.0);
        source.build(variant, &program).unwrap();
        let (out, result) = (
            program.with_extension("out"),
            program.with_extension("points"),
        );
        let options = ["--output".to_owned(), result.to_string_lossy().into_owned()];
        let job = Job::Tool("points".to_owned(), options.to_vec());
        atom::instrument(&program, &out, &job, true).unwrap();
        let mut command = Command::new(&out);
        plain_environment(&mut command);
        run(&mut command, &Setting::default()).unwrap();
        let text = std::fs::read_to_string(&result).unwrap();
        let row = |name: &str| -> Vec<u64> {
            let line = text.lines().find(|l| l.split(' ').next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("{}: no {name}", variant.0));
            line.split(' ')
                .skip(1)
                .map(|n| n.parse().unwrap())
                .collect()
        };
        for (name, [before, after, calls]) in &stated {
            let row = row(name);
            let seen = [row[0], row[1], row[3]];
            assert_eq!(seen, [*before, *after, *calls], "{} {name}", variant.0);
            assert_eq!(row[4], 0, "{} {name}: order of calls", variant.0);
            assert_eq!(row[5..], [0, 0], "{} {name}: ways", variant.0);
        }
        more(&variant.0, &row);
    }
}

#[test]
fn points_are_passed_as_often_as_the_source_says() {
    check("points.c", &|variant, row| {
        // A procedure that it calls calls exit, so no call after it is made.
        assert_eq!(row("main")[..2], [1, 0], "{variant}");
    });
}

#[test]
fn a_process_ends_by_exec_and_goes_on_if_that_fails() {
    check("exec.c", &|variant, row| {
        assert_eq!(row("main")[..2], [1, 0], "{variant}");
    });
}

/// A tool that adds to a sum on each way out of a block, which changes all flags.
const WAYS: [(&str, &str); 2] = [
    (
        "ways.inst.c",
        r#"
#include <atom.h>
void Instrument(int argc, char **argv, Obj *obj) {
    AddCallProto("Pass(REGV)");
    AddCallProto("Tell()");
    for (Proc *p = GetFirstProc(); p; p = GetNextProc(p))
        for (Block *b = GetFirstBlock(p); b; b = GetNextBlock(b)) {
            if (BlockHasWay(b, WayTaken)) AddCallWay(b, WayTaken, "Pass", REG_RSP);
            if (BlockHasWay(b, WayFalling)) AddCallWay(b, WayFalling, "Pass", REG_RSP);
        }
    AddCallProgram(ProgramAfter, "Tell");
}
"#,
    ),
    (
        "ways.anal.c",
        r#"
#include <stdio.h>
static unsigned long sum;
void Pass(long sp) { sum += 1 + (sp & 7); }
void Tell(void) { fprintf(stderr, "%d\n", sum > 50); }
"#,
    ),
];

/// A conditional branch that leaves its procedure, in code whose flags outlive calls: the program runs as before, and
/// the check of the output knows that these flags matter to other callers only.
#[test]
fn a_branch_leaves_its_procedure() {
    let source = Source::named("order.S").unwrap();
    let folder = atom_tests::cache::folder("ways");
    let sources = WAYS.map(|(name, text)| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    });
    for variant in &source.variants {
        let (program, out) = (folder.join(&variant.0), folder.join("out"));
        source.build(variant, &program).unwrap();
        let mut command = Command::new(atom::command().unwrap());
        command.arg(&program).args(&sources);
        let done = command.args(["--check", "-q", "-o"]).arg(&out).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}: {done:?}", variant.0);
        let [before, after] = [program, out].map(|program| {
            let mut command = Command::new(program);
            plain_environment(&mut command);
            run(&mut command, &Setting::default()).unwrap()
        });
        assert_eq!(before.end, after.end, "{}", variant.0);
        assert_eq!(before.stdout, after.stdout, "{}", variant.0);
        assert_eq!(after.stderr, b"1\n", "{}", variant.0);
    }
}
