//! Starting a program that was written a moment ago.
//!
//! Tests run on several threads. A process that one of them starts has for a moment all files of the
//! other threads open, and a program that is open for writing cannot be run (ETXTBSY). So starting waits and
//! tries again.

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
