//! A lock between test threads and processes, held while its file is open.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// Waits for the lock with this file; it is released when the value is dropped.
pub fn exclusive(path: &Path) -> Result<File> {
    let fail = |e| Error::new("locking", e).file(path);
    let file = File::create(path).map_err(fail)?;
    file.lock().map_err(fail)?;
    Ok(file)
}
