//! The temporary files that exist now, so that they can be removed however the command ends.
//!
//! A returned error drops its [`PendingFile`](crate::file::PendingFile), which removes the file. A panic aborts and
//! drops nothing, and neither does a signal: the command calls [`remove_all`] then.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
