//! Starting a program that was written a moment ago.
//!
//! Tests run on several threads. While one of them starts a process, that
//! process has for a moment every file of the others open, and a program that
//! is open for writing cannot be run (ETXTBSY): wait, and try again.

use std::io;
use std::process::{Child, Command};
use std::time::Duration;

const TRIES: u32 = 200;

/// Starts the command.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 1..TRIES {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
    command.spawn()
}
