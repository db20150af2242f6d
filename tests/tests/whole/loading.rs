//! Libraries that are linked and opened: by all kinds of names, in another name space, closed and opened
//! again, with thread-local variables, IFUNCs, constructors, and exceptions that cross objects. The
//! process sees the names that the original would see.

use std::path::PathBuf;

use atom_tests::outcome::{Setting, run};

use super::Place;

/// The program `opens.cc` with its libraries.
fn opens(name: &str, flags: &[&str]) -> (Place, Vec<PathBuf>) {
    let place = Place::new(name);
    let lib = place.folder.join("lib");
    let mut files = Vec::new();
    for (file, name, soname, more) in [
        ("liblinked.so", "linked", "liblinked.so", ""),
        ("libplain.so", "plain", "", "-Wl,-Bsymbolic"),
        ("libdescriptors.so", "descriptors", "", "-mtls-dialect=gnu2"),
        (
            "libsoname.so.1",
            "soname",
            "libsoname.so.1",
            "-Wl,-Bsymbolic",
        ),
        ("libreal.so", "real", "", "-Wl,-Bsymbolic"),
        ("libclosed.so", "closed", "", "-Wl,-Bsymbolic"),
    ] {
        let mut all = vec![format!("-DNAME={name}")];
        if !soname.is_empty() {
            all.push(format!("-Wl,-soname,{soname}"));
        }
        if !more.is_empty() {
            all.push(more.to_owned());
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        files.push(place.library("library.c", file, &all));
    }
    let soname = ["-Wl,-soname,libthrower.so"];
    files.push(place.library("thrower.cc", "libthrower.so", &soname));
    let link = lib.join("liblink.so");
    if !link.exists() {
        std::os::unix::fs::symlink("libreal.so", link).unwrap();
    }
    let mut all = place.link();
    all.extend(flags.iter().map(|f| f.to_string()));
    all.extend(["-llinked", "-lthrower"].map(str::to_owned));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let compiler = match flags.contains(&"clang") {
        true => "clang++",
        false => "g++",
    };
    let all: Vec<&str> = all.into_iter().filter(|f| *f != "clang").collect();
    place.program(compiler, "opens.cc", &all);
    (place, files)
}

#[test]
fn what_is_opened_later_runs_as_it_is() {
    let (place, _) = opens("opens", &[]);
    place.instrument(&[]);
    let lib = place.folder.join("lib");
    let lib = lib.to_str().unwrap();
    let outcome = place.same(&[lib]);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    for words in [
        "begin soname",
        "caught callback",
        "in another space: ",
        "end closed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    place.same_with(&[lib], &[("LD_BIND_NOW", "1"), ("CHOOSE", "1")]);
}

#[test]
fn what_is_named_beforehand_is_counted() {
    for (name, flags) in [
        ("opens-with", &[][..]),
        ("opens-fixed", &["-no-pie", "-s"]),
        ("opens-clang", &["clang", "-Wl,-z,now"]),
    ] {
        let (place, files) = opens(name, flags);
        let mut with = Vec::new();
        for file in &files {
            with.extend(["--with", file.to_str().unwrap()]);
        }
        place.instrument(&with);
        let lib = place.folder.join("lib");
        let outcome = place.same(&[lib.to_str().unwrap()]);
        let counts = place.counts(outcome.pid).expect("a report");
        for file in &files {
            let key = file.file_name().unwrap().to_string_lossy().into_owned();
            let key = format!("{}.so+", key.split(".so").next().unwrap());
            let own = counts.iter().filter(|(k, _)| k.starts_with(&key));
            let total: u64 = own.map(|(_, n)| n).sum();
            assert!(total > 30, "{name}: {total} in {key}");
        }
    }
}

#[test]
fn a_modified_library_is_told_and_a_link_to_it_is_no_modification() {
    let (place, files) = opens("opens-modified", &[]);
    place.instrument(&[]);
    let lib = place.folder.join("lib");
    let arguments = [lib.to_str().unwrap()];
    let linked = files.iter().find(|f| f.ends_with("liblinked.so")).unwrap();
    let count = |pid| {
        let counts = place.counts(pid).expect("a report");
        let own = counts
            .iter()
            .filter(|(k, _)| k.starts_with("liblinked.so+"));
        own.map(|(_, n)| n).sum::<u64>()
    };
    // A new name changes the inode's times but not the contents.
    std::fs::hard_link(linked, place.folder.join("other-name")).unwrap();
    let outcome = place.same(&arguments);
    assert!(count(outcome.pid) > 10);
    let file = std::fs::File::options().append(true).open(linked).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    let mut command = place.command(&place.bundle(), &arguments);
    let outcome = run(&mut command, &Setting::default()).unwrap();
    let said = String::from_utf8_lossy(&outcome.stderr);
    let words = "liblinked.so was modified after it was instrumented";
    assert!(said.contains(words), "{said}");
    assert_eq!(count(outcome.pid), 0);
}
