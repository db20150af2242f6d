//! Counters by `perf_event_open`, and reading them without a system call.
//!
//! Format: `struct perf_event_attr` of `linux/perf_event.h`, first version (64 bytes) with
//! the flags that are used here. The kernel accepts the size that it is told.
//!
//! A counter of the processor may be read by the program itself (`rdpmc`). The page that is
//! mapped for the counter tells which of the processor's registers it is at the moment, and what
//! to add. The kernel changes the page when it moves the thread or the counter, so a reader
//! looks at a sequence number before and after ([`read_page`]).

use std::alloc::Layout;
use std::ffi::{c_int, c_long, c_ulong};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

const SYS_READ: c_long = 0;
const SYS_CLOSE: c_long = 3;
const SYS_MMAP: c_long = 9;
const SYS_PERF_EVENT_OPEN: c_long = 298;
const PAGE: usize = 4096;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn fcntl(file: c_int, command: c_int, ...) -> c_int;
    safe fn __errno_location() -> *mut c_int;
}

fn errno() -> i32 {
    // SAFETY: the address of the thread's own word.
    unsafe { *__errno_location() }
}

/// `struct perf_event_attr`, first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const CLOSE_ON_EXEC: c_ulong = 1 << 3;
/// `read` gives value, time enabled, time running.
const WITH_TIMES: u64 = 1 | 2;

/// What a counter tells.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reading {
    /// What has been counted.
    pub value: u64,
    /// Nanoseconds for which the counter was wanted.
    pub enabled: u64,
    /// Nanoseconds for which it counted: fewer if it shares the processor's register.
    pub running: u64,
}

impl Reading {
    /// The value for the whole time, as far as it can be concluded; none if it never counted.
    pub fn scaled(self) -> Option<u64> {
        match self.running {
            0 if self.enabled == 0 => Some(self.value),
            0 => None,
            running if running >= self.enabled => Some(self.value),
            running => {
                let value = u128::from(self.value) * u128::from(self.enabled);
                u64::try_from(value / u128::from(running)).ok()
            }
        }
    }
}

/// The beginning of `struct perf_event_mmap_page`.
#[repr(C)]
#[derive(Default, Debug)]
pub struct Page {
    version: AtomicU32,
    compat_version: AtomicU32,
    /// Odd, or changed, while the kernel writes.
    pub lock: AtomicU32,
    /// The processor's register, counted from 1; 0 if the counter is in none.
    pub index: AtomicU32,
    /// What is to be added to the register.
    pub offset: AtomicU64,
    /// Nanoseconds that the event was wanted.
    pub time_enabled: AtomicU64,
    /// Nanoseconds that it was counted.
    pub time_running: AtomicU64,
    /// Bit 2: the program may read registers.
    pub capabilities: AtomicU64,
    /// Bits of a register.
    pub width: AtomicU16,
}

const MAY_READ: u64 = 1 << 2;

/// Reads a counter through its page; `register` reads one of the processor's registers. None
/// if the page does not allow it or the counter is in no register: then `read` has to do.
///
/// The times are those of the last moment at which the kernel wrote the page.
#[inline]
pub fn read_page(page: &Page, mut register: impl FnMut(u32) -> u64) -> Option<Reading> {
    // A page that never settles would be the kernel's fault; the system call answers then.
    for _ in 0..100 {
        let before = page.lock.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let reading = page_contents(page, &mut register);
        fence(Ordering::SeqCst);
        if before & 1 == 0 && page.lock.load(Ordering::Relaxed) == before {
            return reading;
        }
    }
    None
}

#[inline]
fn page_contents(page: &Page, register: &mut impl FnMut(u32) -> u64) -> Option<Reading> {
    let index = page.index.load(Ordering::Relaxed);
    if index == 0 || page.capabilities.load(Ordering::Relaxed) & MAY_READ == 0 {
        return None;
    }
    // Registers have 40 or 48 bits, the topmost of which is a sign.
    let unused = 64u32.saturating_sub(page.width.load(Ordering::Relaxed).into()) & 63;
    let raw = register(index - 1) << unused;
    let count = (raw as i64 >> unused) as u64;
    Some(Reading {
        value: count.wrapping_add(page.offset.load(Ordering::Relaxed)),
        enabled: page.time_enabled.load(Ordering::Relaxed),
        running: page.time_running.load(Ordering::Relaxed),
    })
}

/// A counter of the running thread, in user mode.
#[derive(Debug)]
pub struct Counter {
    file: c_int,
    page: Option<Mapped>,
}

