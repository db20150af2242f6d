//! OpenSSL's libcrypto, linked statically: megabytes of hand-written assembly with data in the
//! text, computed jumps, frames that no compiler makes.

use std::path::Path;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts;
use atom_tests::outcome::{Setting, plain_environment, run};

fn check(flags: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crypto{}", flags[0]));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("libcrypto");
    let made = Command::new("gcc")
        .args(["-O2", "-o"])
        .args([
            &program,
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crypto/libcrypto.c"),
        ])
        .args(flags)
        .arg("-lcrypto")
        .status();
    assert!(made.expect("gcc runs").success());
    let outcome = |program: &Path| {
        let mut command = Command::new(program);
        plain_environment(&mut command);
        command.current_dir(&folder);
        run(&mut command, &Setting::default()).unwrap()
    };
    let before = outcome(&program);
    assert!(before.stdout.len() > 1000, "{before:?}");
    let tool = |words: &str| {
        let mut words = words.split(' ').map(String::from);
        Job::Tool(words.next().unwrap(), words.collect())
    };
    // All counts by two ways in one run.
    let flow = folder.join("flow");
    let judged = ["--output".into(), flow.display().to_string()].to_vec();
    let jobs = [
        Job::Moved,
        tool("icount"),
        tool("branch"),
        tool("cache --preset atom"),
        Job::Tool("flowjudge".into(), judged),
    ];
    for job in jobs {
        let rewritten = folder.join("rewritten");
        atom::instrument(&program, &rewritten, &job, true).unwrap();
        let after = outcome(&rewritten);
        assert_eq!(before.stdout, after.stdout, "{job:?}");
        assert_eq!(before.end, after.end, "{job:?}");
    }
    let counted = counts::read_flow(&flow).unwrap();
    assert!(counted > 1000, "{counted}");
}

#[test]
fn static_() {
    check(&["-static"]);
}

#[test]
fn static_pie() {
    check(&["-static-pie", "-fPIE"]);
}
