//! Programs that limit their own address space have as much of it as the originals, and see the limits that they set.

use std::process::Command;

use atom_tests::atom;

use super::Place;

/// Tools whose data is small, large, and larger than any limit. The last has an allocator of its own for the program, so that
/// sizes differ.
const TOOLS: [&str; 3] = ["icount", "dtb", "memcheck"];

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
        let said = |mut command: Command| {
            let output = command.arg(place.original()).current_dir(&place.folder);
            String::from_utf8(output.output().unwrap().stdout).unwrap()
        };
        let mut original = Command::new("setarch");
        original.arg("-R");
        let expected = said(original);
        assert!(
            expected.contains("in the end: 52428800 73400320, 0 0"),
            "{expected}"
        );
        for tool in TOOLS {
            let mut run = Command::new("setarch");
            run.arg("-R").arg(atom::command().unwrap());
            run.args(["run", "-q", "--children", tool, "--"]);
            run.env("XDG_CACHE_HOME", place.folder.join("cache"));
            let found = said(run);
            let what = format!("{compiler} {flags:?} {tool}");
            if tool == "memcheck" {
                assert_eq!(sizeless(&found), sizeless(&expected), "{what}");
            } else {
                assert_eq!(found, expected, "{what}");
            }
        }
    }
}

/// The lines without numbers of mappings.
fn sizeless(text: &str) -> Vec<&str> {
    let without = |line: &&str| !line.contains(" mappings, ");
    text.lines().filter(without).collect()
}