impl Counter {
    /// Opens one that counts from now on, alone or with the group of another one, so that
    /// they count at the same time or not at all.
    ///
    /// # Errors
    /// The error number of `perf_event_open`.
    pub fn open(kind: u32, config: u64, leader: Option<&Self>) -> Result<Self, i32> {
        // What the kernel counts itself happens in the kernel.
        const SOFTWARE: u32 = 1;
        let user_only = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
        let tries: &[u64] = match kind {
            SOFTWARE => &[0, user_only],
            _ => &[user_only],
        };
        let group = leader.map_or(-1, |leader| leader.file);
        let mut error = 0;
        for flags in tries {
            let attributes = Attributes {
                kind,
                size: size_of::<Attributes>() as u32,
                config,
                read_format: WITH_TIMES,
                flags: *flags,
                ..Attributes::default()
            };
            let at = &raw const attributes;
            // SAFETY: the kernel reads the attributes and makes a file.
            let file =
                unsafe { syscall(SYS_PERF_EVENT_OPEN, at, 0, -1, group, CLOSE_ON_EXEC) } as c_int;
            if file >= 0 {
                return Ok(Self {
                    file: out_of_the_way(file),
                    page: None,
                });
            }
            error = errno();
        }
        Err(error)
    }

    /// Maps its page, so that [`Self::read`] need not ask the kernel. False if that does not help.
    pub fn map(&mut self) -> bool {
        // In place of a page from the heap, which is where it is in nobody's way.
        let Some(page) = Layout::from_size_align(PAGE, PAGE).ok().and_then(|layout| {
            // SAFETY: of a size that is not 0.
            NonNull::new(unsafe { std::alloc::alloc(layout) })
        }) else {
            return false;
        };
        let mut mapped = Mapped(page);
        if !mapped.replace(SHARED | FIXED, READ, self.file) {
            return false;
        }
        if mapped.page().capabilities.load(Ordering::Relaxed) & MAY_READ == 0 {
            return false;
        }
        self.page = Some(mapped);
        true
    }

    /// True if it is read without a system call.
    pub fn is_mapped(&self) -> bool {
        self.page.is_some()
    }

    /// What it has counted; none if its file has been closed by somebody else.
    #[inline]
    pub fn read(&self) -> Option<Reading> {
        if let Some(mapped) = &self.page
            && let Some(reading) = read_page(mapped.page(), read_register)
        {
            return Some(reading);
        }
        self.ask()
    }

    /// The same, by a system call: the times are up to date.
    pub fn ask(&self) -> Option<Reading> {
        let mut words = [0u64; 3];
        let size = size_of_val(&words);
        // SAFETY: `size` bytes may be written.
        let read = unsafe { syscall(SYS_READ, self.file, words.as_mut_ptr(), size) };
        let [value, enabled, running] = words;
        (read == size as c_long).then_some(Reading {
            value,
            enabled,
            running,
        })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.page = None;
        // SAFETY: its own file.
        unsafe { syscall(SYS_CLOSE, self.file) };
    }
}

/// Gives a file another number, which the runtime of analysis routines chooses so that it is not
/// in the program's way.
fn out_of_the_way(file: c_int) -> c_int {
    const F_DUPFD_CLOEXEC: c_int = 1030;
    // SAFETY: its own file.
    unsafe {
        let moved = fcntl(file, F_DUPFD_CLOEXEC, 0usize);
        if moved < 0 {
            return file;
        }
        syscall(SYS_CLOSE, file);
        moved
    }
}

const READ: c_int = 1;
const WRITE: c_int = 2;
const SHARED: c_int = 1;
const PRIVATE: c_int = 2;
const FIXED: c_int = 0x10;
const ANONYMOUS: c_int = 0x20;

/// A page of the heap in whose place a counter's page is mapped.
#[derive(Debug)]
struct Mapped(NonNull<u8>);

impl Mapped {
    fn page(&self) -> &Page {
        // SAFETY: the kernel's page, which only it writes, as long as this lives.
        unsafe { self.0.cast().as_ref() }
    }

    fn replace(&mut self, flags: c_int, protection: c_int, file: c_int) -> bool {
        let at = self.0.as_ptr();
        // SAFETY: a page that is this one's own.
        unsafe { syscall(SYS_MMAP, at, PAGE, protection, flags, file, 0usize) == at as c_long }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // If the page cannot become what it was, it is not given back.
        if self.replace(PRIVATE | FIXED | ANONYMOUS, READ | WRITE, -1)
            && let Ok(layout) = Layout::from_size_align(PAGE, PAGE)
        {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.0.as_ptr(), layout) };
        }
    }
}

