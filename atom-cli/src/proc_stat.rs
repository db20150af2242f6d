//! What the kernel says of a process in `/proc/PID/stat`.

use std::fs;

/// When a process started, in clock ticks since the system's start; 0 if it cannot be found out.
pub fn start_time(process: u32) -> u64 {
    /// Number of fields between the command's name and the time.
    const BETWEEN: usize = 19;
    of_stat(process, BETWEEN).unwrap_or(0)
}

/// The parent of a process.
pub fn parent_of(process: u32) -> Option<u32> {
    of_stat(process, 1).map(|number| number as u32)
}

/// A number in what the kernel says of a process; `skipped` fields are between the command's name and the number.
fn of_stat(process: u32, skipped: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind.split_whitespace().nth(skipped)?.parse().ok()
}
