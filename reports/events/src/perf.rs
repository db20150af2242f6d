//! Counters by `perf_event_open`, and reading them without a system call.
//!
//! ABI: `struct perf_event_attr` of `linux/perf_event.h`, in its first version of 64 bytes; the kernel takes the
//! version from the size.
//!
//! The program itself may read a counter of the processor (`rdpmc`). The page that is
//! mapped for the counter holds the number of the register that has the counter at the moment, and a summand. The kernel
//! changes the page when it moves the thread or the counter, so a reader
//! compares a sequence number before and after ([`read_page`]).

use std::alloc::Layout;
use std::ffi::{c_int, c_long, c_ulong};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// `PERF_TYPE_HARDWARE`: generic events of the processor.
pub(crate) const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`: events that the kernel counts itself.
pub(crate) const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_HW_CACHE`: generic events of the processor's caches.
pub(crate) const TYPE_CACHE: u32 = 3;
/// `PERF_TYPE_RAW`: events of the processor by its own codes.
pub(crate) const TYPE_RAW: u32 = 4;

/// Size of a page in bytes; x86-64 has no other base size.
const PAGE: usize = 4096;

fn errno() -> i32 {
    // SAFETY: the address of the thread's own word.
    unsafe { *libc::__errno_location() }
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

/// `exclude_kernel`: counts in user mode only.
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// `exclude_hv`.
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: c_ulong = 1 << 3;
/// Flags of `read_format`: `read` gives value, time enabled, time running.
const WITH_TIMES: u64 = 1 | 2;

/// A counter's value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reading {
    /// Number of events.
    pub value: u64,
    /// Time in nanoseconds for which the counter was enabled.
    pub enabled: u64,
    /// Time in nanoseconds for which it counted: less if it shares a register of the processor.
    pub running: u64,
}

impl Reading {
    /// The value, scaled up to the whole time; `None` if the counter never counted.
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
    /// Summand of the register's value.
    pub offset: AtomicU64,
    /// Time in nanoseconds for which the event was enabled.
    pub time_enabled: AtomicU64,
    /// Time in nanoseconds for which it was counted.
    pub time_running: AtomicU64,
    /// Bit 2: the program may read registers.
    pub capabilities: AtomicU64,
    /// Width of a register in bits.
    pub width: AtomicU16,
}

/// `cap_user_rdpmc`.
const MAY_READ: u64 = 1 << 2;

/// Reads a counter through its page; `register` reads one of the processor's registers. `None`
/// if the page does not allow it or the counter is in no register; then the system call `read` is needed.
///
/// The times are as old as the kernel's last change of the page.
#[inline]
pub fn read_page(page: &Page, mut register: impl FnMut(u32) -> u64) -> Option<Reading> {
    // A page that changes all the time would be the kernel's fault. The system call helps then.
    const MOST_TRIES: usize = 100;
    for _ in 0..MOST_TRIES {
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

/// Reads the page once; the result is wrong if the kernel changed the page meanwhile.
#[inline]
fn page_contents(page: &Page, register: &mut impl FnMut(u32) -> u64) -> Option<Reading> {
    let index = page.index.load(Ordering::Relaxed);
    if index == 0 || page.capabilities.load(Ordering::Relaxed) & MAY_READ == 0 {
        return None;
    }
    // A register has 40 or 48 bits; the topmost is the sign.
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
    /// Opens a counter that counts from now on, alone or in the group of `leader`. Counters of a group
    /// count at the same time or not at all.
    ///
    /// # Errors
    /// The error number of `perf_event_open`.
    pub fn open(kind: u32, config: u64, leader: Option<&Self>) -> Result<Self, i32> {
        // Events that the kernel counts itself happen in the kernel.
        let user_only = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
        let tries: &[u64] = match kind {
            TYPE_SOFTWARE => &[0, user_only],
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
            // SAFETY: the kernel reads the attributes, which live, and opens a file.
            let file = unsafe {
                libc::syscall(libc::SYS_perf_event_open, at, 0, -1, group, CLOSE_ON_EXEC)
            } as c_int;
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

    /// Maps its page, so that [`Self::read`] needs no system call. False if the kernel does not allow that.
    pub fn map(&mut self) -> bool {
        // The mapping replaces a page from the heap, so that it is not in the program's way.
        let Some(page) = Layout::from_size_align(PAGE, PAGE).ok().and_then(|layout| {
            // SAFETY: the size is not 0.
            NonNull::new(unsafe { std::alloc::alloc(layout) })
        }) else {
            return false;
        };
        let mut mapped = Mapped(page);
        if !mapped.replace(
            libc::MAP_SHARED | libc::MAP_FIXED,
            libc::PROT_READ,
            self.file,
        ) {
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

    /// Its value; `None` if the program has closed its file.
    #[inline]
    pub fn read(&self) -> Option<Reading> {
        if let Some(mapped) = &self.page
            && let Some(reading) = read_page(mapped.page(), read_register)
        {
            return Some(reading);
        }
        self.ask()
    }

    /// Its value by a system call, with times that are up to date; `None` if the program has closed its file.
    pub fn ask(&self) -> Option<Reading> {
        let mut words = [0u64; 3];
        let size = size_of_val(&words);
        // SAFETY: the kernel writes at most `size` bytes to `words`.
        let read = unsafe { libc::syscall(libc::SYS_read, self.file, words.as_mut_ptr(), size) };
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
        // SAFETY: the file is this counter's own.
        unsafe { libc::syscall(libc::SYS_close, self.file) };
    }
}

/// Gives a file another number. In an instrumented program the runtime chooses a high one, which is not
/// in the program's way.
fn out_of_the_way(file: c_int) -> c_int {
    // SAFETY: the file was opened just now and is known to nobody else.
    unsafe {
        let moved = libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0usize);
        if moved < 0 {
            return file;
        }
        libc::syscall(libc::SYS_close, file);
        moved
    }
}

/// A page of the heap that a counter's page replaces while this lives.
#[derive(Debug)]
struct Mapped(NonNull<u8>);

impl Mapped {
    fn page(&self) -> &Page {
        // SAFETY: the kernel's page is mapped there while this lives; all its fields are atomic.
        unsafe { self.0.cast().as_ref() }
    }

    /// Maps something in place of the page; false if the kernel refuses.
    fn replace(&mut self, flags: c_int, protection: c_int, file: c_int) -> bool {
        let at = self.0.as_ptr();
        // SAFETY: the page is this value's own.
        unsafe {
            libc::syscall(libc::SYS_mmap, at, PAGE, protection, flags, file, 0usize) == at as c_long
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The heap gets the page back only if it is ordinary memory again.
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        if self.replace(flags, libc::PROT_READ | libc::PROT_WRITE, -1)
            && let Ok(layout) = Layout::from_size_align(PAGE, PAGE)
        {
            // SAFETY: the page was allocated with this layout.
            unsafe { std::alloc::dealloc(self.0.as_ptr(), layout) };
        }
    }
}

/// `rdpmc`: reads one of the processor's counters. The page of a counter says whether that is allowed.
#[inline]
fn read_register(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: `read_page` calls this only after the kernel has allowed it.
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
        const FAULTS: u64 = 2;
        match Counter::open(TYPE_SOFTWARE, FAULTS, None) {
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
            Err(error) => assert!(
                [libc::EPERM, libc::EACCES, libc::ENOSYS].contains(&error),
                "{error}"
            ),
        }
    }
}
