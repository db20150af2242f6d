//! Variables of the loader: they have the meaning that they have for the original.

use std::process::{Command, Stdio};

use atom_tests::atom;

use super::Place;

#[test]
fn the_loaders_variables_keep_their_meaning() {
    for flag in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        let place = Place::new(&format!("variables{}", &flag[flag.len() - 4..]));
        let soname = "-Wl,-soname,liblinked.so";
        let library = place.library("library.c", "liblinked.so", &["-DNAME=linked", soname]);
        let preloaded = place.library("library.c", "libpreloaded.so", &["-DNAME=preloaded"]);
        let link = place.link();
        // Without a RUNPATH.
        place.program("gcc", "processes.c", &[&link[0], flag, "-llinked"]);
        let lib = place.folder.join("lib");
        let lib = lib.to_str().unwrap();
        // `atom` has to find the library, too.
        let with = ["--with", preloaded.to_str().unwrap()];
        place.instrument_with(&with, &[("LD_LIBRARY_PATH", lib)]);
        let linked = |variables: &[(&str, &str)]| {
            let all = [&[("LD_LIBRARY_PATH", lib)], variables].concat();
            place.same_with(&["threads"], &all);
            place.executed(&library, "loop_body_linked")
        };
        assert_eq!(linked(&[]), [8028]);
        assert_eq!(linked(&[("LD_BIND_NOW", "1")]), [8028]);
        assert_eq!(linked(&[("LD_PRELOAD", "/none.so")]), [8028]);
        // The preloaded library's symbols come first.
        let preload = ("LD_PRELOAD", preloaded.to_str().unwrap());
        assert_eq!(linked(&[preload]), [0]);
        let variables = [("LD_LIBRARY_PATH", lib), ("LD_PRELOAD", "libpreloaded.so")];
        place.same_with(&["threads"], &variables);
        assert_eq!(place.executed(&preloaded, "loop_body_preloaded"), [8028]);
        // The library is not found.
        place.same(&["threads"]);
    }
}

/// Under `atom run` the file of a static program is another one than the original.
#[test]
fn static_programs_see_the_originals_path() {
    for (name, compiler) in [("ownpath", "gcc"), ("ownpath-musl", "musl-gcc")] {
        let place = Place::new(name);
        place.program(compiler, "ownpath.c", &["-static", "-no-pie"]);
        let atom = atom::command().unwrap();
        let mut run = Command::new("setarch");
        run.arg("-R").arg(atom).args(["run", "-q", "icount"]);
        run.args(["--output", "report-0", "--"])
            .arg(place.original());
        run.env("XDG_CACHE_HOME", place.folder.join("cache"));
        let mut original = Command::new("setarch");
        original.arg("-R").arg(place.original());
        let text = |command: &mut Command| {
            let command = command.current_dir(&place.folder);
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let expected = text(&mut original);
        assert!(expected.starts_with(place.original().to_str().unwrap()));
        assert_eq!(text(&mut run), expected, "{name}");
    }
}
