//! Programs that find libraries by the folder of their own file (`$ORIGIN`): the output finds the same
//! ones wherever it lies.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;
use atom_tests::programs;

const LIBRARY: &str = "int answer(void) { return 42; }\n";
/// Opens the library by its name, too: the search path of the opener counts.
const PROGRAM: &str = "#include <stdio.h>\n#include <dlfcn.h>\nint answer(void);\n\
    int main(void) { printf(\"%d %d\\n\", answer(), dlopen(\"libother.so\", RTLD_NOW) != 0); \
    return 0; }\n";

fn compile(compiler: &str, source: &Path, out: &Path, more: &[&str]) {
    let mut command = Command::new(compiler);
    command.arg("-O1").arg(source).arg("-o").arg(out).args(more);
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{output:?}");
}

/// A program in `PLACE/app`, with its libraries in `PLACE/app/lib`.
fn program(place: &Path, compiler: &str, more: &[&str]) -> PathBuf {
    let libraries = place.join("app/lib");
    std::fs::create_dir_all(&libraries).unwrap();
    std::fs::create_dir_all(place.join("elsewhere")).unwrap();
    let (library, source) = (place.join("library.c"), place.join("program.c"));
    std::fs::write(&library, LIBRARY).unwrap();
    std::fs::write(&source, PROGRAM).unwrap();
    for name in ["libanswer.so", "libother.so"] {
        let soname = format!("-Wl,-soname,{name}");
        let shared = ["-shared", "-fPIC", &soname];
        compile(compiler, &library, &libraries.join(name), &shared);
    }
    let program = place.join("app/program");
    let folder = format!("-L{}", libraries.display());
    let flags = [&[folder.as_str(), "-lanswer", "-ldl"], more].concat();
    compile(compiler, &source, &program, &flags);
    program
}

fn run(program: &Path) -> Output {
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.output().expect("the program runs")
}

fn fresh(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("origin")
        .join(name);
    if place.exists() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    place
}

fn check(name: &str, compiler: &str, more: &[&str]) {
    let place = fresh(name);
    let program = program(&place, compiler, more);
    assert_eq!(run(&program).stdout, b"42 1\n", "{name}");
    // By a symbolic link, which does not count.
    let link = place.join("elsewhere/link");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let counts = place.join("counts").to_string_lossy().into_owned();
    let icount = Job::Tool("icount".into(), vec!["--output".into(), counts]);
    for job in [Job::Empty, Job::Moved, icount] {
        let output = place.join("elsewhere/program");
        atom::instrument(&link, &output, &job, true).unwrap();
        let ran = run(&output);
        assert_eq!(ran.stdout, b"42 1\n", "{name}: {ran:?}");
        // In its own folder the output moves as the original does.
        let beside = place.join("app/program.atom");
        atom::instrument(&program, &beside, &job, true).unwrap();
        let moved = place.join("moved");
        std::fs::rename(place.join("app"), &moved).unwrap();
        let ran = run(&moved.join("program.atom"));
        assert_eq!(ran.stdout, b"42 1\n", "{name}: {ran:?}");
        std::fs::rename(&moved, place.join("app")).unwrap();
    }
    // The section headers agree with the dynamic section.
    let read = |file: &Path| {
        let mut command = Command::new("readelf");
        let command = command.args(["-W", "-d", "--dyn-syms"]).arg(file);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let text = read(&place.join("elsewhere/program"));
    let path = std::fs::canonicalize(place.join("app")).unwrap();
    assert!(
        text.contains(&format!("[{}/lib]", path.display())),
        "{text}"
    );
    assert!(text.contains(" answer"), "{text}");
}

const RUNPATH: [&str; 2] = ["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/lib"];
const RPATH: [&str; 2] = ["-Wl,--disable-new-dtags", "-Wl,-rpath,${ORIGIN}/lib"];

#[test]
fn runpath() {
    check("runpath", "gcc", &RUNPATH);
    check(
        "runpath-fixed",
        "gcc",
        &[&RUNPATH[..], &["-no-pie"]].concat(),
    );
}

#[test]
fn rpath() {
    check("rpath", "gcc", &RPATH);
    check("rpath-fixed", "gcc", &[&RPATH[..], &["-no-pie"]].concat());
    check("rpath-strip", "gcc", &[&RPATH[..], &["-s"]].concat());
}

#[test]
fn musl() {
    programs::needed("musl-gcc");
    check("musl", "musl-gcc", &RUNPATH);
}

#[test]
fn a_folder_that_cannot_be_named_is_told() {
    let place = fresh("told").join("with:colon");
    let program = program(&place, "gcc", &RUNPATH);
    let mut command = Command::new(atom::command().unwrap());
    let output = place.join("elsewhere/program");
    let made = command.arg(&program).arg("-o").arg(&output).output();
    let said = String::from_utf8(made.unwrap().stderr).unwrap();
    assert!(said.contains("$ORIGIN"), "{said}");
    assert!(said.contains("colon"), "{said}");
    let beside = place.join("app/beside");
    let mut command = Command::new(atom::command().unwrap());
    let made = command.arg(&program).arg("-o").arg(&beside).output();
    let said = String::from_utf8(made.unwrap().stderr).unwrap();
    assert!(!said.contains("$ORIGIN"), "{said}");
}
