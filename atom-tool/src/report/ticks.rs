//! When processes started, by the system.

/// Clock ticks in a second, in what Linux shows of processes.
const TICKS: f64 = 100.0;

/// When a process started, in clock ticks since the system's start; 0 if it cannot be found out.
pub fn start_time(process: u32) -> u64 {
    /// Number of fields between the command's name and the time.
    const BETWEEN: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after.split_whitespace().nth(BETWEEN);
    field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How long a process has been there, in seconds.
pub fn age(process: u32) -> Option<f64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let now: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    match start_time(process) {
        0 => None,
        start => Some((now - start as f64 / TICKS).max(0.0)),
    }
}
