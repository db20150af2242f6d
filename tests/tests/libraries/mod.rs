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
    let run = |command: &mut Command| {
        plain_environment(command);
        command.env("XDG_CACHE_HOME", folder.join("cache"));
        let output = command.current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"0 wrong\n");
    };
    run(&mut Command::new(&program));
    run(&mut Command::new(&rewritten));
    assert_eq!(entries_of_work(&folder), "25,000");
    // The whole process opens the library later: first while it runs, then from a link elsewhere.
    let link = folder.join("elsewhere/opens");
    std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
    if !link.exists() {
        std::os::unix::fs::symlink(&program, &link).unwrap();
    }
    for file in [&program, &link] {
        for more in [&["--no-late"][..], &["--fresh"], &[]] {
            let mut command = Command::new(atom::command().unwrap());
            command.args(["run", "-q"]).args(more).arg("prof");
            run(command.args(options).arg("--").arg(file));
            assert_eq!(entries_of_work(&folder), "25,000", "{more:?}");
        }
    }
}

/// How often `work` was entered, as the report tells it. The report is removed.
fn entries_of_work(folder: &Path) -> String {
    let file = folder.join("counts");
    let counts = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let mut lines = counts.lines();
    let work = lines.find(|l| l.split_whitespace().any(|w| w == "work"));
    let work = work.and_then(|l| l.split_whitespace().next());
    work.unwrap_or(&counts).to_owned()
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
