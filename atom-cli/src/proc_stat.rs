//! What the kernel says of a process, or of a thread, in `/proc/PID/stat` and `/proc/PID/status`.

use std::fs;

/// When a process started, in clock ticks since the system's start; 0 if it cannot be found out.
pub fn start_time(process: u32) -> u64 {
    /// Number of fields between the command's name and the time.
    const BETWEEN: usize = 19;
    of_stat(process, BETWEEN).unwrap_or(0)
}

/// Where a process's heap starts, whether there is one yet or not; `None` if the kernel does not say it.
pub fn heap_of(process: u32) -> Option<u64> {
    /// Number of fields between the command's name and the address.
    const BETWEEN: usize = 44;
    of_stat(process, BETWEEN).filter(|address| *address != 0)
}

/// The parent of a process.
pub fn parent_of(process: u32) -> Option<u32> {
    of_stat(process, 1).map(|number| number as u32)
}

/// The state of a process or thread, such as `S`; `None` if there is none.
pub fn state_of(task: u32) -> Option<char> {
    word_of_stat(task, 0)?.chars().next()
}

/// What `/proc/PID/status` has after a name and its colon; empty if it has none.
pub fn status(process: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

/// A number in what the kernel says of a process; `skipped` fields are between the command's name and the number.
fn of_stat(process: u32, skipped: usize) -> Option<u64> {
    word_of_stat(process, skipped)?.parse().ok()
}

fn word_of_stat(task: u32, skipped: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind.split_whitespace().nth(skipped).map(str::to_owned)
}
