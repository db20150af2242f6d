//! A shared object that is instrumented alone, for a program that is not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_tests::atom::{self, Job};
use atom_tests::outcome::plain_environment;

/// Calls of `fib` for one execution of `fib(15)`.
const CALLS: u64 = 1973;
/// Calls of `fib` for one execution of `fib(10)`.
const LAST_CALLS: u64 = 177;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::remove_dir_all(&folder).unwrap_or_default();
    std::fs::create_dir_all(folder.join("new")).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries");
    let compile = |compiler: &str, flags: &[&str], source: &str, out: &str| {
        let mut command = Command::new(compiler);
        command
            .arg("-O2")
            .args(flags)
            .arg("-o")
            .arg(folder.join(out));
        let made = command.arg(sources.join(source)).status();
        assert!(made.expect("the compiler runs").success(), "{source}");
    };
    // Without these optimisations a call in the source is a call in the program.
    let plain = [
        "-shared",
        "-fPIC",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
        "-fno-tree-vrp",
    ];
    let plain = [&plain[..], &["-fno-tree-tail-merge", "-fno-ipa-cp", "-O1"]].concat();
    compile("g++", &plain, "alone.cc", "libalone.so");
    compile("gcc", &["-pthread"], "alone.c", "alone");
    folder
}

fn run(folder: &Path, library: &str, more: &[&str]) -> Output {
    let mut command = Command::new(folder.join("alone"));
    plain_environment(&mut command);
    command.arg(folder.join(library)).args(more);
    let output = command.current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output
}

/// The number in the row of a procedure.
fn entries(report: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(report).unwrap();
    let row = text.lines().find(|l| {
        l.split_whitespace()
            .any(|w| w.split('(').next() == Some(name))
    });
    let row = row.unwrap_or_else(|| panic!("no {name}: {text}"));
    let number = row.split_whitespace().next().unwrap_or_default();
    number.replace(',', "").parse().unwrap()
}

#[test]
fn a_library_is_instrumented_for_a_program_that_is_not() {
    let folder = folder("alone");
    let options = ["--entries", "--output", "counts"];
    let job = Job::Tool("prof".into(), options.map(String::from).to_vec());
    let (library, rewritten) = (folder.join("libalone.so"), folder.join("new/libalone.so"));
    atom::instrument(&library, &rewritten, &job, true).unwrap();
    for more in [&[][..], &["stay"]] {
        let original = run(&folder, "libalone.so", more);
        let found = run(&folder, "new/libalone.so", more);
        let text = |o: &Output| String::from_utf8_lossy(&o.stdout).into_owned();
        assert_eq!(text(&found), text(&original));
        assert_eq!(text(&found).matches("gone").count(), 2, "{found:?}");
    }
    // Each time that the library was unloaded it has reported: twice, then twice and once at the end.
    let last = folder.join("counts");
    assert_eq!(entries(&last, "fib"), LAST_CALLS);
    for number in 1..=4 {
        let report = folder.join(format!("counts.{number}"));
        assert_eq!(entries(&report, "fib"), 4 * CALLS, "{number}");
        assert_eq!(entries(&report, "thrower"), 8, "{number}");
        assert_eq!(entries(&report, "start"), 1, "{number}");
    }
    assert!(!folder.join("counts.5").exists());
}

/// Libraries of the distribution, in programs that do their work in them.
#[test]
fn libraries_of_the_distribution() {
    let folder = folder("alone-real");
    let input = folder.join("input");
    std::fs::write(&input, std::fs::read("/bin/sh").unwrap()).unwrap();
    let input = input.display().to_string();
    let compress =
        "import sys, zlib; print(zlib.crc32(zlib.compress(open(sys.argv[1], 'rb').read())))";
    let cases: [(&str, &[&str]); 3] = [
        ("libbz2.so.1.0", &["bzip2", "-kc", &input]),
        ("libz.so.1", &["/usr/bin/python3", "-c", compress, &input]),
        ("libcrypto.so.3", &["openssl", "dgst", "-sha256", &input]),
    ];
    for (library, words) in cases {
        let original = Path::new("/usr/lib/x86_64-linux-gnu").join(library);
        let report = folder.join(format!("{library}-%p"));
        let job = Job::Icount(report);
        atom::instrument(&original, &folder.join("new").join(library), &job, true).unwrap();
        let run = |libraries: &Path| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env("LD_LIBRARY_PATH", libraries);
            command.output().unwrap()
        };
        let (before, after) = (run(&folder.join("none")), run(&folder.join("new")));
        assert!(
            before.status.success() && before == after,
            "{library}: {after:?}"
        );
        let wrote = std::fs::read_dir(&folder).unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().starts_with(&format!("{library}-"))
        });
        assert!(wrote, "{library} left no report");
    }
}
