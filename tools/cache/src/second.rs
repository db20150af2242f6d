//! Two levels: a miss of the first level is a reference to the second one.
//!
//! The second level keeps its lines in the order of use, as the first does. It is neither inclusive nor exclusive: a
//! line that is missed enters both, and leaves each by itself. Its lines are in memory of their own, which each thread
//! maps at its first miss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atom_tool::prelude::*;
use atom_tool::simulate::cache::{Lines, MAX_LINES, Shape, bring_to_front, no_lines};
use atom_tool::simulate::groups::{self, Member};
use atom_tool::simulate::{Comparison, Seen};
use atom_tool::{ThreadCell, thread_state};

use crate::lines::visit;

/// Number of cells of a site's counter: those of [`Seen`], then [`SECOND`].
pub const CELLS: usize = 3;
/// Cell with the number of misses of the second level.
pub const SECOND: usize = 2;

thread_state! {
    /// A thread's caches.
    pub struct Caches {
        first: Lines,
        comparison: Comparison,
        /// Address of the lines of the second level; 0 before they are mapped.
        second: ThreadCell<u64>,
    }
}

/// Shape of the second level.
static SHAPE: AtomicU64 = AtomicU64::new(0);

/// Sets the shape of the second level at the program's start, and maps it for the first thread.
#[analysis(uninterrupted)]
fn begin_second(caches: PerThread<Caches>, shape: u64) {
    SHAPE.store(shape, Ordering::Relaxed);
    caches.map(Shape(shape));
}

/// A thread had no memory for the second level.
static NO_MEMORY: AtomicBool = AtomicBool::new(false);

impl Caches {
    /// Empty caches.
    pub fn new() -> Self {
        Self {
            first: no_lines(),
            comparison: std::array::from_fn(|_| ThreadCell::new(0)),
            second: ThreadCell::new(0),
        }
    }

    /// The lines of the second level.
    #[inline(always)]
    fn second(&self, shape: Shape) -> &[ThreadCell<u64>] {
        if self.second.get() == 0 {
            self.map(shape);
        }
        match self.second.get() {
            0 => &[],
            // SAFETY: memory of that size, which `map` has mapped and which stays; its zeros are free places.
            at => unsafe {
                std::slice::from_raw_parts(at as *const ThreadCell<u64>, shape.lines())
            },
        }
    }

    /// Maps the lines of the second level. This memory is not from the heap, as a signal handler may have interrupted
    /// the heap. The system call is made here: where a look-up calls a function of a library, all registers
    /// have to be saved on the program's stack.
    #[cold]
    #[inline(never)]
    fn map(&self, shape: Shape) {
        const SYS_MMAP: u64 = 9;
        const READ_WRITE: u64 = 3;
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        let mut at = SYS_MMAP;
        // SAFETY: fresh memory, to which no other pointer exists.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") at,
                in("rdi") 0,
                in("rsi") shape.lines() * size_of::<u64>(),
                in("rdx") READ_WRITE,
                in("r10") PRIVATE_ANONYMOUS,
                in("r8") -1i64,
                in("r9") 0,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack)
            );
        }
        if at > u64::MAX - 4096 {
            NO_MEMORY.store(true, Ordering::Relaxed)
        } else {
            self.second.set(at)
        }
    }

    /// Makes a reference to a line of the second level, by the address of its first byte or of another one. Returns
    /// whether it was not there. It is inlined into its caller, because both run on the program's stack, which may be
    /// small.
    #[inline(always)]
    fn misses_second(&self, address: u64) -> bool {
        let shape = Shape(SHAPE.load(Ordering::Relaxed));
        let first = shape.set(address);
        let set = self.second(shape).get(first..first + shape.ways() as usize);
        let set = set.unwrap_or_default();
        let tag = shape.start(address).wrapping_neg();
        let place = set.iter().position(|other| other.get() == tag);
        bring_to_front(set, place, tag);
        place.is_none()
    }
}

/// Tells that all references to the second level counted as misses for lack of memory.
pub fn had_no_memory() -> bool {
    NO_MEMORY.load(Ordering::Relaxed)
}

/// One reference.
#[analysis]
fn refer_twice(cache: PerThread<Caches>, shape: u64, address: u64, size: u64, count: Counter<3>) {
    let shape = Shape(shape);
    let line = cache.first[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        look_up(&cache, shape, address, size, count);
    }
}

/// A group of references.
#[analysis]
#[rustfmt::skip]
fn group_twice(cache: PerThread<Caches>, shape: u64, address: u64, size: u64, count: Counter<3>, members: Array<Member>) {
    let shape = Shape(shape);
    let line = cache.first[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        look_up_each(&cache, shape, address, count, members);
    }
}

/// Looks up the references of a group one by one.
#[cold]
#[inline(never)]
fn look_up_each(
    cache: &Caches,
    shape: Shape,
    address: u64,
    count: Counter<3>,
    members: Array<Member>,
) {
    groups::each(address, members, count, |address, size, count| {
        look_up(cache, shape, address, size, count);
    });
}

/// Looks up one reference and counts it.
#[cold]
#[inline(never)]
fn look_up(cache: &Caches, shape: Shape, address: u64, size: u64, count: Counter<3>) {
    touch(cache, shape.0, address, size, 1, count);
    // The block's counter includes one reference, which `touch` has counted, too.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

/// Makes a reference `times` times in succession, and counts one reference for each line that it touches.
#[inline(always)]
fn touch(cache: &Caches, shape: u64, address: u64, size: u64, times: u64, count: Counter<3>) {
    visit(&cache.first, Shape(shape), address, size, |line, missed| {
        if missed {
            count.add_to(Seen::Misses as usize, times);
            if cache.misses_second(line) {
                count.add_to(SECOND, times);
            }
        }
        count.add_to(Seen::Extra as usize, times);
    });
}

/// Size of a line in bytes.
fn line(shape: u64) -> u64 {
    Shape(shape).line()
}

atom_tool::simulator!(
    Caches,
    touch,
    line,
    3,
    [repeat_twice, compare_twice, compared_twice],
    simulator_of
);

/// The routines.
pub fn simulator(unit: u64) -> atom_tool::simulate::Simulator<Caches, CELLS> {
    let look_up = atom_tool::simulate::LookUp::Grouped(refer_twice(), group_twice(), unit);
    simulator_of(look_up)
}

/// The routine that sets the shape of the second level.
pub fn begin() -> atom_tool::Routine<(PerThread<Caches>, u64)> {
    begin_second()
}
