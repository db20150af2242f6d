//! Buffers of notes: what a routine writes down at a point, for slower code to look at later.
//!
//! Each thread has a [`NoteBuffer`] among its per-thread state. The routine at a point reserves room by
//! [`NoteBuffer::reserve`] and writes its note if it is in front of [`NoteBuffer::limit`]; otherwise it calls code
//! that empties the buffer. That code works on a [`Notes`], which has the memory and a lock.
//!
//! A signal handler that interrupts a routine between reserving and writing leaves a gap in front of its own
//! notes. So the first word of a written note is never 0 (see [`word`]), and the reader sets it back to 0.
//!
//! A forked child has a copy of the parent's notes, which the parent will report. The limit is in
//! memory that the kernel empties in a child: the child's first note finds no room.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use analysis_rt::SpinLock;

use crate::data::forks;
use crate::data::thread_data::{AllThreads, PerThread, ThreadCell};
use crate::thread_state;

/// Marks the first word of a note as written.
const NOTED: u64 = 1 << 63;
/// Room in bytes that [`NoteBuffer::has_slack`] asks for: 64 levels of signal handlers, each with notes of 512 bytes.
pub const SLACK: u64 = 64 * 512;
/// Bytes after the notes of a buffer, for notes that nobody reads.
const PARKED: usize = 4096;
/// Bits of the kind of a note in its first word.
const KIND_BITS: u32 = 2;

/// The first word of a note, but for tool's own bits from 32 up: its kind (below 4) and a number of 30 bits.
/// The result is never 0.
#[inline(always)]
pub const fn word(kind_and_number: u32) -> u64 {
    kind_and_number as u64 | NOTED
}

/// The first word where room was reserved for a note that is made later: kind 3, number 0.
pub const GIVEN_UP: u64 = word(kind_and_number(3, 0));

/// Packs a note's kind and number into a constant argument for its routine.
pub const fn kind_and_number(kind: u32, number: u32) -> u32 {
    number << KIND_BITS | kind
}

/// The kind in a note's first word.
pub const fn kind(word: u64) -> u32 {
    word as u32 & ((1 << KIND_BITS) - 1)
}

/// The number in a note's first word.
pub const fn number(word: u64) -> u32 {
    word as u32 >> KIND_BITS
}

thread_state! {
    /// What the routine at a point needs of a thread's buffer.
    pub struct NoteBuffer {
        /// Address of the next note.
        cursor: ThreadCell<u64>,
        /// Address of the word that holds the buffer's end; 0 before there is a buffer.
        limit: ThreadCell<u64>,
        /// Number of the thread whose notes these are.
        thread: ThreadCell<u32>,
        /// In the place of padding, whose contents would differ from one run of the instrument routine to the next.
        unused: ThreadCell<u32>,
        /// Address of the tool's state for this buffer.
        state: ThreadCell<u64>,
        /// Not 0 while the thread makes no notes.
        paused: ThreadCell<u64>,
    }
}

impl Default for NoteBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl NoteBuffer {
    /// Has no memory yet.
    pub fn new() -> Self {
        Self {
            cursor: ThreadCell::new(0),
            limit: ThreadCell::new(0),
            thread: ThreadCell::new(0),
            unused: ThreadCell::new(0),
            state: ThreadCell::new(0),
            paused: ThreadCell::new(0),
        }
    }

    /// Whether the thread makes no notes for now.
    #[inline(always)]
    pub fn is_paused(&self) -> bool {
        // SAFETY: only the thread itself changes it.
        unsafe { self.paused.get_in_place() != 0 }
    }

    /// Says whether the thread makes notes.
    pub fn set_paused(&self, paused: bool) {
        self.paused.set(paused.into());
    }

    /// Lets notes that do not ask for room, up to the next one that asks, go to memory that nobody reads: there is no
    /// buffer, or another thread works on it.
    pub fn park(&self) {
        static NOWHERE: [AtomicU64; PARKED / 8] = [const { AtomicU64::new(0) }; PARKED / 8];
        let limits = self.limit.get() as *const [u64; 2];
        // SAFETY: as in `has_slack`.
        let end = unsafe { limits.as_ref() }.map(|[end, _]| *end);
        let nowhere = || NOWHERE.as_ptr() as u64;
        self.cursor
            .set(end.filter(|end| *end != 0).unwrap_or_else(nowhere));
    }

    /// Reserves `size` bytes for a note; returns their address. A signal handler reserves others.
    #[inline(always)]
    pub fn reserve(&self, size: u64) -> u64 {
        self.cursor.fetch_add(size)
    }

