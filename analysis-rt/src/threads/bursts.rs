//! Sampling: each thread makes the tool's calls in bursts, at random places of its run.
//!
//! Tests in both versions of the text count down a word of the thread's block ([`ThreadBlock::left`]), at the same places in
//! both. A thread calls [`turn`] where the word of its version is negative, and goes to the same test of the other version
//! when `turn` has returned. The word of the version in which the thread is to be has the number of tests until the next turn; the
//! other one is negative, so a thread that returns to a frame of the wrong version leaves it at its next test.
//!
//! The number of tests from one burst to the next is exponentially distributed. So a burst begins at each test with the same
//! probability, whatever was before, and each piece of the run is as likely as any other to be in a burst.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use atom_abi::{Control, ThreadBlock, ThreadInfo};

use crate::process::info::{self, ranges};
use crate::sys::call::syscall;
use crate::sys::fatal::fatal;
use crate::sys::memory::{self, map_far};
use crate::sys::signals::Uninterrupted;

/// Index of a version in [`ThreadBlock::left`].
const FULL: usize = 0;
const LIGHT: usize = 1;

/// Where a thread is in its run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// Between two bursts, where no calls are made.
    #[default]
    Gap,
    /// Before a burst: calls are made, but what they count is not in the results.
    WarmUp,
    /// In a burst.
    Burst,
}

/// Number of figures of which a tool may want to know how they differ from burst to burst.
pub const FIGURES: usize = 4;

/// How a tool computes its figures from what a thread has counted, whose block is given.
pub type Figures = fn(*mut ThreadBlock) -> [u64; FIGURES];

static FIGURES_OF: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Number of threads that have begun to be sampled.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// Sets what computes the figures at the end of each burst. It runs with signals blocked.
pub fn compare_bursts(figures: Figures) {
    FIGURES_OF.store(figures as *mut (), Ordering::Release);
}

/// Lets calls be made before each burst, for as long as this number of bursts takes, unless the user says how long.
pub fn warm_up(bursts: u32) {
    if let Some(control) = control() {
        let length = control.burst.load(Ordering::Relaxed).saturating_mul(bursts);
        let unknown = Control::WARM_UP_OF_TOOL;
        let order = Ordering::Relaxed;
        // A user's number stays.
        _ = control
            .warm_up
            .compare_exchange(unknown, length, order, order);
    }
}

/// How the figures of the bursts differ: sums over all bursts that are complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Number of bursts.
    pub bursts: u64,
    /// Of each figure.
    pub sums: [f64; FIGURES],
    /// Of the product of each two figures.
    pub products: [[f64; FIGURES]; FIGURES],
}

impl Statistics {
    fn add(&mut self, burst: [f64; FIGURES]) {
        self.bursts += 1;
        for (i, a) in burst.iter().enumerate() {
            self.sums[i] += a;
            for (j, b) in burst.iter().enumerate() {
                self.products[i][j] += a * b;
            }
        }
    }

    fn join(&mut self, other: &Self) {
        self.bursts += other.bursts;
        for i in 0..FIGURES {
            self.sums[i] += other.sums[i];
            for j in 0..FIGURES {
                self.products[i][j] += other.products[i][j];
            }
        }
    }
}

/// How much of a run was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled {
    /// Number of bursts.
    pub bursts: u64,
    /// Number of tests in them.
    pub measured: u64,
    /// Number of tests in all.
    pub tests: u64,
}

/// What is kept of a thread's bursts; all zeros are a valid state. Only the thread itself changes it, with signals blocked.
struct Bursts {
    random: u64,
    phase: Phase,
    /// Number of tests after which the phase ends.
    drawn: i32,
    /// What has been completed.
    done: Sampled,
    statistics: Statistics,
    /// The tool's figures at the end of the last burst.
    figures: [u64; FIGURES],
    /// Number of words of a block.
    words: usize,
    /// For each word of the block that counts: its value at the end of the last burst.
    last: *mut u64,
    /// For each such word: what was added to it while the tool warmed up.
    left_out: *mut u64,
    /// For each such word: the sum of the squares of what the bursts have added to it.
    squares: *mut f64,
}

