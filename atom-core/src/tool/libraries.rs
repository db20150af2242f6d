//! Whether a library that the program loads sets the base of gs.
//!
//! Per-thread data is found through gs, whose base nothing else uses on Linux, with two
//! known exceptions: sandboxes compiled from WebAssembly keep the start of their memory
//! there (as in Firefox), and Wine keeps the thread block of Windows there. Both do so in libraries.
//! This module looks at the libraries that the program names: the libraries it is linked with, the
//! libraries that those are linked with, and libraries whose file name is a string in the program, as most
//! programs have the names of libraries that they load later.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use memchr::memmem;
use object::read::Object;
use rayon::prelude::*;

use crate::image::Image;

/// Folders in which the dynamic loader looks by default.
const FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// The first library found that sets the base of gs, of those that a program names, or the objects of a process.
/// The objects themselves are not looked at.
pub fn that_uses_gs<'a>(objects: impl IntoIterator<Item = &'a Image>) -> Option<PathBuf> {
    let objects: Vec<&Image> = objects.into_iter().collect();
    let own = objects.iter().map(|image| image.path.canonicalize());
    let mut seen: HashSet<PathBuf> = own.filter_map(Result::ok).collect();
    let mut wave = Vec::new();
    for image in objects {
        let mut names = Vec::new();
        for segment in image.segments.iter().filter(|s| !s.is_executable()) {
            let bytes = image.bytes_at(segment.address, segment.file_size as usize);
            file_names(bytes.unwrap_or_default(), &mut names);
        }
        wave.extend(found(&names, &image.path, &mut seen));
    }
    while !wave.is_empty() {
        let looked_at: Vec<Looked> = wave.par_iter().map(|path| look(path)).collect();
        if let Some(i) = looked_at.iter().position(|l| l.uses_gs) {
            return Some(wave.swap_remove(i));
        }
        let further = wave
            .iter()
            .zip(&looked_at)
            .map(|(path, l)| found(&l.needed, path, &mut seen));
        wave = further.collect::<Vec<_>>().concat();
    }
    None
}

/// Facts of a library.
#[derive(Default)]
struct Looked {
    uses_gs: bool,
    needed: Vec<String>,
}

/// Reads a library; a file that cannot be read has no facts.
fn look(path: &Path) -> Looked {
    let Ok(file) = std::fs::File::open(path) else {
        return Looked::default();
    };
    // SAFETY: the map is private and read-only. If another process truncates the file
    // meanwhile, reads fault, as in every program that maps files.
    let Ok(bytes) = (unsafe { memmap2::Mmap::map(&file) }) else {
        return Looked::default();
    };
    let Ok(library) = object::File::parse(&*bytes) else {
        return Looked::default();
    };
    let is_c_library = path
        .file_name()
        .is_some_and(|n| n.as_encoded_bytes().starts_with(b"libc.so"));
    // Only an import of the function counts: other libraries may have its name as the name of a system call.
    let calls = || {
        memmem::find(&bytes, b"\0arch_prctl\0").is_some()
            && library
                .imports()
                .is_ok_and(|mut all| {
                    all.any(|i| {
                        let is_it = |i: object::Import<'_>| matches!(i.name(), object::NameOrOrdinal::Name(n) if n == b"arch_prctl");
                        i.is_ok_and(is_it)
                    })
                })
    };
    let needed = match library {
        object::File::Elf64(_) => needed(&bytes).unwrap_or_default(),
        _ => Vec::new(),
    };
    Looked {
        uses_gs: !is_c_library && (writes_base(&bytes) || calls()),
        needed,
    }
}

/// True if a 64-bit `wrgsbase` is in the bytes: F3, a REX prefix with W, 0F AE and a ModRM byte
/// with a register operand and 3 in its middle field.
fn writes_base(bytes: &[u8]) -> bool {
    memmem::find_iter(bytes, b"\x0f\xae").any(|at| {
        let prefixes = at.checked_sub(2).map(|from| &bytes[from..at]);
        prefixes.is_some_and(|p| p[0] == 0xf3 && p[1] & 0xf8 == 0x48)
            && bytes.get(at + 2).is_some_and(|modrm| modrm & 0xf8 == 0xd8)
    })
}

