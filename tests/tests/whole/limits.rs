//! Programs that limit their own address space have as much of it as the originals, and see the limits that they set.

use std::process::Command;

use atom_tests::atom;

use super::Place;

/// Tools whose data is small, large, and larger than any limit. The last has an allocator of its own for the program, so that
/// sizes differ.
const TOOLS: [&str; 3] = ["icount", "dtb", "memcheck"];

/// Arguments with which the program limits its address space, and what it may write of it.
const WAYS: [&[&str]; 2] = [&[], &["data"]];

#[test]
fn a_program_has_the_address_space_that_it_allows_itself() {
    let builds = [
        ("gcc", &["-pthread"][..]),
        ("musl-gcc", &[]),
        ("gcc", &["-pthread", "-static"]),
    ];
    for (i, (compiler, flags)) in builds.into_iter().enumerate() {
        let place = Place::new(&format!("limits{i}"));
        place.program(compiler, "limited.c", flags);
        let said = |before: &[&str], way: &[&str]| said(&place, before, way);
        let atom = atom::command().unwrap();
        for way in WAYS {
            let expected = said(&[], way);
            let end = "in the end: 52428800 73400320, 0 0";
            assert!(expected.contains(end), "{expected}");
            for tool in TOOLS {
                let run = [
                    atom.to_str().unwrap(),
                    "run",
                    "-q",
                    "--children",
                    tool,
                    "--",
                ];
                let found = said(&run, way);
                let what = format!("{compiler} {flags:?} {tool} {way:?}");
                if tool == "memcheck" {
                    assert_eq!(sizeless(&found), sizeless(&expected), "{what}");
                } else {
                    assert_eq!(found, expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn memory_is_locked_within_the_limits_of_the_program_itself() {
    let atom = atom::command().unwrap();
    for (i, flags) in [&[][..], &["-static"]].into_iter().enumerate() {
        let place = Place::new(&format!("locked{i}"));
        place.program("gcc", "locked.c", flags);
        let expected = said(&place, &[], &[]);
        for end in [
            "flags 3: locked",
            "8388608, flags 3: locked",
            "4096, flags 1: Cannot allocate",
        ] {
            assert!(expected.contains(end), "{expected}");
        }
        for tool in TOOLS {
            let run = [atom.to_str().unwrap(), "run", "-q", tool, "--"];
            assert_eq!(said(&place, &run, &[]), expected, "{flags:?} {tool}");
        }
    }
}

/// What a place's program prints, with the words of a command before it.
fn said(place: &Place, before: &[&str], way: &[&str]) -> String {
    let mut command = Command::new("setarch");
    command.arg("-R").args(before).arg(place.original());
    command.args(way).current_dir(&place.folder);
    command.env("XDG_CACHE_HOME", place.folder.join("cache"));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The lines without numbers of mappings.
fn sizeless(text: &str) -> Vec<&str> {
    let without = |line: &&str| !line.contains(" mappings, ");
    text.lines().filter(without).collect()
}
