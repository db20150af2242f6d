//! Processes that forbid themselves system calls by seccomp. What the runtime does at the end must not kill them.

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