fn needed(bytes: &[u8]) -> Option<Vec<String>> {
    use object::read::elf::{Dyn, ElfFile64};
    let file = ElfFile64::<object::Endianness>::parse(bytes).ok()?;
    let endian = file.endian();
    let table = file.elf_section_table();
    let (entries, link) = table.dynamic(endian, bytes).ok()??;
    let strings = table.strings(endian, bytes, link).ok()?;
    let names = entries
        .iter()
        .filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED)
        .filter_map(|entry| entry.string(endian, strings).ok())
        .map(|name| String::from_utf8_lossy(name).into_owned());
    Some(names.collect())
}

/// Adds the strings in `bytes` that look like file names of libraries: they end in `.so` or in `.so.`
/// and a version.
fn file_names(bytes: &[u8], names: &mut Vec<String>) {
    let part = |b: &u8| b.is_ascii_alphanumeric() || b"_+-./".contains(b);
    for at in memmem::find_iter(bytes, b".so") {
        let start = bytes[..at].iter().rposition(|b| !part(b));
        let start = start.map_or(0, |i| i + 1);
        let rest = &bytes[at + 3..];
        let Some(length) = rest.iter().position(|b| *b == 0) else {
            continue;
        };
        let is_version = length == 0
            || rest[0] == b'.'
                && rest[..length]
                    .iter()
                    .all(|b| b.is_ascii_digit() || *b == b'.');
        let stem = &bytes[start..at];
        let is_whole = start == 0 || bytes[start - 1] == 0;
        if is_version && is_whole && !stem.is_empty() && !stem.ends_with(b"/") {
            let name = String::from_utf8_lossy(&bytes[start..at + 3 + length]);
            names.push(name.into_owned());
        }
    }
}

/// Paths of libraries that the file `from` names: beside that file or in the system's folders. A
/// library in `seen` is left out; others are added there.
fn found(names: &[String], from: &Path, seen: &mut HashSet<PathBuf>) -> Vec<PathBuf> {
    let from = std::fs::canonicalize(from).unwrap_or_default();
    let beside = from.parent().unwrap_or(Path::new("/"));
    let mut all = Vec::new();
    for name in names {
        let folders = std::iter::once(beside).chain(FOLDERS.iter().map(Path::new));
        // Linkers merge strings of which one is the end of the other, so the name may be too long.
        let last = Path::new(name).file_name().unwrap_or_default();
        let paths = folders.flat_map(|folder| [folder.join(name), folder.join(last)]);
        let file = paths
            .filter(|path| path.is_file())
            .find_map(|p| p.canonicalize().ok());
        if let Some(path) = file
            && seen.insert(path.clone())
        {
            all.push(path);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{file_names, writes_base};

    #[test]
    fn names_of_libraries_are_strings_that_end_so() {
        let text = b"\0libxul.so\0%s.so\0lib/also.so.1.2\0/a/.so\0x.sort\0.so\0libm.so.6\0cut.so";
        let mut names = Vec::new();
        file_names(text, &mut names);
        assert_eq!(names, ["libxul.so", "lib/also.so.1.2", "libm.so.6"]);
    }

    #[test]
    fn wrgsbase_is_known_by_its_bytes() {
        for register in 0..8 {
            assert!(writes_base(&[
                0x90,
                0xf3,
                0x48,
                0x0f,
                0xae,
                0xd8 + register
            ]));
            assert!(writes_base(&[0xf3, 0x49, 0x0f, 0xae, 0xd8 + register]));
            // rdgsbase, and mfence and sfence beside other bytes.
            assert!(!writes_base(&[0xf3, 0x48, 0x0f, 0xae, 0xc8 + register]));
            assert!(!writes_base(&[0x90, 0x48, 0x0f, 0xae, 0xf0 + register]));
        }
        assert!(!writes_base(&[0x0f, 0xae]));
        assert!(!writes_base(&[0xf3, 0x48, 0x0f, 0xae]));
    }
}