    /// Reserves `SIZE` bytes for a note, as [`NoteBuffer::reserve`] does, in less time; returns the address after them. If a
    /// signal handler makes notes in just this moment, there may be `SIZE` bytes of zeros among its notes or in front of
    /// them.
    #[inline(always)]
    pub fn claim<const SIZE: u64>(&self) -> u64 {
        self.cursor.claim::<SIZE>()
    }

    /// Whether there is room for `more` bytes. A routine that asks this before it reserves its note can be inlined.
    /// It asks for one note more than its own for each signal handler that may interrupt another one in between.
    #[inline(always)]
    pub fn has_room(&self, more: u64) -> bool {
        self.cursor.get().wrapping_add(more) < self.limit()
    }

    /// Whether there is room for [`SLACK`] bytes, so for a note and for the notes of signal handlers that interrupt it. It
    /// needs one register. A thread that continues with the buffer of one that has ended finds no room at first, if the
    /// tool has called [`tell_threads_apart`].
    #[inline(always)]
    pub fn has_slack(&self) -> bool {
        let limits = self.limit.get() as *const [u64; 2];
        // SAFETY: null, or the address of words that `Notes::attach` put there and that stay. The cursor is this
        // thread's own.
        unsafe {
            match limits.as_ref() {
                Some([_, limit]) => *limit > self.cursor.get_in_place(),
                None => false,
            }
        }
    }

    /// Address after the last note that has room; 0 without a buffer, and in a forked child that has not
    /// emptied it yet.
    #[inline(always)]
    pub fn limit(&self) -> u64 {
        let limit = self.limit.get() as *const u64;
        // SAFETY: null, or the address of a word that `Notes::attach` put there and that stays.
        unsafe { limit.as_ref() }.copied().unwrap_or(0)
    }

    /// Whether there is memory.
    pub fn is_attached(&self) -> bool {
        self.limit.get() != 0
    }

    /// Number of the thread whose notes these are, as [`PerThread::thread_number`](crate::PerThread::thread_number)
    /// gives it; 0 before [`NoteBuffer::set_thread`].
    #[inline(always)]
    pub fn thread(&self) -> u32 {
        self.thread.get()
    }

    /// Notes whose notes these are.
    pub fn set_thread(&self, thread: u32) {
        self.thread.set(thread);
    }

    /// The tool's state for this buffer: the pointer given to [`Notes::attach`], or null.
    #[inline(always)]
    pub fn state<S>(&self) -> *mut S {
        self.state.get() as *mut S
    }
}

/// The memory of a thread's notes. All notes of a buffer have the same size.
pub struct Notes {
    /// Held by the thread that works on the notes, or by the one that ends the process.
    pub lock: SpinLock,
    /// Address of two words that are not 0 while this process uses the buffer: the buffer's end, and [`SLACK`] bytes before
    /// it.
    limit: u64,
    /// Address of the first note.
    start: u64,
    /// Size of a note in bytes.
    size: u64,
    /// Bytes of all notes that fit.
    room: u64,
}

impl Notes {
    /// How often the end of a process looks whether a thread is done with its notes.
    const PATIENCE: u32 = 10_000;

    /// Memory for notes of `size` bytes, a multiple of 8, of which as many fit as `room` bytes hold. `None` if
    /// there is no memory, or the kernel (before Linux 4.14) cannot empty it in forked children.
    pub fn new(size: usize, room: usize) -> Option<Self> {
        let memory = forks::memory(room + PARKED)?.as_ptr() as u64;
        let notes = Self {
            lock: SpinLock::new(),
            limit: memory,
            start: memory + forks::WIPED as u64,
            size: size as u64,
            room: (room / size * size) as u64,
        };
        notes.renew();
        Some(notes)
    }

    /// Has a buffer write here, with `state` as the tool's state of it.
    ///
    /// The memory is never freed. A caller that gets `state` from the buffer must know that it is still valid.
    pub fn attach<S>(&self, buffer: &NoteBuffer, state: *mut S) {
        self.rewind(buffer);
        buffer.state.set(state as u64);
        buffer.limit.set(self.limit);
    }

    /// Makes the next note the buffer's first.
    pub fn rewind(&self, buffer: &NoteBuffer) {
        buffer.cursor.set(self.start);
    }

    /// Lets a forked child use the memory, or a new process that was given it.
    pub fn renew(&self) {
        let end = self.start + self.room;
        // SAFETY: the first words of memory of its own, which stays.
        unsafe { (self.limit as *mut [u64; 2]).write_volatile([end, end - SLACK.min(self.room)]) };
    }