/// The decision's page; `None` if the run is not sampled.
fn control() -> Option<&'static Control> {
    // SAFETY: null or a page in the image, which stays for the process's life.
    let control = unsafe { info::get()?.control.as_ref() }?;
    (control.burst.load(Ordering::Relaxed) != 0).then_some(control)
}

/// At the start: takes the lengths and the seed that the run's page says.
pub(crate) fn choose(control: &Control, run: &Control) {
    if run.burst.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (own, word) in [
        (&control.burst, &run.burst),
        (&control.gap, &run.gap),
        (&control.warm_up, &run.warm_up),
    ] {
        own.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let seed = run.seed.load(Ordering::Relaxed);
    control.seed.store(seed, Ordering::Relaxed);
}

/// A thread leaves a version at a test: `__atom_turn`, which inserted code calls.
///
/// # Safety
/// `block` is the running thread's.
pub(crate) unsafe extern "C" fn turn(block: *mut ThreadBlock, version: usize) {
    // SAFETY: the caller's promise; blocks live for ever.
    let left = unsafe { &(*block).left };
    let other = &left[1 - version];
    if other.load(Ordering::Relaxed) > 0 {
        // The frame is of the version that the thread has left. The test of the other version counts.
        left[version].store(-1, Ordering::Relaxed);
        return;
    }
    let Some(control) = control() else {
        // Before the start nothing is measured: the test of this version is passed again.
        left[LIGHT].store(1000, Ordering::Relaxed);
        left[FULL].store(-1, Ordering::Relaxed);
        return;
    };
    // SAFETY: as above.
    Uninterrupted::run(|_| unsafe { turn_now(control, block) });
}

/// # Safety
/// `block` is the running thread's, whose signals wait.
unsafe fn turn_now(control: &Control, block: *mut ThreadBlock) {
    // SAFETY: the caller's promise; what is kept stays for the process's life.
    let known = unsafe { (*block).bursts.load(Ordering::Relaxed) };
    let Some(bursts) = (unsafe { known.cast::<Bursts>().as_mut() }) else {
        // SAFETY: the caller's promise.
        return unsafe { begin(control, block) };
    };
    bursts.done.tests += bursts.drawn as u64;
    if bursts.phase == Phase::Burst {
        bursts.done.measured += bursts.drawn as u64;
    }
    // SAFETY: as above.
    unsafe {
        leave(bursts, block, true);
        bursts.phase = match bursts.phase {
            Phase::Gap if warms_up(control) != 0 => Phase::WarmUp,
            Phase::Gap | Phase::WarmUp => Phase::Burst,
            Phase::Burst => Phase::Gap,
        };
        bursts.done.bursts += u64::from(bursts.phase == Phase::Burst);
        draw(control, bursts, block);
    }
}

/// Decides when the thread turns the next time.
///
/// # Safety
/// `block` is a thread's, and `bursts` are its bursts.
unsafe fn draw(control: &Control, bursts: &mut Bursts, block: *mut ThreadBlock) {
    let number = match bursts.phase {
        Phase::WarmUp => warms_up(control),
        Phase::Burst => control.burst.load(Ordering::Relaxed),
        Phase::Gap => {
            let mean = f64::from(control.gap.load(Ordering::Relaxed));
            // 53 random bits: more than 0, at most 1.
            let part = ((next(&mut bursts.random) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            (-libm::log(part) * mean) as u32
        }
    };
    bursts.drawn = number.clamp(1, i32::MAX as u32) as i32;
    let here = version(bursts.phase);
    // SAFETY: the caller's promise. The test comes again in that version, and counts down first.
    let left = unsafe { &(*block).left };
    left[1 - here].store(-1, Ordering::Relaxed);
    left[here].store(bursts.drawn, Ordering::Relaxed);
}

/// Length of the time before a burst in which the tool warms up, in tests.
fn warms_up(control: &Control) -> u32 {
    let length = control.warm_up.load(Ordering::Relaxed);
    if length == Control::WARM_UP_OF_TOOL {
        0
    } else {
        length
    }
}

/// The version in which a thread is.
fn version(phase: Phase) -> usize {
    if phase == Phase::Gap { LIGHT } else { FULL }
}

/// A phase of a thread ends: takes what the block has counted in it.
///
/// # Safety
/// `block` is a thread's, and `bursts` are its bursts. `is_complete`: the phase is as long as it was to be.
unsafe fn leave(bursts: &mut Bursts, block: *mut ThreadBlock, is_complete: bool) {
    if bursts.phase == Phase::Gap {
        return;
    }
    let is_measured = bursts.phase == Phase::Burst;
    let figures_of = FIGURES_OF.load(Ordering::Acquire);
    if !figures_of.is_null() {
        // SAFETY: only `compare_bursts` writes it, always with `Figures`.
        let figures_of: Figures = unsafe { core::mem::transmute(figures_of) };
        let (now, last) = (figures_of(block), bursts.figures);
        bursts.figures = now;
        if is_measured && is_complete {
            let added = core::array::from_fn(|i| now[i].wrapping_sub(last[i]) as i64 as f64);
            bursts.statistics.add(added);
        }
    }
    let Some(info) = cells() else { return };
    each_cell(info, |at| {
        // SAFETY: a word of the block, for which each array has an element.
        unsafe {
            let (now, last) = (block.cast::<u64>().add(at).read(), bursts.last.add(at));
            if now == *last {
                return;
            }
            let added = now.wrapping_sub(*last);
            *last = now;
            if is_measured {
                let added = added as i64 as f64;
                *bursts.squares.add(at) += added * added;
            } else {
                let left_out = bursts.left_out.add(at);
                *left_out = (*left_out).wrapping_add(added);
            }
        }
    });
}

/// Takes what was counted while the tool warmed up off the cells of a block.
///
/// # Safety
/// `block` is a thread's, and `bursts` are its bursts.
unsafe fn take_off(bursts: &mut Bursts, block: *mut ThreadBlock) {
    let Some(info) = cells() else { return };
    each_cell(info, |at| {
        // SAFETY: as in `leave`.
        unsafe {
            let left_out = core::mem::take(&mut *bursts.left_out.add(at));
            if left_out != 0 {
                let last = bursts.last.add(at);
                *last = (*last).wrapping_sub(left_out);
                let cell = block.cast::<u64>().add(at);
                cell.write(cell.read().wrapping_sub(left_out));
            }
        }
    });
}

/// Calls a function for each word of a block that counts and is in use, with its number.
fn each_cell(info: &ThreadInfo, mut work: impl FnMut(usize)) {
    // SAFETY: `atom` placed the ranges.
    let (sums, pieces) = unsafe {
        let pieces = ranges(info.pieces, info.piece_count);
        (ranges(info.sums, info.sum_count), pieces)
    };
    for sum in sums {
        for piece in pieces {
            let start = sum.offset.max(piece.offset).next_multiple_of(8);
            let end = (sum.offset + sum.len).min(piece.offset + piece.len);
            for at in (start..end.max(start) & !7).step_by(8) {
                work(at as usize / 8);
            }
        }
    }
}

/// The places of the cells that count; `None` if the tool has none.
fn cells() -> Option<&'static ThreadInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { info::get()?.cells.as_ref() }
}

/// Number of bytes from the main block to a block.
pub fn from_main_block(block: *const ThreadBlock) -> usize {
    cells().map_or(0, |info| (block as usize).wrapping_sub(info.main as usize))
}

/// The first test of a thread: makes what is kept of its bursts.
///
/// # Safety
/// `block` is the running thread's, whose signals wait.
unsafe fn begin(control: &Control, block: *mut ThreadBlock) {
    let words = cells().map_or(0, |info| info.size / 8);
    let memory = map_far(size_of::<Bursts>() + 24 * words);
    if memory.is_null() {
        fatal("no memory for sampling a thread");
    }
    // SAFETY: fresh memory of that size, which stays for the process's life; the caller's promise.
    unsafe {
        let arrays = memory.add(size_of::<Bursts>());
        let bursts = &mut *memory.cast::<Bursts>();
        bursts.random = seed(control);
        bursts.words = words;
        bursts.last = arrays.cast();
        bursts.left_out = arrays.add(8 * words).cast();
        bursts.squares = arrays.add(16 * words).cast();
        draw(control, bursts, block);
        (*block).bursts.store(memory, Ordering::Release);
    }
}

/// Where a thread's random numbers begin.
fn seed(control: &Control) -> u64 {
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let mut given = control.seed.load(Ordering::Relaxed);
    if given == 0 {
        // SAFETY: the kernel writes eight bytes at most.
        unsafe { syscall!(libc::SYS_getrandom, &raw mut given, 8, 0) };
    }
    given.wrapping_add(number.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// The next number of a sequence (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Calls a function for the bursts of each thread.
fn each(mut work: impl FnMut(*mut ThreadBlock, &mut Bursts)) {
    let Some(info) = cells() else { return };
    let mut block = info.main;
    // SAFETY: blocks and what is kept for them live for ever. The process ends, or is a forked child with one thread.
    unsafe {
        while let Some(header) = block.as_ref() {
            if let Some(bursts) = header
                .bursts
                .load(Ordering::Acquire)
                .cast::<Bursts>()
                .as_mut()
            {
                work(block, bursts);
            }
            block = header.next.load(Ordering::Acquire);
        }
    }
}

/// In a forked child, whose counts begin at 0: so do its bursts.
pub(crate) fn forked() {
    let Some(control) = control() else { return };
    each(|block, bursts| {
        // SAFETY: the three arrays follow each other, and nothing else is there.
        unsafe { memory::clear(bursts.last.cast(), 24 * bursts.words) };
        bursts.done = Sampled::default();
        bursts.statistics = Statistics::default();
        bursts.figures = [0; FIGURES];
        bursts.random ^= seed(control);
        bursts.phase = Phase::Gap;
        // SAFETY: the block's bursts.
        unsafe { draw(control, bursts, block) };
    });
}

/// At the end of the process: phases that are open end. Adds what was measured up in the file of the run.
pub(crate) fn settle(sums: Option<&Control>) {
    if control().is_none() {
        return;
    }
    each(|block, bursts| {
        // SAFETY: a block of a thread, and its bursts.
        unsafe {
            let left = (*block).left[version(bursts.phase)].load(Ordering::Relaxed);
            let passed = i64::from(bursts.drawn) - i64::from(left.max(0));
            bursts.done.tests += passed.max(0) as u64;
            if bursts.phase == Phase::Burst {
                bursts.done.measured += passed.max(0) as u64;
            }
            bursts.drawn = left.max(0);
            leave(bursts, block, false);
            take_off(bursts, block);
        }
    });
    let (Some(sums), Some(all)) = (sums, sampled()) else {
        return;
    };
    sums.windows.fetch_add(all.bursts as u32, Ordering::Relaxed);
    sums.tests[0].fetch_add(all.measured, Ordering::Relaxed);
    sums.tests[1].fetch_add(all.tests, Ordering::Relaxed);
}

/// How much of the run was measured, of all threads; `None` if the run is not sampled.
pub fn sampled() -> Option<Sampled> {
    control()?;
    let mut all = Sampled::default();
    each(|_, bursts| {
        all.bursts += bursts.done.bursts;
        all.measured += bursts.done.measured;
        all.tests += bursts.done.tests;
    });
    Some(all)
}

/// How the tool's figures differ from burst to burst, over all threads.
pub fn statistics() -> Statistics {
    let mut all = Statistics::default();
    each(|_, bursts| all.join(&bursts.statistics));
    all
}

/// The sum of the squares of what the bursts have added to a cell, which is in any block; 0 if it is in none.
pub fn squares(cell: *const u64) -> f64 {
    let Some(info) = cells() else { return 0.0 };
    let blocks = [info.totals.load(Ordering::Acquire), info.main];
    let distance = |block: *mut ThreadBlock| (cell as usize).wrapping_sub(block as usize);
    let Some(at) = blocks.into_iter().map(distance).find(|at| *at < info.size) else {
        return 0.0;
    };
    let mut sum = 0.0;
    each(|_, bursts| {
        if at / 8 < bursts.words {
            // SAFETY: the array has an element for each word.
            sum += unsafe { *bursts.squares.add(at / 8) };
        }
    });
    sum
}
