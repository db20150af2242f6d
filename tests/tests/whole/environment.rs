//! Variables of the loader: they have the meaning that they have for the original.

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
