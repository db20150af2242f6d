//! What was executed of a program, and the files in which other programs read it.
//!
//! The tool `cover` writes these files when the program ends, and `atom report` writes them from profiles, perhaps
//! of several runs. Both fill a [`Coverage`], so the formats are here once.

#![deny(missing_docs)]

mod cobertura;
mod drcov;
mod lcov;

use std::collections::BTreeMap;

/// The executed parts of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The files of code.
    pub modules: Vec<Module>,
    /// The executed blocks.
    pub blocks: Vec<Block>,
    /// The source files by their paths.
    pub files: BTreeMap<String, File>,
    /// Numbers are those of executions; else 1 stands for any number.
    pub has_counts: bool,
}

impl Coverage {
    /// The number of executions of code that two numbers are about.
    pub fn sum(&self, a: u64, b: u64) -> u64 {
        if self.has_counts { a + b } else { a.max(b) }
    }
}

/// A file of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// The lowest address at which it was loaded, or the lowest address in the file if it is not known where it
    /// was loaded.
    pub base: u64,
    /// The end of its last segment, in the same terms.
    pub end: u64,
}

/// An executed block of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of its module.
    pub module: usize,
    /// Distance of its first byte from the module's base.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// The executable lines of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Number of executions of each line.
    pub lines: BTreeMap<u64, u64>,
    /// Its functions.
    pub functions: Vec<Function>,
    /// Its conditional branches.
    pub branches: Vec<Branch>,
}

/// A function of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line at which it begins.
    pub line: u64,
    /// Number of times that it was entered.
    pub entries: u64,
}

/// A conditional branch of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its line.
    pub line: u64,
    /// Number of times that it was taken, and that it was not.
    pub ways: [u64; 2],
}

impl File {
    /// Number of lines that were executed.
    fn executed_lines(&self) -> usize {
        self.lines.values().filter(|n| **n != 0).count()
    }

    /// The ways of branches: how many were gone, and how many there are.
    fn executed_ways(&self) -> (usize, usize) {
        let ways = || self.branches.iter().flat_map(|branch| branch.ways);
        (ways().filter(|n| *n != 0).count(), ways().count())
    }

    /// Its functions in the order of their lines, each name once. `of` has the file.
    fn functions(&self, of: &Coverage) -> Vec<Function> {
        let mut by_name: BTreeMap<&str, Function> = BTreeMap::new();
        for function in &self.functions {
            match by_name.get_mut(&*function.name) {
                Some(known) => {
                    known.entries = of.sum(known.entries, function.entries);
                    known.line = known.line.min(function.line);
                }
                None => _ = by_name.insert(&function.name, function.clone()),
            }
        }
        let mut all: Vec<Function> = by_name.into_values().collect();
        all.sort_by_key(|function| function.line);
        all
    }

    /// Its branches by line.
    fn branches(&self) -> BTreeMap<u64, Vec<[u64; 2]>> {
        let mut by_line: BTreeMap<u64, Vec<[u64; 2]>> = BTreeMap::new();
        for branch in &self.branches {
            by_line.entry(branch.line).or_default().push(branch.ways);
        }
        by_line
    }
}

/// A small example, for the tests of the formats.
#[cfg(test)]
fn example() -> Coverage {
    let function = |name: &str, line, entries| Function {
        name: name.into(),
        line,
        entries,
    };
    let file = File {
        lines: [(3, 1), (4, 10), (5, 0)].into(),
        functions: vec![function("b<int>", 5, 0), function("a", 3, 1)],
        branches: vec![Branch {
            line: 4,
            ways: [9, 0],
        }],
    };
    Coverage {
        modules: vec![
            Module {
                path: "/bin/a".into(),
                base: 0x40_0000,
                end: 0x40_3000,
            },
            Module {
                path: "/lib/libc.so.6".into(),
                base: 0,
                end: 0x20_0000,
            },
        ],
        blocks: vec![
            Block {
                module: 1,
                start: 0x1234,
                size: 7,
            },
            Block {
                module: 0,
                start: 0x1000,
                size: 0x1_0001,
            },
        ],
        files: [("/src/a.c".to_owned(), file)].into(),
        has_counts: true,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn functions_of_one_name_are_one() {
        let mut coverage = crate::example();
        let file = coverage.files.get_mut("/src/a.c").unwrap();
        let again = file.functions.clone();
        file.functions.extend(again);
        for (has_counts, expected) in [(true, 2), (false, 1)] {
            coverage.has_counts = has_counts;
            let functions = coverage.files["/src/a.c"].functions(&coverage);
            let found: Vec<_> = functions.iter().map(|f| (&*f.name, f.entries)).collect();
            assert_eq!(found, [("a", expected), ("b<int>", 0)]);
        }
    }
}
