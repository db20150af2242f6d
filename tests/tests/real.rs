//! Exact counts on programs as the distribution ships them, stripped: every
//! instruction and every conditional branch of their own text, on small inputs.
//!
//! Not every program can be here: grep and diff look for their stack in
//! /proc/self/maps, which has more lines after a rewrite; lua seeds its hashes
//! with the time.

use std::path::PathBuf;
use std::process::Command;

use atom_tests::atom::{self, Job};
use atom_tests::counts::{
    Missed, Symbols, compare_branch, compare_icount, read_branch, read_icount,
};
use atom_tests::outcome::{Setting, plain_environment, run};
use atom_tests::programs;
use atom_tests::stepper::{self, Options, Profile};

/// Runs `program` with the stepper and with both tools. The address spaces of all three runs
/// must agree. `share` is the smallest allowed percentage of executed instructions
/// in procedures that were understood.
fn exact(program: &str, args: &[&str], files: &[(&str, &str)], share: f64) {
    let file = programs::needed(program);
    let folder = atom_tests::cache::folder(&format!("real-{program}"));
    // The paths have the same length, because they move the stack.
    let place = |part: &str| folder.join(part).join(program);
    for part in ["orig0", "icnt0", "brnch"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
    }
    std::fs::copy(&file, place("orig0")).unwrap();
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let command = |path: &PathBuf| {
        let mut command = Command::new(path);
        plain_environment(&mut command);
        command.args(args).current_dir(&folder);
        command
    };
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    let mut stepped = command(&place("orig0"));
    stepped
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let truth: Profile = stepper::run(&place("orig0"), &mut stepped, options).unwrap();
    let symbols = Symbols::read(&file);
    for (part, icount) in [("icnt0", true), ("brnch", false)] {
        let pattern = folder.join("figures-%p");
        let job = if icount {
            Job::Icount(pattern)
        } else {
            Job::Branch(pattern)
        };
        let made = atom::instrument(&place("orig0"), &place(part), &job, true).unwrap();
        let missed = Missed::from_report(&made.report);
        let setting = Setting {
            fixed_addresses: true,
            ..Setting::default()
        };
        let outcome = run(&mut command(&place(part)), &setting).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&outcome.stdout),
            String::from_utf8_lossy(&truth.stdout),
            "{program} {part}"
        );
        let figures = folder.join(format!("figures-{}", outcome.pid));
        let wrong = if icount {
            compare_icount(
                truth.main(),
                &read_icount(&figures).unwrap(),
                &symbols,
                &missed,
            )
        } else {
            compare_branch(
                truth.main(),
                &read_branch(&figures).unwrap(),
                &symbols,
                &missed,
            )
        };
        assert!(wrong.is_none(), "{program} {part}: {}", wrong.unwrap());
        std::fs::remove_file(&figures).unwrap();
        let total: u64 = truth.main().counts.values().sum();
        let known = truth
            .main()
            .counts
            .iter()
            .filter(|(a, _)| missed.around(**a).is_none())
            .map(|(_, n)| n)
            .sum::<u64>();
        assert!(total > 1000, "{program} hardly ran: {total} instructions");
        let percent = known as f64 * 100.0 / total as f64;
        assert!(
            percent >= share,
            "{program}: only {percent:.2} % of {total} instructions are in procedures understood"
        );
    }
}

const TEXT: &str = "the quick brown fox jumps over the lazy dog\nthe slow red hen sits under the busy cat\n\
                    every good boy deserves fudge and the fox gets nothing at all\n";

#[test]
fn gzip() {
    exact(
        "gzip",
        &["-9", "-n", "-c", "input"],
        &[("input", TEXT)],
        100.0,
    );
}

#[test]
fn sed() {
    exact(
        "sed",
        &[
            "-n",
            "-e",
            "s/\\([a-z]*\\) fox/<\\1>/p;$=;y/abc/xyz/;2{p;h};3{G;p}",
            "input",
        ],
        &[("input", TEXT)],
        100.0,
    );
}

#[test]
fn dash() {
    let script = "i=0; s=\nwhile [ $i -lt 25 ]; do i=$((i + 1)); case $i in *3) s=\"$s<$i>\" ;; *[02468]) : ;; *) s=${s%>*}. ;; esac; done\n\
                  f() { echo \"$1 $# ${2:-none}\"; }; f a; f b c; trap 'echo end' EXIT; echo \"$s\"; exit 0\n";
    exact("dash", &["script"], &[("script", script)], 100.0);
}

#[test]
fn bc() {
    exact(
        "bc",
        &["-q", "script"],
        &[(
            "script",
            "scale=12\nsqrt(2)\n2^70 % 1009\nfor (i = 0; i < 5; ++i) i*i\nquit\n",
        )],
        100.0,
    );
}

#[test]
fn mawk() {
    let script = "{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) if (n[w] > 1) s += n[w] * length(w); printf \"%d %.3f %s\\n\", s, sqrt(s), toupper(substr($0, 3, 5)) }";
    exact("mawk", &[script, "input"], &[("input", TEXT)], 100.0);
}

#[test]
fn readelf() {
    exact("readelf", &["-h", "-l", "-W", "orig0/readelf"], &[], 99.0);
}
