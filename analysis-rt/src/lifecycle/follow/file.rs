//! Whether a file can be followed: whether the kernel certainly executes it, and whether the process that it
//! becomes has no more rights than this one.
//!
//! ABI: the ELF header and the program headers of ELF64; the first line of a script, `#!INTERPRETER ARGUMENT`.

use core::mem::MaybeUninit;

use crate::sys::call::syscall;

/// What becomes of an executed file.
pub(super) enum Verdict {
    /// It is not certain that the kernel executes it.
    Unknown,
    /// It runs as it is, for this reason.
    Unseen(&'static str),
    /// `atom` executes it.
    Followed,
}

/// The kernel follows this many scripts whose interpreters are scripts.
const MAX_SCRIPTS: usize = 4;
/// The kernel reads this many bytes of a script to find its interpreter.
const HEAD: usize = 256;
/// Size of the ELF header and of one program header.
const ELF_HEADER: usize = size_of::<libc::Elf64_Ehdr>();
const PROGRAM_HEADER: usize = size_of::<libc::Elf64_Phdr>();
/// More program headers than these are not looked at.
const MOST_HEADERS: usize = 64;

const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Looks at the file of a path.
///
/// # Safety
/// `path` is a string.
pub(super) unsafe fn judge(path: *const u8) -> Verdict {
    let mut name: [u8; HEAD];
    let mut path = path;
    for _ in 0..=MAX_SCRIPTS {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(libc::EACCES) => return Verdict::Unseen("it cannot be read"),
            Err(_) => return Verdict::Unknown,
        };
        let mut head = [0; HEAD];
        let len = file.read(&mut head, 0);
        let head = &head[..len];
        if head.starts_with(ELF_MAGIC) {
            return match file.privilege() {
                Some(reason) => Verdict::Unseen(reason),
                None => judge_elf(&file, head),
            };
        }
        let Some(interpreter) = interpreter(head) else {
            return Verdict::Unknown;
        };
        name = [0; HEAD];
        name[..interpreter.len()].copy_from_slice(interpreter);
        path = name.as_ptr();
        if !is_executable(path) {
            return Verdict::Unknown;
        }
    }
    Verdict::Unknown
}

/// An open file, which is closed with this value.
struct File(isize);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's.
        unsafe { syscall!(libc::SYS_close, self.0) };
    }
}

impl File {
    /// Opens a regular file; fails with an error number.
    fn open(path: *const u8) -> Result<Self, i32> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the kernel reads the path.
        let file = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) };
        if file < 0 {
            return Err(-file as i32);
        }
        let file = Self(file);
        match file.mode() & libc::S_IFMT {
            libc::S_IFREG => Ok(file),
            _ => Err(libc::EINVAL),
        }
    }

    /// The file's type and permissions.
    fn mode(&self) -> u32 {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel writes the structure, or answers with an error.
        unsafe {
            match syscall!(libc::SYS_fstat, self.0, stat.as_mut_ptr()) {
                0 => stat.assume_init().st_mode,
                _ => 0,
            }
        }
    }

    /// Reads bytes at an offset; returns their number.
    fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        // SAFETY: the kernel writes at most the number of bytes given.
        let len = unsafe {
            let at = bytes.as_mut_ptr();
            syscall!(libc::SYS_pread64, self.0, at, bytes.len(), offset)
        };
        len.max(0) as usize
    }

    /// Why a process that executes the file may do more than this one.
    fn privilege(&self) -> Option<&'static str> {
        let mode = self.mode();
        // Without the permission to execute for the group the bit means mandatory locking.
        let of_group = libc::S_ISGID | libc::S_IXGRP;
        if mode & libc::S_ISUID != 0 {
            return Some("it is set-user-ID");
        }
        if mode & of_group == of_group {
            return Some("it is set-group-ID");
        }
        let name = c"security.capability".as_ptr();
        // SAFETY: the kernel reads the name and writes nothing, as the size is 0.
        let size = unsafe { syscall!(libc::SYS_fgetxattr, self.0, name, 0, 0) };
        (size >= 0).then_some("it has file capabilities")
    }
}

