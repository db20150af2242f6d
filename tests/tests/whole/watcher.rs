//! Reports of programs that are killed, or that go on: what the watcher does, and that nobody meets it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use atom_tests::atom;
use atom_tests::counts::Symbols;

use super::Place;

/// The program and a command that runs it by `atom run` with these words before the tool.
fn watched(name: &str, words: &[&str], arguments: &[&str]) -> (Place, Command) {
    let place = Place::new(name);
    place.program("gcc", "watched.c", &["-fno-inline", "-pthread"]);
    let mut command = Command::new(atom::command().unwrap());
    command
        .arg("run")
        .args(words)
        .args(["icount", "--format", "tsv"]);
    command.args(["--per", "instruction", "--output", "report-0", "--"]);
    command.arg(place.original()).args(arguments);
    command.current_dir(&place.folder);
    command.env("XDG_CACHE_HOME", place.folder.join("cache"));
    (place, command)
}

/// How often `worked` was entered, as a report says.
fn worked(place: &Place, report: &str) -> u64 {
    worked_if_there(place, report).unwrap()
}

fn worked_if_there(place: &Place, report: &str) -> atom_tests::error::Result<u64> {
    let symbols = Symbols::read(&place.original());
    let address = symbols.address("worked").unwrap();
    let counts = atom_tests::whole::read(&place.folder.join(report))?;
    Ok(counts.get(&format!("{address:#x}")).copied().unwrap_or(0))
}

/// The program's own output is the same as the original's.
fn sees_the_same(place: &Place, found: &Output, arguments: &[&str]) {
    let mut original = Command::new(place.original());
    original.args(arguments).current_dir(&place.folder);
    let original = original.output().unwrap();
    let text = |o: &Output| String::from_utf8_lossy(&o.stdout).into_owned();
    assert_eq!(text(found), text(&original));
    assert_eq!(found.status.code(), original.status.code(), "{found:?}");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(found.status.signal(), original.status.signal());
}

#[test]
fn a_killed_process_reports() {
    for way in ["kill", "deep", "exit", "exec", "return"] {
        let (place, mut command) = watched(&format!("watched-{way}"), &[], &[way]);
        let ran = command.output().unwrap();
        sees_the_same(&place, &ran, &[way]);
        assert_eq!(worked(&place, "report-0"), 1000, "{way}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.lines().any(|l| l == "report: report-0"), "{said}");
    }
}

#[test]
fn a_program_alone_that_is_killed_reports() {
    for way in ["kill", "deep", "exit"] {
        let (place, mut command) = watched(&format!("watched-own-{way}"), &["--own"], &[way]);
        let ran = command.output().unwrap();
        sees_the_same(&place, &ran, &[way]);
        assert_eq!(worked(&place, "report-0"), 1000, "{way}");
    }
}

/// Reports in between change nothing of the report at the end.
#[test]
fn reports_in_intervals_leave_the_counts_exact() {
    let words = ["--every", "20ms"];
    let (place, mut command) = watched("watched-every", &words, &["threads"]);
    let (now, copy) = (place.folder.join("report-0.now"), place.folder.join("copy"));
    let mut between = 0;
    let ran = std::thread::scope(|scope| {
        let run = scope.spawn(|| command.output().unwrap());
        while !run.is_finished() {
            // Each report replaces the one before, so what is read may be a part of one.
            if std::fs::copy(&now, &copy).is_ok() {
                between = between.max(worked_if_there(&place, "copy").unwrap_or(0));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        run.join().unwrap()
    });
    sees_the_same(&place, &ran, &["threads"]);
    let last = worked(&place, "report-0");
    assert!(last > 0 && last.is_multiple_of(4000), "{last}");
    assert!((1..=last).contains(&between), "{between} of {last}");
    // The report of the end replaces them all.
    assert!(!now.exists());
}

#[test]
fn a_signal_asks_for_a_report() {
    let go_on = |place: &Place| place.folder.join("go-on");
    let (place, mut command) = watched(
        "watched-signal",
        &["--report-on", "USR1"],
        &["stop", "go-on"],
    );
    std::fs::write(go_on(&place), "").unwrap();
    let mut child = command.spawn().unwrap();
    let report = place.folder.join("report-0.now");
    let start = Instant::now();
    while !is_whole(&report) {
        assert!(start.elapsed() < Duration::from_secs(60), "no report");
        std::thread::sleep(Duration::from_millis(100));
        let number = child.id().to_string();
        // The signal would end a process that does not handle it yet.
        if has_handler(&number) {
            let sent = Command::new("kill").args(["-USR1", &number]).status();
            assert!(sent.unwrap().success());
        }
    }
    assert_eq!(worked(&place, "report-0.now"), 1000);
    std::fs::remove_file(go_on(&place)).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(worked(&place, "report-0"), 1000);
}

/// True if a file has something in it and does not grow.
fn is_whole(file: &Path) -> bool {
    let size = |file: &Path| std::fs::metadata(file).map_or(0, |m| m.len());
    let before = size(file);
    std::thread::sleep(Duration::from_millis(50));
    before != 0 && before == size(file)
}

/// True if a process handles SIGUSR1.
fn has_handler(process: &str) -> bool {
    const USR1: u64 = 1 << 9;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & USR1 != 0)
}
