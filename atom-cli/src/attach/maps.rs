//! What a process has mapped, by `/proc/PID/maps`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use atom_core::{Error, Result};

const DOING: &str = "looking at the process";

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// What may be done there, such as `r-xp`.
    pub rights: String,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Device and inode of the file as text; `00:00 0` if there is none.
    pub file: String,
    /// The file's path, or a name in brackets; may be empty.
    pub path: PathBuf,
}

impl Map {
    /// True if code runs there.
    pub fn is_code(&self) -> bool {
        self.rights.as_bytes()[2] == b'x'
    }

    /// True if a file is mapped.
    pub fn is_file(&self) -> bool {
        !self.file.ends_with(" 0")
    }

    /// True for memory without a file and without a name.
    pub fn is_anonymous(&self) -> bool {
        !self.is_file() && self.path.as_os_str().is_empty()
    }
}

/// All mappings of a process in the order of their addresses.
pub fn read(pid: i32) -> Result<Vec<Map>> {
    let file = format!("/proc/{pid}/maps");
    let text = fs::read(&file).map_err(|e| Error::new(DOING, e).file(&file))?;
    let maps: Vec<Map> = text.split(|b| *b == b'\n').filter_map(parse).collect();
    if maps.is_empty() {
        return Err(Error::new(
            DOING,
            "it has no memory: it is a kernel thread, or has ended",
        ));
    }
    Ok(maps)
}

fn parse(line: &[u8]) -> Option<Map> {
    let mut rest = line;
    let mut word = || {
        let start = rest.iter().position(|b| *b != b' ')?;
        let len = rest[start..].iter().position(|b| *b == b' ');
        let end = len.map_or(rest.len(), |len| start + len);
        let word = std::str::from_utf8(&rest[start..end]).ok()?;
        rest = &rest[end..];
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let rights = word()?.to_owned();
    let offset = number(word()?)?;
    let file = format!("{} {}", word()?, word()?);
    Some(Map {
        start,
        end,
        rights,
        offset,
        file,
        path: PathBuf::from(OsStr::from_bytes(rest.trim_ascii_start())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line =
            b"7f1a2000-7f1a3000 r-xp 0002a000 fe:00 1234                       /a b/c (deleted)";
        let map = parse(line).unwrap();
        assert_eq!(
            (map.start, map.end, map.offset),
            (0x7f1a_2000, 0x7f1a_3000, 0x2a000)
        );
        assert!(map.is_code() && map.is_file());
        assert_eq!(map.path.to_str(), Some("/a b/c (deleted)"));
        assert!(
            parse(b"7f1a2000-7f1a3000 rw-p 00000000 00:00 0 ")
                .unwrap()
                .is_anonymous()
        );
        assert_eq!(parse(b""), None);
        assert!(read(std::process::id() as i32).unwrap().len() > 3);
    }
}
