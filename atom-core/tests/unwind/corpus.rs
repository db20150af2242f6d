//! Real programs to test with: this test itself, and programs of the system from a fixed list.

use std::path::{Path, PathBuf};

use atom_core::unwind::{self, Memory, UnwindInput, UnwindTable};
use object::{Object, ObjectSection, ObjectSegment};

/// A program or library as read from its file.
pub struct Program {
    pub path: PathBuf,
    pub segments: Vec<(u64, Vec<u8>)>,
    pub eh_frame: Vec<u8>,
    pub vaddr: u64,
    /// Address of `.eh_frame_hdr`.
    pub header: Option<u64>,
    /// Address after the highest byte.
    pub end: u64,
}

impl Program {
    pub fn open(path: PathBuf) -> Option<Program> {
        let data = std::fs::read(&path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        if file.architecture() != object::Architecture::X86_64
            || file.kind() == object::ObjectKind::Relocatable
        {
            return None;
        }
        let section = file.section_by_name(".eh_frame")?;
        let segments: Vec<_> = file
            .segments()
            .map(|s| (s.address(), s.data().unwrap_or_default().to_vec()))
            .collect();
        let end = file.segments().map(|s| s.address() + s.size()).max()?;
        Some(Program {
            path,
            segments,
            eh_frame: section.data().ok()?.to_vec(),
            vaddr: section.address(),
            header: file.section_by_name(".eh_frame_hdr").map(|s| s.address()),
            end,
        })
    }

    pub fn memory(&self) -> Memory<'_> {
        Memory::new(self.segments.iter().map(|(a, b)| (*a, &b[..])))
    }

    pub fn table(&self) -> UnwindTable<'_> {
        let input = UnwindInput::from_section(&self.eh_frame, self.vaddr, self.memory());
        unwind::parse(&input).expect("a system program parses")
    }
}

/// Packages that tests may use, with their programs.
const PACKAGES: &str = include_str!("../../../tests/packages.txt");

/// Libraries that each system with these packages has; the C++ library has most areas.
const LIBRARIES: [&str; 4] = [
    "libc.so.6",
    "libcrypto.so.3",
    "libgcc_s.so.1",
    "libstdc++.so.6",
];

/// Folders with programs and libraries.
const FOLDERS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu"];

/// This test, the programs of `tests/packages.txt` and four libraries. With `ATOM_TESTS=all`,
/// this test and every `step`-th file of the system with exception tables.
pub fn programs(step: usize) -> impl Iterator<Item = Program> {
    let others = if std::env::var_os("ATOM_TESTS").is_some_and(|value| value == "all") {
        all(step)
    } else {
        listed()
    };
    std::iter::once(std::env::current_exe().expect("a test has a path"))
        .chain(others)
        .filter_map(Program::open)
}

fn listed() -> Vec<PathBuf> {
    let lines = PACKAGES.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split_once(':'));
    let names = names.flat_map(|(_, programs)| programs.split_whitespace());
    let mut paths: Vec<PathBuf> = names
        .chain(LIBRARIES)
        .map(|name| {
            let files = FOLDERS.map(|folder| Path::new(folder).join(name));
            let file = files.iter().find(|file| file.exists());
            let file = file.unwrap_or_else(|| {
                panic!("{name} is missing; `.ci/run` installs the packages of tests/packages.txt")
            });
            std::fs::canonicalize(file).expect("a file that exists has a path")
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn all(step: usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_file()) {
                paths.push(entry.path());
            }
        }
    }
    paths.sort();
    paths.into_iter().step_by(step).collect()
}

/// A small generator of repeatable numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}
