//! Threads, children and executed programs: the loop of a library is counted exactly in each process.

use std::path::PathBuf;

use super::Place;

/// Ways of `processes.c`, and the number of turns of the loop in each process that reports. A child
/// begins with 0.
const WAYS: [(&str, &[u64]); 12] = [
    ("threads", &[8028]),
    ("detached", &[500]),
    ("main-ends", &[107]),
    ("fork", &[20, 40]),
    ("fork-killed", &[0, 20]),
    ("fork-threads", &[50, 400]),
    ("vfork", &[16]),
    ("spawn", &[12]),
    ("exec", &[10]),
    ("exec-fails", &[15]),
    ("exec-self", &[10, 10]),
    ("exec-thread", &[10]),
];

fn program(name: &str, compiler: &str, flags: &[&str]) -> (Place, PathBuf) {
    let place = Place::new(name);
    let more = ["-DNAME=linked", "-Wl,-soname,liblinked.so"];
    let library = place.library("library.c", "liblinked.so", &more);
    let mut all = place.link();
    all.extend(flags.iter().map(|f| f.to_string()));
    all.push("-llinked".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    place.program(compiler, "processes.c", &all);
    (place, library)
}

fn ways(name: &str, compiler: &str, flags: &[&str]) {
    let (place, library) = program(name, compiler, flags);
    place.instrument(&[]);
    for (way, expected) in WAYS {
        place.same(&[way]);
        let found = place.executed(&library, "loop_body_linked");
        assert_eq!(found, expected, "{name} {way}");
    }
}

#[test]
fn each_process_counts_its_own() {
    ways("processes", "gcc", &[]);
}

#[test]
fn fixed_and_stripped() {
    ways("processes-fixed", "gcc", &["-no-pie", "-s"]);
}

#[test]
fn built_by_clang() {
    ways("processes-clang", "clang", &["-Wl,-z,lazy"]);
}
