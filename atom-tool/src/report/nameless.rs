//! Procedures without a name, which reports list by their addresses, and the packages that would name them.
//!
//! Distributions strip programs. Debian and its relatives have the symbols in packages of their own: `libc6-dbg` for the
//! C library, else `PACKAGE-dbgsym`. Which package a file belongs to is in the lists of dpkg.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::Program;
use crate::navigation::object::Object;

/// Folder with a list of files for each installed package: dpkg(1).
const LISTS: &str = "/var/lib/dpkg/info";
/// Most objects and packages that the line names.
const MOST: usize = 3;

/// Instrument side: one line for people; empty if all procedures have names.
pub(super) fn line(program: Option<Program<'_>>) -> String {
    let objects = program.iter().flat_map(Program::objects);
    let mut nameless: Vec<(usize, String, String)> = objects
        .map(|object| {
            let path = fs::canonicalize(object.path()).unwrap_or_default();
            (
                count(&object),
                object.name().to_owned(),
                path.to_string_lossy().into_owned(),
            )
        })
        .filter(|(count, ..)| *count > 0)
        .collect();
    nameless.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let paths = nameless.iter().map(|(.., path)| path.as_str());
    let packages = packages(Path::new(LISTS), paths);
    text(&nameless, &packages)
}

fn text(nameless: &[(usize, String, String)], packages: &[String]) -> String {
    let sum: usize = nameless.iter().map(|(count, ..)| count).sum();
    if sum == 0 {
        return String::new();
    }
    let objects = nameless.iter().map(|(count, name, _)| {
        let count = tables::grouped(*count as u64);
        format!("{name} ({count})")
    });
    let procedures = match sum {
        1 => "1 procedure has no name".to_owned(),
        n => format!("{} procedures have no name", tables::grouped(n as u64)),
    };
    let line = format!("{procedures}: {}", first(objects));
    match packages {
        [] => line,
        all => format!("{line}; for names install {}", first(all.iter().cloned())),
    }
}

/// The first few of them, and how many more there are.
fn first(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(MOST);
    let names: Vec<String> = all.take(MOST).collect();
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Number of an object's procedures that have no name.
fn count(object: &Object<'_>) -> usize {
    let is_nameless = |name: &str| name.starts_with("sub_");
    object
        .procs()
        .filter(|proc| is_nameless(proc.name()))
        .count()
}

/// Packages with the symbols of the files at `paths`, each once; none without lists of dpkg.
fn packages<'p>(lists: &Path, paths: impl Iterator<Item = &'p str>) -> Vec<String> {
    let wanted: Vec<&[u8]> = paths.map(|path| below_root(path.as_bytes())).collect();
    let mut owners: Vec<Option<String>> = vec![None; wanted.len()];
    let lists = fs::read_dir(lists).into_iter().flatten().flatten();
    for list in lists.map(|entry| entry.path()) {
        if list.extension() != Some(OsStr::new("list")) {
            continue;
        }
        let text = fs::read(&list).unwrap_or_default();
        for line in text.split(|b| *b == b'\n') {
            if let Some(i) = wanted.iter().position(|path| *path == below_root(line)) {
                owners[i] = list.file_stem().map(symbols_of);
            }
        }
    }
    let mut names: Vec<String> = Vec::new();
    for name in owners.into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A path without `/usr` in front: a package may list a file below `/usr` without it.
fn below_root(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/usr").unwrap_or(path)
}

/// The package with the symbols of the package whose list has this name, such as `libc6:amd64`.
fn symbols_of(list: &OsStr) -> String {
    let name = String::from_utf8_lossy(list.as_bytes());
    match name.split(':').next().unwrap_or_default() {
        "libc6" => "libc6-dbg".to_owned(),
        name => format!("{name}-dbgsym"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_by_their_lists() {
        let folder = std::env::temp_dir().join(format!("atom-lists-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("libc6:amd64.list"),
            "/.\n/lib\n/lib/x/libc.so.6\n",
        )
        .unwrap();
        fs::write(
            folder.join("zlib1g.list"),
            "/.\n/usr/lib/x/libz.so.1.2\n/usr/lib\n",
        )
        .unwrap();
        fs::write(folder.join("zlib1g.md5sums"), "/usr/lib/x/liby.so\n").unwrap();
        let paths = [
            "/usr/lib/x/libc.so.6",
            "/usr/lib/x/libz.so.1.2",
            "/usr/lib/x/liby.so",
            "/lib/x/libc.so",
        ];
        assert_eq!(
            packages(&folder, paths.into_iter()),
            ["libc6-dbg", "zlib1g-dbgsym"]
        );
        assert!(packages(&folder.join("none"), paths.into_iter()).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_line_says_whose_names_are_missing() {
        let one = |count, name: &str| (count, name.to_owned(), String::new());
        assert_eq!(text(&[], &[]), "");
        assert_eq!(
            text(&[one(1, "ls")], &[]),
            "1 procedure has no name: ls (1)"
        );
        let packages = ["a-dbgsym", "b-dbgsym", "c-dbgsym", "d-dbgsym"].map(str::to_owned);
        assert_eq!(
            text(&[one(2000, "a"), one(1, "b")], &packages),
            "2,001 procedures have no name: a (2,000), b (1); \
             for names install a-dbgsym, b-dbgsym, c-dbgsym and 1 more"
        );
    }
}