/// `rdpmc`: allowed where the page of a counter says so.
#[inline]
fn read_register(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: only after the kernel has said that the program may.
    unsafe {
        std::arch::asm!(
            "rdpmc",
            in("ecx") index, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::Relaxed;

    fn page(index: u32, offset: u64, width: u16) -> Page {
        Page {
            index: index.into(),
            offset: offset.into(),
            width: width.into(),
            capabilities: MAY_READ.into(),
            time_enabled: 900.into(),
            time_running: 300.into(),
            ..Page::default()
        }
    }

    #[test]
    fn offsets_are_where_the_kernel_has_them() {
        let offsets = [
            std::mem::offset_of!(Page, lock),
            std::mem::offset_of!(Page, index),
            std::mem::offset_of!(Page, offset),
            std::mem::offset_of!(Page, time_enabled),
            std::mem::offset_of!(Page, capabilities),
            std::mem::offset_of!(Page, width),
        ];
        assert_eq!(offsets, [8, 12, 16, 24, 40, 48]);
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn a_register_is_extended_by_its_sign() {
        let wide = page(3, 1000, 48);
        let reading = read_page(&wide, |index| {
            assert_eq!(index, 2);
            (1 << 48) - 5
        });
        assert_eq!(reading.unwrap().value, 995);
        let narrow = page(1, 1 << 40, 40);
        let reading = read_page(&narrow, |_| 7).unwrap();
        assert_eq!(reading.value, (1 << 40) + 7);
        // The processor may give more bits than the register has.
        let reading = read_page(&narrow, |_| 7 | 0xff << 40).unwrap();
        assert_eq!(reading.value, (1 << 40) + 7);
        let full = page(1, 0, 64);
        assert_eq!(read_page(&full, |_| u64::MAX).unwrap().value, u64::MAX);
    }

    #[test]
    fn what_is_in_no_register_is_not_read() {
        assert_eq!(read_page(&page(0, 1, 48), |_| panic!()), None);
        let forbidden = page(1, 1, 48);
        forbidden.capabilities.store(0, Relaxed);
        assert_eq!(read_page(&forbidden, |_| panic!()), None);
    }

    #[test]
    fn a_reader_waits_for_the_kernel() {
        // The counter moves to another register while it is read.
        let moving = page(1, 100, 48);
        let mut reads = Vec::new();
        let reading = read_page(&moving, |index| {
            reads.push(index);
            if reads.len() == 1 {
                moving.lock.fetch_add(1, Relaxed);
                moving.index.store(5, Relaxed);
                moving.offset.store(200, Relaxed);
                moving.lock.fetch_add(1, Relaxed);
            }
            10
        });
        assert_eq!(reading.unwrap().value, 210);
        assert_eq!(reads, [0, 4]);
        // A page that never settles ends in a system call.
        let torn = page(1, 100, 48);
        let reading = read_page(&torn, |_| {
            torn.lock.fetch_add(1, Relaxed);
            10
        });
        assert_eq!(reading, None);
    }

    #[test]
    fn a_shared_counter_is_scaled() {
        let reading = read_page(&page(1, 0, 48), |_| 100).unwrap();
        assert_eq!((reading.enabled, reading.running), (900, 300));
        assert_eq!(reading.scaled(), Some(300));
        let never = Reading {
            enabled: 5,
            ..Reading::default()
        };
        assert_eq!(never.scaled(), None);
        let all = Reading {
            value: u64::MAX,
            enabled: 5,
            running: 5,
        };
        assert_eq!(all.scaled(), Some(u64::MAX));
        assert_eq!(Reading::default().scaled(), Some(0));
    }

    #[test]
    fn the_kernel_counts_page_faults_or_says_why_not() {
        const SOFTWARE: u32 = 1;
        const FAULTS: u64 = 2;
        match Counter::open(SOFTWARE, FAULTS, None) {
            Ok(mut counter) => {
                assert!(
                    !counter.map(),
                    "the kernel's own counters are in no register"
                );
                let before = counter.read().unwrap();
                let pages = vec![1u8; 64 * PAGE];
                std::hint::black_box(&pages);
                let after = counter.read().unwrap();
                assert!(after.value >= before.value + 32, "{before:?} {after:?}");
                assert!(after.enabled > before.enabled);
            }
            Err(error) => assert!([1, 13, 38].contains(&error), "{error}"),
        }
    }
}