/// Looks at an ELF file, whose first bytes are `head`.
fn judge_elf(file: &File, head: &[u8]) -> Verdict {
    if head.len() < ELF_HEADER {
        return Verdict::Unknown;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if head[libc::EI_CLASS] != libc::ELFCLASS64
        || head[libc::EI_DATA] != libc::ELFDATA2LSB
        || half(18) != libc::EM_X86_64
    {
        return Verdict::Unseen("it is for another architecture");
    }
    let (kind, size, count) = (half(16), half(54) as usize, half(56) as usize);
    let is_program = kind == libc::ET_EXEC || kind == libc::ET_DYN;
    if !is_program || size != PROGRAM_HEADER || !(1..=MOST_HEADERS).contains(&count) {
        return Verdict::Unknown;
    }
    let headers = word(head, 32);
    for i in 0..count {
        let mut header = [0; PROGRAM_HEADER];
        let offset = headers.wrapping_add((i * PROGRAM_HEADER) as u64);
        if file.read(&mut header, offset) != PROGRAM_HEADER {
            return Verdict::Unknown;
        }
        if header[..4] == libc::PT_INTERP.to_le_bytes() {
            return judge_interpreter(file, word(&header, 8), word(&header, 32));
        }
    }
    Verdict::Followed
}

/// Looks at the program interpreter whose path is in a file.
fn judge_interpreter(file: &File, offset: u64, size: u64) -> Verdict {
    let mut path = [0; HEAD];
    let Some(path) = path.get_mut(..size as usize) else {
        return Verdict::Unknown;
    };
    let is_whole = file.read(path, offset) == path.len() && path.last() == Some(&0);
    if is_whole && is_executable(path.as_ptr()) {
        Verdict::Followed
    } else {
        Verdict::Unknown
    }
}

/// The 8-byte number at an offset.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Whether the kernel may execute the file of a path.
fn is_executable(path: *const u8) -> bool {
    // SAFETY: the kernel reads the string.
    unsafe { syscall!(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::X_OK) == 0 }
}

/// The interpreter that a script names in its first line; `None` if it is no script, or its line is longer
/// than what the kernel reads.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let rest = head.strip_prefix(b"#!")?;
    let end = rest.iter().position(|b| *b == b'\n');
    // A script may consist of its first line.
    let line = match end {
        Some(end) => &rest[..end],
        None if head.len() < HEAD => rest,
        None => return None,
    };
    let start = line.iter().position(|b| !is_space(b))?;
    let line = &line[start..];
    let end = line.iter().position(is_space).unwrap_or(line.len());
    let name = &line[..end];
    (!name.is_empty() && name.len() < HEAD && !name.contains(&0)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_found_in_first_lines() {
        let found = |head: &str| interpreter(head.as_bytes()).map(|n| n.to_vec());
        assert_eq!(found("#!/bin/sh\nexit"), Some(b"/bin/sh".to_vec()));
        assert_eq!(found("#! \t/bin/sh -e x\n"), Some(b"/bin/sh".to_vec()));
        assert_eq!(found("#!/bin/sh"), Some(b"/bin/sh".to_vec()));
        assert_eq!(found("#!\n"), None);
        assert_eq!(found("exit 0\n"), None);
        assert_eq!(found(&format!("#!/{}", "x".repeat(300))), None);
    }

    #[test]
    fn programs_are_followed_and_text_is_not() {
        let judge = |path: &core::ffi::CStr| unsafe { judge(path.as_ptr().cast()) };
        assert!(matches!(judge(c"/bin/sh"), Verdict::Followed));
        assert!(matches!(judge(c"/etc/passwd"), Verdict::Unknown));
        assert!(matches!(judge(c"/etc"), Verdict::Unknown));
        assert!(matches!(judge(c"/no/such/file"), Verdict::Unknown));
    }
}