    /// True in a forked child before [`Notes::renew`].
    pub fn is_inherited(&self) -> bool {
        // SAFETY: as in `renew`.
        unsafe { (self.limit as *const u64).read_volatile() == 0 }
    }

    /// Waits until the notes' thread does not work on them, and takes the lock. False after a long wait, since
    /// the thread may be what this one has interrupted.
    pub fn lock_at_end(&self) -> bool {
        self.lock.lock_within(Self::PATIENCE)
    }

    /// Reserves the buffer's first note; returns its address.
    pub fn reserve_first(&self, buffer: &NoteBuffer) -> u64 {
        buffer.cursor.set(self.start + self.size);
        self.start
    }

    /// Address after the last note that was reserved and has room.
    pub fn end(&self, buffer: &NoteBuffer) -> u64 {
        buffer.cursor.get().min(self.start + self.room)
    }

    /// The notes in the buffer.
    fn taken<const N: usize>(&self, buffer: &NoteBuffer) -> Taken<N> {
        Taken {
            next: self.start,
            end: self.end(buffer),
        }
    }

    /// Size of a note in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Addresses of the notes up to the address `end`.
    pub fn addresses(&self, end: u64) -> impl Iterator<Item = u64> + use<> {
        (self.start..end).step_by(self.size as usize)
    }
}

/// Takes the notes of a thread when its buffer is full, and at the end. A note has `N` words.
pub trait Consume<const N: usize>: Sized {
    /// Takes the notes in the order in which room for them was reserved. A note that was reserved and never written has
    /// 0 as its first word.
    fn take(&mut self, notes: Taken<N>);

    /// Takes the notes that a forked child has inherited; its parent takes them, too. The child's counts begin at 0.
    fn take_inherited(&mut self, notes: Taken<N>);

    /// The notes that follow are of another thread, which continues with the buffer of one that has ended.
    fn change_thread(&mut self) {}
}

/// The notes of a buffer, which are removed from it one by one.
pub struct Taken<const N: usize> {
    next: u64,
    end: u64,
}

impl<const N: usize> Iterator for Taken<N> {
    type Item = [u64; N];

    #[inline(always)]
    fn next(&mut self) -> Option<[u64; N]> {
        if self.next >= self.end {
            return None;
        }
        let note = self.next as *mut [u64; N];
        self.next += size_of::<[u64; N]>() as u64;
        // SAFETY: a note in the buffer, all bytes of which are initialised. The accesses are volatile, because
        // the thread may write to it while another thread ends the process.
        unsafe {
            let words = note.read_volatile();
            note.cast::<u64>().write_volatile(0);
            Some(words)
        }
    }
}

/// For notes of different lengths, which are read word by word.
impl Taken<1> {
    /// The next word. It stays in the buffer until [`Taken::clear`].
    #[inline(always)]
    pub fn peek(&self) -> Option<u64> {
        // SAFETY: as in `next`.
        (!self.is_at_end()).then(|| unsafe { (self.next as *const u64).read_volatile() })
    }

    /// Goes on by some words; returns their address, or `None` if there are fewer.
    #[inline(always)]
    pub fn skip_words(&mut self, count: usize) -> Option<*const u64> {
        let at = self.next;
        self.next += 8 * count as u64;
        (self.next <= self.end).then_some(at as *const u64)
    }

    /// Whether all words were taken.
    #[inline(always)]
    pub fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    /// All words that are left. The thread may write to them while another one ends the process.
    pub fn words(&self) -> &[AtomicU64] {
        let len = self.end.saturating_sub(self.next) as usize / 8;
        // SAFETY: words of the buffer, which are initialised and stay.
        unsafe { std::slice::from_raw_parts(self.next as *const AtomicU64, len) }
    }

    /// Sets all words between here and the end to 0. A copy made before words were taken clears these.
    pub fn clear(self) {
        let len = self.end.saturating_sub(self.next) as usize;
        // SAFETY: words of the buffer, for which all bytes are valid.
        unsafe { (self.next as *mut u8).write_bytes(0, len) };
    }

    /// A copy, from which the same words can be taken.
    pub fn copy(&self) -> Self {
        Self { ..*self }
    }
}

/// Says once that there is no memory; `what` names the tool and what a thread has no memory for.
#[cold]
#[inline(never)]
pub fn report_lack(what: &str) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("{what} (or a kernel older than Linux 4.14)");
    }
}

/// What a buffer's address of state leads to.
struct Kept<S> {
    /// Its lock is held while `own` is used.
    notes: Notes,
    own: UnsafeCell<S>,
}

