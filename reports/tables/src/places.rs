//! Source lines of one table: what they have in common is left out.

use std::collections::{BTreeMap, BTreeSet};

/// Folders and file that a place has at least.
const LEAST: usize = 2;

/// The places (`folder/file.c:12`), each with as many folders as tell its file from the others, but with one at least.
pub fn tails<'a>(places: &[&'a str]) -> Vec<&'a str> {
    let mut open: BTreeSet<&str> = places.iter().map(|place| file(place)).collect();
    let mut lengths: BTreeMap<&str, usize> = BTreeMap::new();
    for parts in LEAST.. {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for file in &open {
            groups.entry(tail(file, parts)).or_default().push(file);
        }
        for (tail, files) in groups {
            let is_apart = |file: &&&str| files.len() == 1 || file.len() == tail.len();
            for file in files.iter().filter(is_apart) {
                lengths.insert(file, parts);
                open.remove(file);
            }
        }
        if open.is_empty() {
            break;
        }
    }
    let short = |place: &&'a str| {
        let file = file(place);
        let parts = lengths.get(file).copied().unwrap_or(LEAST);
        let left_out = file.len() - tail(file, parts).len();
        &place[left_out..]
    };
    places.iter().map(short).collect()
}

/// True for the path of a file, perhaps with a line.
pub fn is_file(text: &str) -> bool {
    text.contains('/') && !text.contains(['<', '(', ' '])
}

/// A place without its line.
fn file(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(file, _)| file)
}

/// The last parts of a path.
fn tail(path: &str, parts: usize) -> &str {
    let start = path.rmatch_indices('/').nth(parts - 1);
    start.map_or(path, |(at, _)| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::tails;

    #[test]
    fn folders_that_tell_files_apart_stay() {
        let places = [
            "/src/app/lib/a.c:1",
            "/src/app/lib/a.c:20",
            "/src/app/x/util.c:2",
            "/src/other/x/util.c:2",
            "x/util.c:7",
            "/a.c:3",
            "b.c:3",
            "",
        ];
        assert_eq!(
            tails(&places),
            [
                "lib/a.c:1",
                "lib/a.c:20",
                "app/x/util.c:2",
                "other/x/util.c:2",
                "x/util.c:7",
                "/a.c:3",
                "b.c:3",
                ""
            ]
        );
        assert_eq!(
            tails(&["/r/app/x/util.c:2", "/r/other/x/util.c:2"]),
            ["app/x/util.c:2", "other/x/util.c:2"]
        );
    }
}
