//! The files with the records of runs: in the store's folder `records`, each named by the process that waits for the
//! program, its number and its start time.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::proc_stat::start_time;

/// The folder's name.
const FOLDER: &str = "records";
/// What the names of records begin with.
const START: &str = "said-";

/// The folder of the records in the store.
pub fn folder(store: &Path) -> PathBuf {
    store.join(FOLDER)
}

/// The part of a record's path that is the same in all runs.
pub fn stem(store: &Path) -> PathBuf {
    folder(store).join(START)
}

/// The record for which a process waits.
pub fn of(store: &Path, waiter: u32) -> PathBuf {
    let mut file = stem(store).into_os_string();
    file.push(format!("{waiter}-{}", start_time(waiter)));
    file.into()
}

/// The file whose name is a record's and a suffix.
pub fn beside(record: &Path, suffix: &str) -> PathBuf {
    let mut file = record.as_os_str().to_os_string();
    file.push(suffix);
    file.into()
}

/// Removes the records of runs that were killed, and what is beside them.
pub fn clean_up(store: &Path) {
    let files = fs::read_dir(folder(store)).into_iter().flatten().flatten();
    for found in files.map(|f| f.path()) {
        let name = found
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        let ends = [atom_abi::CONTROL_SUFFIX, atom_abi::report::SUFFIX];
        let stems = ends.iter().find_map(|end| name.strip_suffix(end));
        let name = stems.unwrap_or(name);
        let numbers = name.strip_prefix(START).and_then(|n| n.split_once('-'));
        let waiter = numbers.and_then(|(waiter, _)| waiter.parse().ok());
        if waiter.is_some_and(|waiter| of(store, waiter) != found.with_file_name(name)) {
            fs::remove_file(found).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_runs_that_ended_are_removed() {
        let store = std::env::temp_dir().join(format!("atom-records-{}", std::process::id()));
        fs::create_dir_all(folder(&store)).unwrap();
        let record = of(&store, std::process::id());
        let old = folder(&store).join(format!("{START}1-1"));
        fs::write(&record, "").unwrap();
        fs::write(&old, "").unwrap();
        clean_up(&store);
        assert!(record.exists() && !old.exists());
        fs::remove_dir_all(&store).unwrap();
    }
}