/// Makes room in a thread's buffer, to which `make` gives a state if it has none: the state takes the notes in it.
/// `room` is the size of a new buffer in bytes. `reserved` is the address that the caller has reserved for its note, if it
/// has: there is none yet, and [`GIVEN_UP`] is the first word there if it is in the buffer. Call it with signals blocked.
/// False if there is no memory, or if the process ends and another thread works on this buffer; the note is lost then.
pub fn make_room<S: Consume<N>, const N: usize>(
    buffer: PerThread<NoteBuffer>,
    room: usize,
    reserved: Option<u64>,
    make: impl FnOnce() -> S,
) -> bool {
    if !buffer.is_attached() {
        let Some(notes) = Notes::new(size_of::<[u64; N]>(), room) else {
            return false;
        };
        let own = UnsafeCell::new(make());
        let kept = Box::leak(Box::new(Kept { notes, own }));
        let at = std::ptr::from_mut(kept);
        kept.notes.attach(&buffer, at);
        buffer.set_thread(buffer.thread_number());
        return true;
    }
    // SAFETY: the address was stored above. Nothing of that type is ever freed.
    let kept = unsafe { &*buffer.state::<Kept<S>>() };
    if !kept.notes.lock.try_lock() {
        return false;
    }
    // SAFETY: the lock is held.
    let own = unsafe { &mut *kept.own.get() };
    let notes = kept.notes.taken(&buffer);
    if let Some(at) = reserved.filter(|at| (notes.next..notes.end).contains(at)) {
        // SAFETY: a note in the buffer.
        unsafe { (at as *mut u64).write_volatile(GIVEN_UP) };
    }
    if kept.notes.is_inherited() {
        own.take_inherited(notes);
        buffer.set_thread(buffer.thread_number());
    } else {
        own.take(notes);
    }
    if buffer.thread() != buffer.thread_number() {
        own.change_thread();
        buffer.set_thread(buffer.thread_number());
    }
    kept.notes.renew();
    kept.notes.rewind(&buffer);
    kept.notes.lock.unlock();
    true
}

/// The buffers of all threads, for [`tell_threads_apart`].
static BUFFERS: OnceLock<Buffers> = OnceLock::new();

struct Buffers(AllThreads<NoteBuffer>);
// SAFETY: threads share only atomic data.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

/// From now on a thread that takes over the buffer of one that has ended finds no [slack](NoteBuffer::has_slack) in it, so
/// that its first note empties the buffer. To be called at ProgramBefore.
pub fn tell_threads_apart(all: AllThreads<NoteBuffer>) {
    // ProgramBefore comes once.
    let _ = BUFFERS.set(Buffers(all));
    analysis_rt::in_new_thread(|| {
        let Some(Buffers(all)) = BUFFERS.get() else {
            return;
        };
        for (buffer, thread) in all.iter().zip(all.thread_numbers()) {
            let limits = buffer.limit.get() as *mut [u64; 2];
            if buffer.is_attached() && buffer.thread() != thread {
                // SAFETY: as in `has_slack`. The buffer's own thread is the one that begins.
                unsafe { (&raw mut (*limits)[1]).write_volatile(0) };
            }
        }
    });
}

