//! Removes temporary files however the command ends.
//!
//! A returned error drops its `PendingFile`, which removes the file. A panic aborts and drops nothing,
//! and neither does a signal, so both call this module.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atom_core::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exhausted;
use crate::run::is_ignored_at_start;

/// Temporary files that exist now.
static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<PathBuf>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a temporary file. Call it before the file is made.
pub fn add(path: &Path) {
    files().push(path.to_path_buf());
}

/// Forgets a temporary file that has its final name now or has been removed.
pub fn forget(path: &Path) {
    files().retain(|p| p != path);
}

/// Removes all temporary files. Call it before ending the process.
pub fn remove_all() {
    for path in files().drain(..) {
        // The file may not exist yet, and an error could not be reported any more.
        let _ = std::fs::remove_file(path);
    }
}

/// Removes all temporary files if no other thread uses the list at this moment: for code that must not wait.
pub fn remove_if_free() {
    if let Ok(files) = FILES.try_lock() {
        for path in files.iter() {
            // As above.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Installs handlers: SIGINT, SIGTERM and SIGHUP remove the temporary files, then end the process. Those that
/// the process ignores by inheritance stay ignored.
pub fn on_signals() -> Result<()> {
    let ending = [SIGINT, SIGTERM, SIGHUP];
    let ending = ending.iter().filter(|s| !is_ignored_at_start(**s));
    let mut signals = signal_hook::iterator::Signals::new(ending)
        .map_err(|e| Error::new("preparing for signals", e.to_string()))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            remove_all();
            // Ends this process as the signal does by default.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Installs a panic hook, which removes the temporary files and reports a bug in `atom`.
pub fn on_panic() {
    std::panic::set_hook(Box::new(|info| {
        remove_all();
        if exhausted::is_cause(&info.to_string()) {
            exhausted::report();
            std::process::exit(1);
        }
        eprintln!(
            "atom: internal error: {info}\n  help: this is a bug in atom; please report it \
             with the command line, the program and the output of `atom --version`"
        );
        std::process::exit(1);
    }));
}
