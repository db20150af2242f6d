//! The limit of the address space (RLIMIT_AS) that the application sets for itself.
//!
//! The kernel counts what the runtime and the tool have mapped, and what instrumented files have more than their
//! originals. So it gets a limit that is higher by that, which follows what the runtime maps and unmaps. The application is shown
//! its own, and so is a program that it executes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys::call::syscall;
use crate::sys::sandbox;

/// The soft limit and the hard one, in bytes.
pub(crate) type Limit = [u64; 2];

/// Bytes that the runtime and the tool have mapped.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes of the instrumented files that the originals do not have; 0 if it is not known yet.
static IMAGES: AtomicU64 = AtomicU64::new(0);

/// True if the application has set a limit.
static IS_SET: AtomicBool = AtomicBool::new(false);

/// The limit that the application has set.
static WANTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The hard limit that the kernel has got for it.
static HARD: AtomicU64 = AtomicU64::new(0);

/// True while the kernel has the application's own limit, as another program may be executed.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Bytes by which the hard limit is higher still, for what the runtime maps later: a hard limit is not raised again.
const SPARE: u64 = 1 << 40;

/// The kernel's limit now, after a new one is set if there is one; an error number if the kernel refuses.
fn kernel(new: Option<Limit>) -> Result<Limit, isize> {
    let mut old = [0; 2];
    let new = new.as_ref().map_or(core::ptr::null(), |new| new.as_ptr());
    // SAFETY: the kernel reads one structure and writes the other.
    let answer = unsafe {
        syscall!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_AS,
            new,
            old.as_mut_ptr()
        )
    };
    if answer == 0 { Ok(old) } else { Err(answer) }
}

/// A limit of the application with so many bytes more. No limit stays none.
fn raised(limit: u64, by: u64) -> u64 {
    match limit {
        libc::RLIM_INFINITY => limit,
        _ => limit.saturating_add(by).min(libc::RLIM_INFINITY - 1),
    }
}

/// Bytes that the application would not have without the tool.
fn added() -> u64 {
    MAPPED.load(Ordering::Relaxed) + IMAGES.load(Ordering::Relaxed)
}

fn wanted() -> Limit {
    WANTED.each_ref().map(|limit| limit.load(Ordering::Relaxed))
}

/// The limit that the application has set; `None` if it has set none.
pub(crate) fn shown() -> Option<Limit> {
    IS_SET.load(Ordering::Acquire).then(wanted)
}

/// The kernel's limit.
pub(crate) fn now() -> Option<Limit> {
    kernel(None).ok()
}

/// The soft limit that the application sees.
pub(crate) fn soft() -> u64 {
    let limit = shown().or_else(now);
    limit.map_or(libc::RLIM_INFINITY, |limit| limit[0])
}

/// True if it is known what instrumented files have more than their originals.
pub(crate) fn are_images_known() -> bool {
    IMAGES.load(Ordering::Relaxed) != 0
}

/// Notes what instrumented files have more than their originals.
pub(crate) fn note_images(bytes: u64) {
    IMAGES.store(bytes, Ordering::Relaxed);
}

/// Sets a limit of the application's. False if the kernel would refuse it.
pub(crate) fn set(limit: Limit) -> bool {
    let Some(now) = now() else {
        return false;
    };
    let seen = shown().unwrap_or(now);
    let mut hard = raised(limit[1], added().saturating_add(SPARE));
    let soft = raised(limit[0], added());
    if kernel(Some([soft, hard])).is_err() {
        // An ordinary user lowers a hard limit that is there already, or keeps it.
        hard = now[1];
        if limit[1] > seen[1] || kernel(Some([soft.min(hard), hard])).is_err() {
            return false;
        }
    }
    HARD.store(hard, Ordering::Relaxed);
    WANTED[0].store(limit[0], Ordering::Relaxed);
    WANTED[1].store(limit[1], Ordering::Relaxed);
    IS_SET.store(true, Ordering::Release);
    true
}

/// Gives the kernel the limit of what is mapped now.
#[cold]
fn follow() {
    if sandbox::is_allowed(libc::SYS_prlimit64) {
        IS_LEFT.store(false, Ordering::Relaxed);
        let hard = HARD.load(Ordering::Relaxed);
        let _ = kernel(Some([raised(wanted()[0], added()).min(hard), hard]));
    }
}

/// Tells that the runtime or the tool maps so many bytes next.
pub(crate) fn mapping(len: usize) {
    MAPPED.fetch_add(len as u64, Ordering::Relaxed);
    if IS_SET.load(Ordering::Relaxed) {
        follow();
    }
}

/// Tells that so many bytes are mapped no more, or could not be mapped.
pub(crate) fn unmapped(len: usize) {
    let less = |mapped: u64| Some(mapped.saturating_sub(len as u64));
    let _ = MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    if IS_SET.load(Ordering::Relaxed) {
        follow();
    }
}

/// Gives the kernel the application's own limit: a program may be executed, which has it then.
pub(crate) fn leave() {
    if let Some(limit) = shown()
        && sandbox::is_allowed(libc::SYS_prlimit64)
    {
        IS_LEFT.store(true, Ordering::Relaxed);
        let _ = kernel(Some(limit));
    }
}

/// The application continues, as no program was executed.
pub(crate) fn stay() {
    if IS_LEFT.load(Ordering::Relaxed) && IS_LEFT.swap(false, Ordering::Relaxed) {
        set(wanted());
    }
}
