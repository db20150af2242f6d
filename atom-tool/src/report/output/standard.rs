//! Standard output at ProgramAfter.
//!
//! Many programs close it before that: the programs of coreutils do so when they end, to learn
//! whether all output was written. Output of a tool after that would be lost, so a tool that
//! prints keeps a descriptor of its own from the start.

use std::ffi::{c_int, c_long, c_ulong};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use crate::{Place, Program, analysis};

/// The duplicated descriptor, and the identity of its file.
static KEPT: OnceLock<(File, [u64; 2])> = OnceLock::new();

fn identity(file: &File) -> io::Result<[u64; 2]> {
    file.metadata().map(|data| [data.dev(), data.ino()])
}

#[analysis]
fn keep() {
    // If there is no standard output, nothing is kept.
    let Ok(duplicate) = io::stdout().as_fd().try_clone_to_owned() else {
        return;
    };
    let file = File::from(duplicate);
    if let Ok(identity) = identity(&file) {
        let _ = KEPT.set((file, identity));
    }
}

/// Instrument side: has the program's standard output kept for [`stdout`], from the start to the end
/// of the process.
///
/// The descriptor keeps a pipe open: its reader waits also for a process that has closed its
/// standard output, such as a daemon. The descriptor has a high number and is closed by `exec`.
pub fn keep_stdout(program: &Program<'_>) {
    program.add_call(Place::Before, keep, ());
}

/// Analysis side: the program's standard output, as it was at the start if [`keep_stdout`] was called,
/// also where the program has closed it meanwhile.
pub fn stdout() -> Box<dyn Write> {
    match KEPT.get() {
        // The program may have closed all descriptors and opened another file with this number.
        Some((file, known)) if identity(file).is_ok_and(|now| now == *known) => Box::new(file),
        _ => Box::new(io::stdout().lock()),
    }
}

/// Analysis side: columns of the terminal that a report is written to, by its name; `None` if it is no terminal.
pub(crate) fn terminal(name: &str) -> Option<usize> {
    match name {
        "-" => match KEPT.get() {
            Some((file, _)) => columns(file.as_raw_fd()),
            None => columns(io::stdout().as_raw_fd()),
        },
        device if device.starts_with("/dev/") => {
            let file = File::options().write(true).open(device).ok()?;
            columns(file.as_raw_fd())
        }
        _ => None,
    }
}

fn columns(descriptor: c_int) -> Option<usize> {
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    const IOCTL: c_long = 16;
    const GET_WINDOW_SIZE: c_ulong = 0x5413;
    // Rows, columns, and two numbers of pixels.
    let mut size = [0u16; 4];
    // SAFETY: the kernel writes four numbers.
    let done = unsafe { syscall(IOCTL, descriptor, GET_WINDOW_SIZE, &raw mut size) };
    (done == 0 && size[1] > 0).then_some(usize::from(size[1]))
}
