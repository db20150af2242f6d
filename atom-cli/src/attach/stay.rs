//! Measuring while the command has ended (`--stay`): a second process of the command enters, measures and leaves.
//!
//! The first one waits until the second has entered, so that what fails is told and has its exit code. From then on the second is in a new
//! session, without a terminal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::ExitCode;

use atom_core::{Error, Result};

use crate::message::note;

const DOING: &str = "staying with the process";

/// What the second process says when it has entered.
const ENTERED: u8 = 1;

/// Which of the two processes this is.
pub enum Side {
    /// The first, which ends with this exit code.
    First(ExitCode),
    /// The second.
    Second(Second),
}

/// What the second process has.
pub struct Second {
    /// A pipe to the first.
    pipe: File,
    /// `/dev/null`.
    nowhere: File,
}

/// Makes the second process. Nothing of this command has started a thread yet.
pub fn divide(pid: i32) -> Result<Side> {
    let fail = |e: io::Error| Error::new(DOING, e);
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere = nowhere.map_err(fail)?;
    let mut pipe = [0; 2];
    // SAFETY: system calls; the descriptors are new, and nobody else has them. There is one thread, so the child's memory is whole.
    let (child, mut read, write) = unsafe {
        if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        let [read, write] = pipe.map(|fd| File::from_raw_fd(fd));
        (libc::fork(), read, write)
    };
    match child {
        -1 => Err(fail(io::Error::last_os_error())),
        0 => Ok(Side::Second(Second {
            pipe: write,
            nowhere,
        })),
        _ => {
            drop(write);
            let mut said = Vec::new();
            read.read_to_end(&mut said).map_err(fail)?;
            if said != [ENTERED] {
                return Ok(Side::First(code_of(child)));
            }
            let folder = std::env::current_dir().map_err(fail)?;
            note(&format!(
                "`atom ctl {pid} report` says what was measured so far, `atom ctl {pid} detach` leaves; the report is written then, in {}",
                folder.display()
            ));
            Ok(Side::First(ExitCode::SUCCESS))
        }
    }
}

impl Second {
    /// The process is entered: gives up the terminal, and lets the first one end.
    pub fn settle(mut self) {
        // SAFETY: system calls; the standard descriptors are nobody's value.
        unsafe {
            // It leads no group, so this does not fail.
            libc::setsid();
            for standard in 0..=libc::STDERR_FILENO {
                libc::dup2(self.nowhere.as_raw_fd(), standard);
            }
        }
        // Without the first one nobody has to be told.
        self.pipe.write_all(&[ENTERED]).unwrap_or_default();
    }
}

/// Waits for a child; its exit code.
fn code_of(child: i32) -> ExitCode {
    let mut status = 0;
    // SAFETY: the kernel writes a status.
    let is_there = unsafe { libc::waitpid(child, &mut status, 0) } == child;
    if is_there && libc::WIFEXITED(status) {
        ExitCode::from(libc::WEXITSTATUS(status) as u8)
    } else {
        ExitCode::FAILURE
    }
}
