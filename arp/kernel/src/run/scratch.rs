//! Trying something without effects on the program: in a child process.
//!
//! The child has a copy of all memory and no open files. It raises no signal when it ends, and a
//! program that waits for its children does not find it.

use std::time::{Duration, Instant};

/// Time after which the child is killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest size in bytes of writable memory that is compared.
const MOST_COMPARED: usize = 64 << 20;
/// `__WALL`: waits also for children that raise no signal when they end.
const WALL: usize = 0x4000_0000;

/// Calls `work` in a child, which returns `count` numbers. `None` if that fails.
pub fn in_child(count: usize, work: impl FnOnce() -> Vec<f64>) -> Option<Vec<f64>> {
    let size = (count + 1) * size_of::<f64>();
    // SAFETY: fresh memory, shared with the child; the system calls have no other effect on memory.
    unsafe {
        let shared = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if shared == libc::MAP_FAILED {
            return None;
        }
        let numbers = shared.cast::<f64>();
        // No flags: a copy of the process, on a copy of this stack, without a signal at its end.
        let child = libc::syscall(libc::SYS_clone, 0usize, 0usize, 0usize, 0usize, 0usize);
        if child == 0 {
            libc::syscall(libc::SYS_close_range, 0usize, u32::MAX as usize, 0usize);
            let found = work();
            if found.len() == count {
                std::ptr::copy_nonoverlapping(found.as_ptr(), numbers.add(1), count);
                // This marks the numbers as complete.
                numbers.write_volatile(1.0);
            }
            loop {
                libc::syscall(libc::SYS_exit_group, 0usize);
            }
        }
        let is_complete = child > 0 && is_well(child as usize) && numbers.read_volatile() == 1.0;
        let found = is_complete.then(|| std::slice::from_raw_parts(numbers.add(1), count).to_vec());
        libc::munmap(shared, size);
        found
    }
}

/// Waits for the child's end; true if it ended without an error.
fn is_well(child: usize) -> bool {
    const NOHANG: usize = 1;
    const KILL: usize = 9;
    let mut status = 0i32;
    let start = Instant::now();
    let mut options = NOHANG | WALL;
    loop {
        // SAFETY: a place for the status.
        let r = unsafe { libc::syscall(libc::SYS_wait4, child, &raw mut status, options, 0usize) };
        if r == child as libc::c_long {
            return status == 0;
        }
        if r < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return false;
        }
        if start.elapsed() > PATIENCE && options & NOHANG != 0 {
            // SAFETY: the child that was made above and not yet waited for.
            unsafe { libc::syscall(libc::SYS_kill, child, KILL) };
            options = WALL;
        }
        if options & NOHANG != 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A variable in the memory that is compared.
static NEARBY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// True if `work` changes the writable memory that holds this crate's variables, or if that
/// cannot be found out.
pub fn changes(work: impl FnOnce()) -> bool {
    let Some((start, end)) = writable() else {
        return true;
    };
    let size = end - start;
    let mut copy: Vec<u8> = Vec::with_capacity(size);
    // SAFETY: the kernel said that it can be read. Nothing else runs in this process; it is
    // compared as bytes, through pointers, as variables of any kind are there.
    unsafe {
        std::ptr::copy_nonoverlapping(start as *const u8, copy.as_mut_ptr(), size);
        work();
        (0..size)
            .any(|i| (start as *const u8).add(i).read_volatile() != copy.as_ptr().add(i).read())
    }
}

/// Start and end of the writable memory around a variable of this crate.
fn writable() -> Option<(usize, usize)> {
    let here = &raw const NEARBY as usize;
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut run: Option<(usize, usize)> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        if !rights.starts_with("rw") {
            continue;
        }
        run = match run {
            Some((first, last)) if last == start => Some((first, end)),
            Some((first, last)) if (first..last).contains(&here) => break,
            _ => Some((start, end)),
        };
    }
    run.filter(|(start, end)| (*start..*end).contains(&here) && end - start <= MOST_COMPARED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_is_done_in_a_child_is_not_done_here() {
        let before = NEARBY.load(Relaxed);
        let found = in_child(2, || {
            NEARBY.fetch_add(1, Relaxed);
            vec![NEARBY.load(Relaxed) as f64, 7.5]
        });
        assert_eq!(found, Some(vec![before as f64 + 1.0, 7.5]));
        assert_eq!(NEARBY.load(Relaxed), before);
        assert_eq!(in_child(1, Vec::new), None);
        // SAFETY: it ends the child.
        let killed = in_child(1, || unsafe { libc::abort() });
        assert_eq!(killed, None);
    }
}
