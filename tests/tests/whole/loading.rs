//! Libraries that are linked and opened: by all kinds of names, in another name space, closed and opened
//! again, with thread-local variables, IFUNCs, constructors, and exceptions that cross objects. The
//! process sees the names that the original would see.

use std::path::PathBuf;

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
