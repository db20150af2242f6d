//! Libraries may do things that inserted code must cope with: they set the base of gs, by which the counters of
//! a thread are found otherwise. And a library may be instrumented alone.

mod alone;

use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;

/// Whether user code may execute `wrgsbase` here.
fn has_fsgsbase() -> bool {
    // SAFETY: the call only reads.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}

fn check(name: &str, flags: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries");
    let (program, rewritten) = (folder.join("opens"), folder.join("opens.prof"));
    let gcc = |out: &Path, source: &str, more: &[&str]| {
        let mut command = Command::new("gcc");
        command.arg("-O2").args(more).arg("-o").arg(out);
        let made = command.arg(sources.join(source)).status();
        assert!(made.expect("gcc runs").success(), "{source}");
    };
    let shared = [&["-shared", "-fPIC"], flags].concat();
    gcc(&folder.join("libsandbox.so"), "sandbox.c", &shared);
    gcc(&program, "opens.c", &["-pthread", "-Wl,-rpath,$ORIGIN"]);

    let options = ["--entries", "--output", "counts"];
    let job = Job::Tool("prof".into(), options.map(String::from).to_vec());
    atom::instrument(&program, &rewritten, &job, true).unwrap();
    for program in [&program, &rewritten] {
        let mut command = Command::new(program);
        plain_environment(&mut command);
        let output = command.current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"0 wrong\n");
    }
    let counts = std::fs::read_to_string(folder.join("counts")).unwrap();
    let work = counts
        .lines()
        .find(|l| l.split_whitespace().any(|w| w == "work"));
    let work = work.and_then(|l| l.split_whitespace().next());
    assert_eq!(work, Some("25,000"), "{counts}");
}

#[test]
fn gs_is_left_to_a_library() {
    if has_fsgsbase() {
        check("gs", &[]);
    } else {
        println!("skipped: wrgsbase is not allowed here");
    }
    check("gs-by-call", &["-DBY_CALL"]);
}