/// Gives the state of each thread to `each` when the process ends, after it has taken its notes. In a forked child
/// these are the threads that made notes there. A process that only reports the state of another one has all of them.
/// Returns the number of threads that still work on their notes, which are left out.
pub fn at_end<S: Consume<N>, const N: usize>(
    all: AllThreads<NoteBuffer>,
    mut each: impl FnMut(&mut S),
) -> u64 {
    let mut left_out = 0;
    let is_copy = forks::is_snapshot();
    for buffer in all.iter() {
        // The limit is 0 without a buffer, and in a forked process unless the thread has made a note there.
        if !buffer.is_attached() || buffer.limit() == 0 && !is_copy {
            continue;
        }
        // SAFETY: a buffer has a state, which `make_room` made and which is never freed.
        let kept = unsafe { &*buffer.state::<Kept<S>>() };
        if !kept.notes.lock_at_end() {
            left_out += 1;
            continue;
        }
        // SAFETY: the lock is held.
        let own = unsafe { &mut *kept.own.get() };
        own.take(kept.notes.taken(buffer));
        each(own);
        kept.notes.rewind(buffer);
        kept.notes.lock.unlock();
    }
    left_out
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_tell_kind_and_number() {
        for (kind_of, number_of) in [(0, 0), (3, (1 << 30) - 1), (1, 77)] {
            let word = word(kind_and_number(kind_of, number_of)) | 5 << 40;
            assert_ne!(word, 0);
            assert_eq!((kind(word), number(word)), (kind_of, number_of));
        }
    }

    #[test]
    fn a_buffer_fills_and_is_emptied() {
        let buffer = NoteBuffer::new();
        assert_eq!(buffer.limit(), 0);
        // Three notes of 24 bytes fit 80 bytes.
        let notes = Notes::new(24, 80).expect("Linux 4.14");
        let mut state = 5u32;
        notes.attach(&buffer, &raw mut state);
        let places: Vec<u64> = (0..4).map(|_| buffer.reserve(24)).collect();
        let fitting = places.iter().filter(|at| **at < buffer.limit()).count();
        assert_eq!(fitting, 3);
        assert!(
            notes
                .addresses(notes.end(&buffer))
                .eq(places[..3].iter().copied())
        );
        assert_eq!(notes.reserve_first(&buffer), places[0]);
        assert_eq!(buffer.reserve(24), places[1]);
        assert!(!notes.is_inherited());
        assert!(std::ptr::eq(buffer.state::<u32>(), &raw const state));
    }

    /// Words of memory in the test below.
    const WORDS: usize = 1 << 15;
    static BUFFER: OnceLock<Shared> = OnceLock::new();
    /// How often the handler has made a claim, and whether it makes none for now.
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    static PAUSED: AtomicU64 = AtomicU64::new(0);

    struct Shared(NoteBuffer);
    // SAFETY: only one thread, and its signal handler, use it.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    /// Writes a word where nobody has written.
    fn write_claimed<const SIZE: u64>(word: u64) {
        let Some(Shared(buffer)) = BUFFER.get() else {
            return;
        };
        let end = buffer.claim::<SIZE>() as *mut u64;
        // SAFETY: the claimed space is in the test's memory.
        unsafe {
            let first = end.sub(SIZE as usize / 8);
            assert_eq!(first.read_volatile(), 0, "claimed twice");
            first.write_volatile(word);
        }
    }

    /// The cursor from which on the handler makes no claims: any number of signals may come between two instructions.
    static FULL: AtomicU64 = AtomicU64::new(0);

    extern "C" fn handler(_: i32) {
        let cursor = BUFFER.get().map_or(u64::MAX, |Shared(b)| b.cursor.get());
        if PAUSED.load(Relaxed) == 0 && cursor < FULL.load(Relaxed) {
            HANDLED.fetch_add(1, Relaxed);
            write_claimed::<24>(2);
        }
    }

    #[test]
    fn handlers_never_claim_the_same_room() {
        unsafe extern "C" {
            fn signal(signal: i32, handler: extern "C" fn(i32)) -> usize;
            fn pthread_self() -> usize;
            fn pthread_kill(thread: usize, signal: i32) -> i32;
        }
        const SIGUSR1: i32 = 10;
        let memory: &'static [AtomicU64] =
            Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let start = memory.as_ptr() as u64;
        let end = start + 8 * WORDS as u64;
        FULL.store(end - 512, Relaxed);
        let buffer = NoteBuffer::new();
        buffer.cursor.set(start);
        assert!(BUFFER.set(Shared(buffer)).is_ok());
        let Some(Shared(buffer)) = BUFFER.get() else {
            return;
        };
        // SAFETY: the handler only writes to the test's memory, which is never freed.
        let this = unsafe {
            signal(SIGUSR1, handler);
            pthread_self()
        };
        static ENOUGH: AtomicU64 = AtomicU64::new(0);
        let sender = std::thread::spawn(move || {
            while ENOUGH.load(Relaxed) == 0 {
                // SAFETY: the thread waits for this one.
                unsafe { pthread_kill(this, SIGUSR1) };
            }
        });
        let mut before = 0;
        while before < 10_000 {
            let mut own = 0;
            while buffer.cursor.get() + 1024 < end {
                write_claimed::<16>(1);
                own += 1;
            }
            PAUSED.store(1, Relaxed);
            let handled = HANDLED.load(Relaxed) - before;
            let written = |word: u64| memory.iter().filter(|w| w.load(Relaxed) == word).count();
            assert_eq!([written(1) as u64, written(2) as u64], [own, handled]);
            memory.iter().for_each(|word| word.store(0, Relaxed));
            buffer.cursor.set(start);
            before += handled;
            PAUSED.store(0, Relaxed);
        }
        ENOUGH.store(1, Relaxed);
        assert!(sender.join().is_ok());
    }
}
