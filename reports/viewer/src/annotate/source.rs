//! Text of source files, beside the counts of their lines.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::code::Annotated;

/// Largest size of a source file in bytes; larger ones are generated, and nobody reads them.
const LARGEST: u64 = 8 << 20;
/// Number of lines around a line with code that are shown with it.
const AROUND: u32 = 3;
/// Largest distance of two lines with code whose lines in between are all shown.
const GAP: u32 = 12;

/// Finds and keeps source files.
#[derive(Default)]
pub struct Sources {
    /// Folders in which files are looked for that are not where the debug information says.
    folders: Vec<PathBuf>,
    known: HashMap<String, Option<Vec<String>>>,
}

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: u32,
    /// Its text; empty if the file was not found.
    pub text: String,
    /// Sums of the line's instructions, one for each measure; `None` if the line has no code in the procedure.
    pub values: Option<Vec<u64>>,
}

/// The part of a source file that belongs to a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Path as in the debug information.
    pub path: String,
    /// True if the file was found.
    pub is_found: bool,
    /// The lines; there may be gaps between their numbers.
    pub lines: Vec<Line>,
}

impl Sources {
    /// Sources that are also looked for in these folders.
    pub fn new(folders: &[PathBuf]) -> Self {
        Self {
            folders: folders.to_vec(),
            known: HashMap::new(),
        }
    }

    /// The lines of a file; `None` if it is not found.
    pub fn lines(&mut self, path: &str) -> Option<&[String]> {
        if !self.known.contains_key(path) {
            let lines = self
                .find(path)
                .map(|text| text.lines().map(clean).collect());
            self.known.insert(path.to_owned(), lines);
        }
        self.known[path].as_deref()
    }

    fn find(&self, path: &str) -> Option<String> {
        if let Some(text) = read(Path::new(path)) {
            return Some(text);
        }
        // The folder may stand for any part of the path.
        let parts: Vec<_> = Path::new(path)
            .components()
            .skip(usize::from(path.starts_with('/')))
            .collect();
        let mut tries = self.folders.iter().flat_map(|folder| {
            (0..parts.len()).map(|first| folder.join(parts[first..].iter().collect::<PathBuf>()))
        });
        tries.find_map(|path| read(&path))
    }

    /// The source of a procedure: of each file the lines with code and what is around them. The file with the
    /// largest value comes first.
    pub fn of(&mut self, annotated: &Annotated, measures: usize) -> Vec<File> {
        let mut files: Vec<BTreeMap<u32, Vec<u64>>> = vec![BTreeMap::new(); annotated.files.len()];
        for inst in &annotated.insts {
            let Some((file, line)) = inst.place else {
                continue;
            };
            let sums = files[file].entry(line).or_insert_with(|| vec![0; measures]);
            for (sum, value) in sums.iter_mut().zip(&inst.values) {
                *sum = sum.saturating_add(*value);
            }
        }
        let weight = |lines: &BTreeMap<u32, Vec<u64>>| -> u64 {
            let values = lines.values().filter_map(|v| v.first());
            values.fold(0, |sum, v| sum.saturating_add(*v))
        };
        let mut order: Vec<usize> = (0..files.len()).filter(|f| !files[*f].is_empty()).collect();
        // The procedure's own file comes first; files of inlined functions follow by weight.
        let own = annotated
            .insts
            .first()
            .and_then(|inst| inst.place)
            .map(|p| p.0);
        order.sort_by_key(|f| (Some(*f) != own, std::cmp::Reverse(weight(&files[*f]))));
        order
            .into_iter()
            .map(|f| self.file(&annotated.files[f], &files[f]))
            .collect()
    }

    fn file(&mut self, path: &str, counted: &BTreeMap<u32, Vec<u64>>) -> File {
        let text = self.lines(path);
        let last = text.map_or(u32::MAX, |text| text.len() as u32);
        let mut numbers: Vec<u32> = Vec::new();
        for &line in counted.keys() {
            if text.is_none() {
                numbers.push(line);
                continue;
            }
            let before = numbers.last().copied().unwrap_or(0);
            let first = if line.saturating_sub(before) <= GAP && before != 0 {
                before + 1
            } else {
                line.saturating_sub(AROUND).max(before + 1)
            };
            numbers.extend(first..=line);
            // What follows is shown once the next line is known to be far away.
            let next = counted.range(line + 1..).next().map(|n| *n.0);
            let end = line.saturating_add(AROUND).min(last);
            match next {
                Some(next) if next - line <= GAP => {}
                Some(next) => numbers.extend(line + 1..=end.min(next - 1)),
                None => numbers.extend(line + 1..=end),
            }
        }
        let line = |number: u32| Line {
            number,
            text: text
                .and_then(|text| text.get(number as usize - 1).cloned())
                .unwrap_or_default(),
            values: counted.get(&number).cloned(),
        };
        File {
            path: path.to_owned(),
            is_found: text.is_some(),
            lines: numbers.into_iter().filter(|n| *n != 0).map(line).collect(),
        }
    }
}

fn read(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A line for a terminal: tabs are expanded, other control characters are left out.
fn clean(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => text.push_str(&"        "[text.chars().count() % 8..]),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_code_are_shown_with_what_is_around_them() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (1..=60).map(|n| format!("\tline {n}\x1b\n")).collect();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/a.c"), text).unwrap();
        let mut sources = Sources::new(&[folder.path().to_path_buf()]);
        let counted: BTreeMap<u32, Vec<u64>> = [(2, 5), (10, 1), (40, 7), (60, 1)]
            .into_iter()
            .map(|(line, n)| (line, vec![n]))
            .collect();
        let file = sources.file("/build/old/src/a.c", &counted);
        assert!(file.is_found);
        let numbers: Vec<u32> = file.lines.iter().map(|l| l.number).collect();
        let want: Vec<u32> = (1..=13).chain(37..=43).chain(57..=60).collect();
        assert_eq!(numbers, want);
        assert_eq!(file.lines[1].text, "        line 2");
        assert_eq!(file.lines[1].values, Some(vec![5]));
        assert_eq!(file.lines[2].values, None);
        let missing = sources.file("/nowhere/b.c", &counted);
        assert!(!missing.is_found);
        assert_eq!(missing.lines.len(), 4);
    }
}
