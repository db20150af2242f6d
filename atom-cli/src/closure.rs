//! The objects that a dynamic program has loaded when it starts.
//!
//! The program's own loader is asked, since only it knows all rules by which libraries are found:
//! `ld.so --list PROGRAM`, which glibc's loader and musl's both understand, prints the objects in
//! load order without running the program. It sees the environment that the program will see, so
//! `LD_LIBRARY_PATH` and `LD_PRELOAD` count.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atom_core::error::Reason;
use atom_core::image::Image;
use atom_core::{Error, Result};
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader};

const DOING: &str = "finding the program's libraries";

/// Variables that change what `ld.so --list` prints, not what it loads.
const NOISE: [&str; 6] = [
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_VERBOSE",
    "LD_WARN",
    "LD_SHOW_AUXV",
    "LD_TRACE_LOADED_OBJECTS",
];

/// The program interpreter that a program names; `None` for a static program.
pub fn interpreter(program: &Path) -> Result<Option<PathBuf>> {
    let fail = |reason: Reason| Error::new(DOING, reason).file(program);
    let bytes = std::fs::read(program).map_err(|e| fail(e.into()))?;
    // What is wrong with a file is said as `atom APP` says it.
    let wrong = |e: object::Error| match Image::read(program) {
        Err(told) => told,
        Ok(_) => fail(e.to_string().into()),
    };
    let file = ElfFile64::<Endianness>::parse(&*bytes).map_err(wrong)?;
    let path = file.elf_program_headers().iter().find_map(|header| {
        let path = header.interpreter(file.endian(), file.data());
        path.ok().flatten()
    });
    Ok(path.map(|path| PathBuf::from(OsStr::from_bytes(path))))
}

/// Size in bytes of the executable segments of an object; 0 if the file cannot be read.
pub fn code_size(object: &Path) -> u64 {
    let Ok(file) = std::fs::File::open(object) else {
        return 0;
    };
    let data = ReadCache::new(file);
    let headers = FileHeader64::<Endianness>::parse(&data).and_then(|header| {
        let endian = header.endian()?;
        Ok((header.program_headers(endian, &data)?, endian))
    });
    let Ok((headers, endian)) = headers else {
        return 0;
    };
    let executable = headers
        .iter()
        .filter(|h| h.p_type(endian) == PT_LOAD && h.p_flags(endian).contains(PF_X));
    executable.map(|h| h.p_filesz(endian)).sum()
}

/// One object that the loader names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The name by which it is wanted: a soname or a path.
    pub name: String,
    /// Where it is; `None` for the vDSO, which is no file.
    pub path: Option<PathBuf>,
}

/// The objects that `program`'s interpreter loads for it, in load order; the interpreter is one
/// of them, the program is not.
pub fn libraries(interpreter: &Path, program: &Path) -> Result<Vec<Loaded>> {
    // A name without a slash would be looked for as a library.
    let path = if program.as_os_str().as_bytes().contains(&b'/') {
        program.to_path_buf()
    } else {
        Path::new(".").join(program)
    };
    let mut command = Command::new(interpreter);
    for name in NOISE {
        command.env_remove(name);
    }
    let output = command
        .arg("--list")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            Error::new(DOING, format!("the program interpreter does not run: {e}"))
                .file(interpreter)
                .advice("the program itself could not run either")
        })?;
    let missing = |name: &str| {
        Error::new(DOING, format!("the library {name} is not found"))
            .file(program)
            .advice("the program itself could not run either; LD_LIBRARY_PATH may name its folder")
    };
    let loaded = parse(&output.stdout).map_err(|name| missing(&name))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(Error::new(DOING, reason).file(program));
    }
    Ok(loaded)
}

/// Reads what `ld.so --list` prints; fails with the name of a library that is not found.
fn parse(text: &[u8]) -> std::result::Result<Vec<Loaded>, String> {
    let mut all = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() || line == b"statically linked" {
            continue;
        }
        let line = without_address(line);
        let (name, path) = match find(line, b" => ") {
            Some(at) => (&line[..at], &line[at + 4..]),
            None => (line, line),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if path == b"not found" {
            return Err(name);
        }
        let path = path
            .contains(&b'/')
            .then(|| PathBuf::from(OsStr::from_bytes(path)));
        all.push(Loaded { name, path });
    }
    Ok(all)
}

/// The line without the address in parentheses at its end.
fn without_address(line: &[u8]) -> &[u8] {
    let at = (line.ends_with(b")"))
        .then(|| line.windows(4).rposition(|w| w == b" (0x"))
        .flatten();
    &line[..at.unwrap_or(line.len())]
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(name: &str, path: Option<&str>) -> Loaded {
        Loaded {
            name: name.into(),
            path: path.map(PathBuf::from),
        }
    }

    #[test]
    fn what_loaders_print_is_understood() {
        let glibc = b"\tlinux-vdso.so.1 (0x00007ffc5d5e2000)\n\
            \tlibz.so.1 => /lib/a (b)/libz.so.1 (0x00007f2a)\n\
            \t/opt/pre load.so (0x00007f00)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f2b)\n";
        assert_eq!(
            parse(glibc).unwrap(),
            [
                loaded("linux-vdso.so.1", None),
                loaded("libz.so.1", Some("/lib/a (b)/libz.so.1")),
                loaded("/opt/pre load.so", Some("/opt/pre load.so")),
                loaded(
                    "/lib64/ld-linux-x86-64.so.2",
                    Some("/lib64/ld-linux-x86-64.so.2")
                ),
            ]
        );
        let musl = b"\t/lib/ld-musl-x86_64.so.1 (0x7f1)\n\
            \tlibc.so => /lib/ld-musl-x86_64.so.1 (0x7f1)\n";
        assert_eq!(parse(musl).unwrap().len(), 2);
        assert_eq!(
            parse(b"\tlibgone.so.3 => not found\n"),
            Err("libgone.so.3".into())
        );
        assert_eq!(parse(b"\tstatically linked\n").unwrap(), []);
    }

    #[test]
    fn a_program_of_this_machine() {
        let shell = Path::new("/bin/sh");
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(interpreter(shell).unwrap().as_deref(), Some(loader));
        assert_eq!(interpreter(loader).unwrap(), None);
        let all = libraries(loader, shell).unwrap();
        assert!(all.iter().any(|l| l.name == "libc.so.6"), "{all:?}");
        assert!(all.iter().any(|l| l.path.as_deref() == Some(loader)));
        let error = libraries(Path::new("/no/such/loader"), shell).unwrap_err();
        assert!(error.to_string().contains("interpreter"), "{error}");
    }
}
