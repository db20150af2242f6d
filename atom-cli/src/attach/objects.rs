//! The objects of a process: the files whose code it has mapped, and where they are.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::maps::Map;
use crate::message::note;

const DOING: &str = "looking at the process's objects";

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;

/// An object of a process.
pub struct Object {
    /// Path of its file, as this command opens it.
    pub path: PathBuf,
    /// The file.
    pub file: File,
    /// Run-time address minus address in the file.
    pub bias: u64,
    /// First address of the image, and the address after it, in the file.
    pub image: [u64; 2],
    /// Bytes of code.
    pub code: u64,
    /// Where code is mapped.
    pub text: Vec<Map>,
}

/// What the headers of an object say.
struct Headers {
    /// Of each segment of code: address, offset in the file and size in bytes.
    code: Vec<[u64; 3]>,
    image: [u64; 2],
}

fn headers(bytes: &[u8]) -> Option<Headers> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, bytes).ok()?;
    let mut found = Headers {
        code: Vec::new(),
        image: [u64::MAX, 0],
    };
    for p in all {
        let (address, size) = (p.p_vaddr(endian), p.p_memsz(endian));
        if p.p_type(endian) == PT_LOAD {
            found.image[0] = found.image[0].min(address / PAGE * PAGE);
            found.image[1] = found.image[1].max(address + size);
            if p.p_flags(endian).contains(PF_X) {
                found
                    .code
                    .push([address, p.p_offset(endian), p.p_filesz(endian)]);
            }
        }
    }
    (!found.code.is_empty()).then_some(found)
}

/// The objects of a process, the program first. Those that cannot be instrumented are named to the user. What is mapped from the
/// folder of the store has stayed from an earlier time.
pub fn find(pid: i32, maps: &[Map], store: &Path) -> Result<Vec<Object>> {
    let fail = |reason: &str| Error::new(DOING, reason);
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(|e| Error::new(DOING, e))?;
    let own = format!("/proc/{pid}/exe");
    let program = fs::metadata(&own).map_err(|e| Error::new(DOING, e).file(&own))?;
    let mut objects: Vec<Object> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let is_own = |m: &&Map| m.is_code() && m.is_file() && !m.path.starts_with(store);
    for map in maps.iter().filter(is_own) {
        if seen.contains(&map.file.as_str()) {
            continue;
        }
        seen.push(&map.file);
        match object(pid, maps, map, &memory) {
            Ok(object) => objects.push(object),
            Err(reason) => note(&format!(
                "{} is left as it is: {reason}",
                map.path.display()
            )),
        }
    }
    let is_program = |object: &Object| {
        use std::os::unix::fs::MetadataExt;
        let m = object.file.metadata();
        m.is_ok_and(|m| (m.dev(), m.ino()) == (program.dev(), program.ino()))
    };
    let Some(first) = objects.iter().position(is_program) else {
        return Err(fail("the program's file is none of those that are mapped")
            .file(&own)
            .advice("start it by its own name, not by the loader's"));
    };
    objects[..=first].rotate_right(1);
    Ok(objects)
}

/// The object whose code is in a mapping; else why it cannot be instrumented.
fn object(pid: i32, maps: &[Map], map: &Map, memory: &File) -> std::result::Result<Object, String> {
    let text: Vec<Map> = maps
        .iter()
        .filter(|m| m.file == map.file && m.is_code())
        .cloned()
        .collect();
    if text.iter().any(|m| m.rights != "r-xp") {
        return Err("its code can be written to".into());
    }
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end);
    let inside = Path::new("/proc")
        .join(format!("{pid}/root"))
        .join(map.path.strip_prefix("/").unwrap_or(&map.path));
    let mut reason = String::from("its file cannot be opened");
    for path in [map.path.clone(), inside, PathBuf::from(link)] {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        match compared(&text, &file, memory) {
            Ok(()) => {}
            Err(other) => {
                reason = other;
                continue;
            }
        }
        // SAFETY: the file is only read; one that is cut short meanwhile ends this command.
        let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| e.to_string())?;
        let headers = headers(&bytes).ok_or("it is no object")?;
        let biases = biases(&text, &headers).ok_or("it is mapped in an unusual way")?;
        // A runtime maps a part of its code again, near to the code that it makes, and runs the copy. The copy stays as it is.
        let size_at = |bias: u64| -> u64 {
            let own = text.iter().zip(&biases).filter(|(_, b)| **b == bias);
            own.map(|(m, _)| m.end - m.start).sum()
        };
        let bias = biases.iter().copied().max_by_key(|bias| size_at(*bias));
        let bias = bias.unwrap_or(0);
        let own = text.iter().zip(&biases).filter(|(_, b)| **b == bias);
        let own: Vec<Map> = own.map(|(m, _)| m.clone()).collect();
        if own.len() < text.len() {
            note(&format!(
                "{} has code that is mapped a second time; that copy is not instrumented",
                path.display()
            ));
        }
        return Ok(Object {
            path,
            bias,
            image: headers.image,
            code: headers.code.iter().map(|c| c[2]).sum(),
            text: own,
            file,
        });
    }
    Err(reason)
}

/// Of each mapping of code, the load bias that it has. `None` if one is of no segment.
fn biases(text: &[Map], headers: &Headers) -> Option<Vec<u64>> {
    let bias = |m: &Map| {
        let mut segments = headers.code.iter();
        let segment = segments
            .find(|[_, offset, size]| (offset / PAGE * PAGE..offset + size).contains(&m.offset));
        let [address, offset, _] = segment?;
        let in_file = address.wrapping_sub(*offset).wrapping_add(m.offset);
        Some(m.start.wrapping_sub(in_file))
    };
    text.iter().map(bias).collect()
}

/// Compares code in memory with its file.
fn compared(text: &[Map], file: &File, memory: &File) -> std::result::Result<(), String> {
    let size = file.metadata().map_err(|e| e.to_string())?.len();
    for map in text {
        let len = (map.end - map.start).min(size.saturating_sub(map.offset)) as usize;
        let (mut there, mut here) = (vec![0; len], vec![0; len]);
        memory
            .read_exact_at(&mut there, map.start)
            .map_err(|e| format!("its memory cannot be read: {e}"))?;
        file.read_exact_at(&mut here, map.offset)
            .map_err(|e| e.to_string())?;
        if there != here {
            return Err("its code is not that of its file: the file was replaced, or there are breakpoints or probes".into());
        }
    }
    Ok(())
}
