//! Processes that forbid themselves system calls by seccomp. What the runtime does at the end must not kill them.

use atom_tests::outcome::{Setting, run};

use super::Place;

/// Number of reports of a run, which are removed.
fn reports(place: &Place) -> usize {
    let files = std::fs::read_dir(&place.folder).unwrap();
    let mut count = 0;
    for path in files.map(|file| file.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("report-") && !name.ends_with(".profile") {
            count += 1;
            std::fs::remove_file(path).unwrap();
        }
    }
    count
}

#[test]
fn a_process_that_may_not_report_ends_as_the_original() {
    for (name, flags) in [("sandbox", &[][..]), ("sandbox-static", &["-static"])] {
        let place = Place::new(name);
        place.program("gcc", "sandbox.c", flags);
        place.instrument(&[]);
        // The filter of the way 1 forbids nothing that a report needs.
        for (way, own, with_child) in [("0", 0, 1), ("1", 1, 2), ("2", 0, 1), ("3", 0, 1)] {
            place.same(&[way]);
            assert_eq!(reports(&place), own, "{name} {way}");
            place.same(&[way, "child"]);
            assert_eq!(reports(&place), with_child, "{name} {way} child");
        }
    }
}

/// A process that forbids itself to open files by Landlock leaves its reports and traces.
#[test]
fn a_process_that_may_not_open_files_reports() {
    for (name, flags) in [
        ("landlock", &["-pthread"][..]),
        ("landlock-static", &["-pthread", "-static"]),
    ] {
        let place = Place::new(name);
        place.program("gcc", "landlock.c", flags);
        place.instrument(&[]);
        for (way, with_child) in [("itself", 1), ("child", 2), ("thread", 1), ("exec", 1)] {
            place.same(&[way]);
            assert_eq!(reports(&place), with_child, "{name} {way}");
        }
    }
}

/// What tools write while such a process runs is cut, which they say; all other effects of the process are the original's.
#[test]
fn a_process_in_strict_mode_ends_as_the_original_with_a_cut_log() {
    for (name, flags, options) in [
        ("confined", &[][..], &["--libs"][..]),
        ("confined-static", &["-static"], &[]),
    ] {
        let place = Place::new(name);
        place.program("gcc", "confined.c", flags);
        let outcome = |file: &std::path::Path| {
            let mut command = place.command(file, &[]);
            command.current_dir(&place.folder);
            run(&mut command, &Setting::default()).unwrap()
        };
        let original = outcome(&place.original());
        for (tool, is_cut) in [("memtrace", true), ("calllog", false), ("calltree", false)] {
            place.instrument_by(tool, options);
            let found = outcome(&place.bundle());
            let told = String::from_utf8_lossy(&found.stderr);
            assert_eq!(found.end, original.end, "{name} {tool}: {told}");
            assert_eq!(found.stdout, original.stdout, "{name} {tool}");
            assert_eq!(
                told.contains("cannot write"),
                is_cut,
                "{name} {tool}: {told}"
            );
        }
    }
}
