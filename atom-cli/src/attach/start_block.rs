//! What the runtime is shown in the place of the process's first stack: arguments, environment and auxiliary vector.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atom_abi::ATTACHED_BY;

/// The bytes as they are to be at an address. Words come first, as the kernel puts them, then the texts that they name.
pub fn bytes(pid: i32, folder: &Path, at: u64) -> Vec<u8> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (arguments, environment) = (read("cmdline"), read("environ"));
    let auxiliary = read("auxv");
    let texts = |bytes: &[u8]| {
        bytes
            .split_inclusive(|b| *b == 0)
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (arguments, environment) = (texts(&arguments), texts(&environment));
    let count = 1 + arguments.len() + 1 + environment.len() + 1 + 4 + auxiliary.len() / 8 + 2;
    let mut words: Vec<u64> = vec![arguments.len() as u64];
    let mut place = at + 8 * count as u64;
    let mut text = Vec::new();
    for list in [&arguments, &environment] {
        for word in list {
            words.push(place);
            text.extend(word);
            if word.last() != Some(&0) {
                text.push(0);
            }
            place = at + 8 * count as u64 + text.len() as u64;
        }
        words.push(0);
    }
    words.extend([
        ATTACHED_BY as u64,
        std::process::id().into(),
        libc::AT_EXECFN,
        place,
    ]);
    text.extend(folder.as_os_str().as_bytes());
    text.push(0);
    words.extend(
        auxiliary
            .chunks_exact(8)
            .map(|w| u64::from_ne_bytes(w.try_into().expect("eight bytes"))),
    );
    words.extend([0, 0]);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    bytes.extend(text);
    bytes
}

/// Bytes that are enough.
pub fn room(pid: i32, folder: &Path) -> u64 {
    bytes(pid, folder, 0).len() as u64
}
