//! The limits of the address space and of its writable part (RLIMIT_AS, RLIMIT_DATA) that the application sets for itself.
//!
//! The kernel counts what the runtime and the tool have mapped, and what instrumented files have more than their
//! originals. So it gets limits that are higher by that, which follow what the runtime maps and unmaps. The application is shown
//! its own, and so is a program that it executes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys::call::{is_error, syscall};
use crate::sys::sandbox;

/// The soft limit and the hard one, in bytes.
pub(crate) type Limit = [u64; 2];

/// A resource that a limit is set for.
pub(crate) struct Resource {
    number: u32,
    /// Bytes of the instrumented files that the originals do not have; 0 if it is not known yet.
    images: AtomicU64,
    /// True if the application has set a limit.
    is_set: AtomicBool,
    /// The limit that the application has set.
    wanted: [AtomicU64; 2],
    /// The hard limit that the kernel has got for it.
    hard: AtomicU64,
}

/// The address space.
pub(crate) static ADDRESSES: Resource = Resource::new(libc::RLIMIT_AS);

/// What the process may write and does not share.
pub(crate) static DATA: Resource = Resource::new(libc::RLIMIT_DATA);

/// What the process may lock.
pub(crate) static LOCKED: Resource = Resource::new(libc::RLIMIT_MEMLOCK);

/// Bytes that the runtime and the tool have mapped, nearly all of them to write.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// True while the kernel has the application's own limits, as another program may be executed.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Bytes by which the hard limit is higher still, for what the runtime maps later: a hard limit is not raised again.
const SPARE: u64 = 1 << 40;

/// Adds `by` bytes to a limit of the application. `RLIM_INFINITY`, which is no limit, stays as it is.
fn raised(limit: u64, by: u64) -> u64 {
    match limit {
        libc::RLIM_INFINITY => limit,
        _ => limit.saturating_add(by).min(libc::RLIM_INFINITY - 1),
    }
}

impl Resource {
    const fn new(number: u32) -> Self {
        Self {
            number,
            images: AtomicU64::new(0),
            is_set: AtomicBool::new(false),
            wanted: [const { AtomicU64::new(0) }; 2],
            hard: AtomicU64::new(0),
        }
    }

    /// The kernel's limit now, after a new one is set if there is one; `None` if the kernel refuses.
    fn kernel(&self, new: Option<Limit>) -> Option<Limit> {
        let mut old = [0; 2];
        let new = new.as_ref().map_or(core::ptr::null(), |new| new.as_ptr());
        // SAFETY: the kernel reads one structure and writes the other.
        let answer =
            unsafe { syscall!(libc::SYS_prlimit64, 0, self.number, new, old.as_mut_ptr()) };
        (answer == 0).then_some(old)
    }

    /// The kernel's limit.
    pub(crate) fn now(&self) -> Option<Limit> {
        self.kernel(None)
    }

    /// Bytes that the application would not have without the tool.
    fn added(&self) -> u64 {
        mapped() + self.images.load(Ordering::Relaxed)
    }

    fn wanted(&self) -> Limit {
        self.wanted.each_ref().map(|l| l.load(Ordering::Relaxed))
    }

    /// The limit that the application has set; `None` if it has set none.
    pub(crate) fn shown(&self) -> Option<Limit> {
        self.is_set.load(Ordering::Acquire).then(|| self.wanted())
    }

    /// The soft limit that the application sees.
    pub(crate) fn soft(&self) -> u64 {
        let limit = self.shown().or_else(|| self.now());
        limit.map_or(libc::RLIM_INFINITY, |limit| limit[0])
    }

    /// True if it is known what instrumented files have more than their originals.
    pub(crate) fn are_images_known(&self) -> bool {
        self.images.load(Ordering::Relaxed) != 0
    }

    /// Notes what instrumented files have more than their originals.
    pub(crate) fn note_images(&self, bytes: u64) {
        self.images.store(bytes, Ordering::Relaxed);
    }

    /// Sets a limit of the application's. False if the kernel would refuse it.
    pub(crate) fn set(&self, limit: Limit) -> bool {
        let Some(now) = self.now() else {
            return false;
        };
        let seen = self.shown().unwrap_or(now);
        let mut hard = raised(limit[1], self.added().saturating_add(SPARE));
        let soft = raised(limit[0], self.added());
        if self.kernel(Some([soft, hard])).is_none() {
            // An ordinary user lowers a hard limit that is there already, or keeps it.
            hard = now[1];
            if limit[1] > seen[1] || self.kernel(Some([soft.min(hard), hard])).is_none() {
                return false;
            }
        }
        self.hard.store(hard, Ordering::Relaxed);
        self.wanted[0].store(limit[0], Ordering::Relaxed);
        self.wanted[1].store(limit[1], Ordering::Relaxed);
        self.is_set.store(true, Ordering::Release);
        true
    }

    /// Gives the kernel the limit of what is mapped now.
    #[cold]
    fn follow(&self) {
        if sandbox::is_allowed(libc::SYS_prlimit64) {
            IS_LEFT.store(false, Ordering::Relaxed);
            let hard = self.hard.load(Ordering::Relaxed);
            let soft = raised(self.wanted()[0], self.added()).min(hard);
            let _ = self.kernel(Some([soft, hard]));
        }
    }
}

/// Bytes that the runtime and the tool have mapped.
pub(crate) fn mapped() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

/// Has the limits that are set follow what is mapped.
fn follow() {
    for resource in [&ADDRESSES, &DATA] {
        if resource.is_set.load(Ordering::Relaxed) {
            resource.follow();
        }
    }
}

/// Counts `len` bytes for the runtime or the tool, and maps them by `map`, which returns the kernel's answer. If that is an
/// error, the bytes count no more.
pub(crate) fn mapping(len: usize, map: impl FnOnce() -> isize) -> isize {
    MAPPED.fetch_add(len as u64, Ordering::Relaxed);
    follow();
    let answer = map();
    if is_error(answer) {
        unmapped(len);
    }
    answer
}

/// Takes `len` bytes from the count of what the runtime and the tool have mapped.
pub(crate) fn unmapped(len: usize) {
    let less = |mapped: u64| Some(mapped.saturating_sub(len as u64));
    let _ = MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    follow();
}

/// Gives the kernel the application's own limits: a program may be executed, which has them then.
pub(crate) fn leave() {
    for resource in [&ADDRESSES, &DATA] {
        if let Some(limit) = resource.shown()
            && sandbox::is_allowed(libc::SYS_prlimit64)
        {
            IS_LEFT.store(true, Ordering::Relaxed);
            let _ = resource.kernel(Some(limit));
        }
    }
}

/// The application continues, as no program was executed.
pub(crate) fn stay() {
    if !IS_LEFT.load(Ordering::Relaxed) || !IS_LEFT.swap(false, Ordering::Relaxed) {
        return;
    }
    for resource in [&ADDRESSES, &DATA] {
        if let Some(limit) = resource.shown() {
            resource.set(limit);
        }
    }
}
