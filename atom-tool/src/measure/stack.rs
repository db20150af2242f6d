//! The mapping to which an address of a stack belongs.

use std::sync::atomic::{AtomicU32, Ordering};

/// The mapping around an address, start and end, as the kernel reports it. `None` if there is none, or
/// once the process has asked too often.
pub fn stack_around(address: u64) -> Option<(u64, u64)> {
    // Asking takes long, and few programs have more stacks.
    const MOST: u32 = 5000;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    if ASKED.fetch_add(1, Ordering::Relaxed) >= MOST {
        return None;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        (start..end).contains(&address).then_some((start, end))
    })
}
