//! References to memory as notes of whole batches: for tools that look at all references of a thread, in their
//! order, later, and at many of them in one step.
//!
//! [`Batched`] divides blocks into [batches] and adds a call for each. A routine of a few
//! instructions notes the batch and the values of its sources in the thread's [buffer](crate::notes): one check for room,
//! one word for the batch, one for each value. A repeated string instruction has a note of its own with both
//! addresses and the number of repetitions. [`batched_references!`](crate::batched_references) defines the routines.
//!
//! If an instruction faults, its batch may have been noted already, or not yet.

use super::batches::{self, Batch, Item, MOST_SOURCES, Piece, Source};
use super::room::{self, Room};
use super::{Comparison, begin, end};
use crate::InstType;
use crate::Place::{After, Before};
use crate::Reg;
use crate::calls::typed::{Direction, EffAddrOf, ImageAddress, RegSum, RepCount, Routine};
use crate::data::thread_data::{PerThread, ThreadData, ThreadState};
use crate::measure::notes::{self, Consume, NoteBuffer, Taken};
use crate::navigation::handle::{Block, Inst, Proc};
use crate::navigation::program::Program;
use crate::navigation::references::{References, Times};

/// Bits of the number of values in a note's first word.
const LEN_BITS: u32 = 3;
/// Number of values of a repeated instruction.
const REPEATED: u32 = 3;
/// Marks the first word of a note. The whole word is extended by its sign, so that it is never an address, and
/// that an instruction can have it as a constant.
const NOTED: u32 = 1 << 31;
/// The highest number of a batch, and one more.
pub const MOST_BATCHES: u32 = 1 << (31 - LEN_BITS);

// A note of each level of signal handlers finds room.
const _: () = assert!(8 * (1 + MOST_SOURCES) <= 64);

/// The word of a batch with some number of values. A note has it extended by its sign.
pub const fn word(number: u32, values: u32) -> u32 {
    assert!(number < MOST_BATCHES, "too many batches");
    NOTED | number << LEN_BITS | values
}

/// Makes a note. `slow` makes it where that is not simple: there is no buffer, it is full, the process has forked or
/// the thread is another one.
#[inline(always)]
pub fn note<const N: usize>(
    buffer: PerThread<NoteBuffer>,
    word: u32,
    values: [u64; N],
    slow: fn(PerThread<NoteBuffer>, u32, [u64; N]),
) {
    // Nothing is stored before this decision, so that the routine can be inlined. A signal handler that runs
    // after it asks for as much room, so each level of handlers takes one note of what was asked for.
    if buffer.has_slack() {
        write(&buffer, word, values);
    } else {
        slow(buffer, word, values);
    }
}

/// Writes a note to a buffer that has room for it.
#[inline(always)]
pub fn write<const N: usize>(buffer: &NoteBuffer, word: u32, values: [u64; N]) {
    // SAFETY: the reserved space belongs to this note only and is before the limit.
    unsafe {
        let at = (claim::<N>(buffer) as *mut u64).sub(1 + N);
        for (i, value) in values.into_iter().enumerate() {
            // Volatile: two values shall not be stored together by way of a vector register, which cannot be inlined.
            at.add(1 + i).write_volatile(value);
        }
        // The word comes last: a note without it was not written.
        at.write_volatile(word as i32 as u64);
    }
}

/// Makes a note that does not simply go to the buffer: the buffer's state, which `make` makes if there is none, takes the
/// earlier notes. `room` is the size of a new buffer in bytes. Without memory the note is lost, and `lack` is reported
/// once. Call it with signals blocked.
pub fn write_slowly<S: Consume<1>, const N: usize>(
    buffer: PerThread<NoteBuffer>,
    (word, values): (u32, [u64; N]),
    room: usize,
    make: impl FnOnce() -> S,
    lack: &str,
) {
    if notes::make_room(buffer, room, None, make) {
        return write(&buffer, word, values);
    }
    buffer.park();
    if !buffer.is_attached() {
        notes::report_lack(lack);
    }
}

/// Reserves room for a note with `N` values; returns the address after it.
#[inline(always)]
fn claim<const N: usize>(buffer: &NoteBuffer) -> u64 {
    match N {
        0 => buffer.claim::<8>(),
        1 => buffer.claim::<16>(),
        2 => buffer.claim::<24>(),
        3 => buffer.claim::<32>(),
        4 => buffer.claim::<40>(),
        _ => buffer.reserve(8 * (1 + N as u64)) + 8 * (1 + N as u64),
    }
}

/// A note in a buffer.
#[derive(Clone, Copy)]
pub struct Note {
    words: *const u64,
    /// Number of the batch.
    pub number: u32,
    /// Number of values. A repeated instruction has three: its addresses, and twice the number of repetitions, plus 1 if
    /// the addresses go down.
    pub len: usize,
}

impl Note {
    /// The first values.
    #[inline(always)]
    pub fn values<const N: usize>(&self) -> [u64; N] {
        assert!(N <= self.len, "the note has fewer values");
        // SAFETY: `next` found the words in the buffer. Volatile, because the thread may write to them while another
        // one ends the process.
        std::array::from_fn(|i| unsafe { self.words.add(1 + i).read_volatile() })
    }

    /// A value by its number.
    #[inline(always)]
    pub fn value(&self, number: usize) -> u64 {
        assert!(number < self.len, "the note has fewer values");
        // SAFETY: as above.
        unsafe { self.words.add(1 + number).read_volatile() }
    }

    /// Copies the values, as many as there is room for.
    pub fn copy_values(&self, to: &mut [u64]) {
        for (i, to) in to.iter_mut().enumerate().take(self.len) {
            // SAFETY: as above.
            *to = unsafe { self.words.add(1 + i).read_volatile() };
        }
    }
}

/// Takes the next note. Words that are no note are skipped. If they are not 0 they are counted in `lost`; words of 0 were
/// reserved and not needed (see [`ThreadCell::claim`](crate::ThreadCell::claim)).
#[inline(always)]
pub fn next(notes: &mut Taken<1>, lost: &mut u64) -> Option<Note> {
    loop {
        let word = notes.peek()?;
        if (word as i64) >> 31 == -1 {
            let len = (word as u32 & ((1 << LEN_BITS) - 1)) as usize;
            return Some(Note {
                words: notes.skip_words(1 + len)?,
                number: (word as u32 & !NOTED) >> LEN_BITS,
                len,
            });
        }
        notes.skip_words(1);
        *lost += u64::from(word != 0);
    }
}

crate::thread_state! {
    /// What is known before a comparison that may end early.
    pub struct Compared {
        comparison: Comparison,
    }
}

impl Compared {
    /// Keeps what is known before a comparison: both addresses and the largest number of repetitions.
    #[inline(always)]
    pub fn begin(&self, known: [u64; 3]) {
        begin(&self.comparison, known);
    }

    /// The addresses at which a comparison began, and the number of its repetitions, given rcx after it.
    #[inline(always)]
    pub fn end(&self, rcx: u64) -> ([u64; 2], u64) {
        end(&self.comparison, rcx)
    }
}

/// Buffer, state, word, rcx, direction.
pub type ComparedRoutine = Routine<(PerThread<NoteBuffer>, PerThread<Compared>, u32, u64, u64)>;

/// The routines for batches, by their number of values.
#[derive(Clone, Copy)]
pub struct Simple {
    /// No values.
    pub none: Routine<(PerThread<NoteBuffer>, u32)>,
    /// One value.
    pub one: Routine<(PerThread<NoteBuffer>, u32, u64)>,
    /// Two values.
    pub two: Routine<(PerThread<NoteBuffer>, u32, u64, u64)>,
    /// Three values.
    pub three: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64)>,
    /// Four values.
    pub four: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64, u64)>,
}

/// The routines of a tool: for batches, for a repeated instruction, before a comparison, after it.
#[derive(Clone, Copy)]
pub struct Routines {
    /// For batches.
    pub simple: Simple,
    /// For batches after others, where room need not be asked for, if there are such.
    pub again: Option<Simple>,
    /// Buffer, word, both addresses, repetitions, direction.
    pub repeat: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64, u64)>,
    /// State, both addresses, repetitions.
    pub compare: Routine<(PerThread<Compared>, u64, u64, u64)>,
    /// Buffer, state, word, rcx, direction.
    pub compared: ComparedRoutine,
}

/// Makes a note for which there certainly is room.
#[inline(always)]
pub fn note_again<const N: usize>(
    buffer: PerThread<NoteBuffer>,
    word: u32,
    values: [u64; N],
    _slow: fn(PerThread<NoteBuffer>, u32, [u64; N]),
) {
    write(&buffer, word, values);
}

/// As [`note`], for threads that make notes only at times.
#[inline(always)]
pub fn note_unless_paused<const N: usize>(
    buffer: PerThread<NoteBuffer>,
    word: u32,
    values: [u64; N],
    slow: fn(PerThread<NoteBuffer>, u32, [u64; N]),
) {
    if !buffer.is_paused() {
        note(buffer, word, values, slow);
    }
}

/// Defines the routines of a tool, and two functions that return them as [`Routines`]: `routines`, and `routines_at_times` for
/// threads that [pause](crate::notes::NoteBuffer::set_paused).
/// The argument is a function `slow(buffer, word, values)`, marked `#[cold]` and `#[inline(never)]`, that makes a note
/// where there is no room for it; the number of values is a parameter of it.
///
/// [`Routines`]: crate::simulate::batched::Routines
#[macro_export]
macro_rules! batched_references {
    ($slow:path) => {
        #[$crate::analysis]
        #[rustfmt::skip]
        fn compare(state: PerThread<$crate::simulate::batched::Compared>, a: u64, b: u64, times: u64) {
            state.begin([a, b, times]);
        }

        $crate::batched_references!($slow, simple, note, [none, one, two, three, four]);
        $crate::batched_references!($slow, again, note_again, [
            none_again, one_again, two_again, three_again, four_again
        ]);
        $crate::batched_references!($slow, simple_at_times, note_unless_paused, [
            none_at_times, one_at_times, two_at_times, three_at_times, four_at_times
        ]);
        $crate::batched_references!($slow, routines, note, simple(), Some(again()), [repeat, compared]);
        $crate::batched_references!($slow, routines_at_times, note_unless_paused, simple_at_times(), None, [
            repeat_at_times, compared_at_times
        ]);
    };
    ($slow:path, $simple:ident, $note:ident, [$none:ident, $one:ident, $two:ident, $three:ident, $four:ident]) => {
        #[$crate::analysis]
        fn $none(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32) {
            $crate::simulate::batched::$note(buffer, word, [], $slow);
        }

        #[$crate::analysis]
        fn $one(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64) {
            $crate::simulate::batched::$note(buffer, word, [a], $slow);
        }

        #[$crate::analysis]
        fn $two(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64, b: u64) {
            $crate::simulate::batched::$note(buffer, word, [a, b], $slow);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn $three(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64, b: u64, c: u64) {
            $crate::simulate::batched::$note(buffer, word, [a, b, c], $slow);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn $four(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64, b: u64, c: u64, d: u64) {
            $crate::simulate::batched::$note(buffer, word, [a, b, c, d], $slow);
        }

        /// The routines for batches.
        fn $simple() -> $crate::simulate::batched::Simple {
            $crate::simulate::batched::Simple {
                none: $none(),
                one: $one(),
                two: $two(),
                three: $three(),
                four: $four(),
            }
        }
    };
    ($slow:path, $routines:ident, $note:ident, $simple:expr, $again:expr, [$repeat:ident, $compared:ident]) => {
        #[$crate::analysis]
        #[rustfmt::skip]
        fn $repeat(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64, b: u64, times: u64, down: u64) {
            let times = times << 1 | u64::from(down != 0);
            $crate::simulate::batched::$note(buffer, word, [a, b, times], $slow);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn $compared(buffer: PerThread<$crate::notes::NoteBuffer>, state: PerThread<$crate::simulate::batched::Compared>, word: u32, rcx: u64, down: u64) {
            let ([a, b], times) = state.end(rcx);
            let times = times << 1 | u64::from(down != 0);
            $crate::simulate::batched::$note(buffer, word, [a, b, times], $slow);
        }

        /// The routines that note batches.
        fn $routines() -> $crate::simulate::batched::Routines {
            $crate::simulate::batched::Routines {
                simple: $simple,
                again: $again,
                repeat: $repeat(),
                compare: compare(),
                compared: $compared(),
            }
        }
    };
}

/// What a note stands for.
pub struct Noted<'b> {
    /// Number of values.
    pub values: usize,
    /// True for a repeated instruction; an item's source tells which address it begins at.
    pub is_repeated: bool,
    /// The items in order.
    pub items: &'b [Item],
}

/// Instrument side: adds the calls that note batches.
pub struct Batched {
    /// The buffers of threads.
    pub buffer: ThreadData<NoteBuffer>,
    compared: ThreadData<Compared>,
    routines: Routines,
    all: bool,
}

/// Gets each batch and returns its number, which is below [`MOST_BATCHES`].
pub type Push<'p> = &'p mut dyn FnMut(&Noted<'_>) -> u32;

impl Batched {
    /// Will add calls of these routines. With `all`, batches have executed instructions, too.
    pub fn new(program: &Program<'_>, routines: Routines, all: bool) -> Self {
        Self {
            buffer: program.thread_data(NoteBuffer::new()),
            compared: program.thread_data(Compared::zero()),
            routines,
            all,
        }
    }

    /// Adds the calls for a procedure.
    pub fn add_proc(&self, proc: Proc<'_>, push: Push<'_>) {
        let mut room = Room::new(proc);
        for block in proc.blocks() {
            let taken = self.add_block(block, room.at_start(&block), push);
            room.set_end(&block, taken);
        }
    }

    /// Adds the calls for a block, given what is known of room at its start; returns what is known at its end.
    fn add_block(&self, block: Block<'_>, mut taken: room::Taken, push: Push<'_>) -> room::Taken {
        let insts = batches::insts(&block);
        let kernel = |at: usize| batches::enters_kernel(&insts[at].0);
        let mut done = 0;
        let pieces = if self.all || insts.iter().any(|(_, references)| references.is_some()) {
            batches::pieces(&insts, self.all)
        } else {
            Vec::new()
        };
        for piece in pieces {
            let at = match &piece {
                Piece::Batch(batch) => batch.point,
                Piece::Repeated(number) => *number,
            };
            if (done..at).any(kernel) {
                taken = None;
            }
            done = at;
            match piece {
                Piece::Batch(batch) => {
                    let size = 8 * (1 + batch.sources.len() as u64);
                    let asks = room::take(&mut taken, size);
                    self.add_batch(insts[at].0, &batch, asks, push);
                }
                Piece::Repeated(number) => {
                    if let (inst, Some(references)) = &insts[number] {
                        self.add_repeated(*inst, references, push);
                    }
                }
            }
        }
        let is_call = block.last_inst().is_type(InstType::Call);
        taken.filter(|_| !is_call && !(done..insts.len()).any(kernel))
    }

    /// Adds the call for a batch. `asks` says whether it must ask for room.
    fn add_batch(&self, inst: Inst<'_>, batch: &Batch, asks: bool, push: Push<'_>) {
        let sources = &batch.sources;
        let noted = Noted {
            values: sources.len(),
            is_repeated: false,
            items: &batch.items,
        };
        let word = word(push(&noted), sources.len() as u32);
        let buffer = self.buffer;
        let again = self.routines.again.filter(|_| !asks);
        let routines = again.unwrap_or(self.routines.simple);
        match sources[..] {
            [] => inst.add_call(Before, routines.none, (buffer, word)),
            [a] => inst.add_call(Before, routines.one, (buffer, word, a)),
            [a, b] => inst.add_call(Before, routines.two, (buffer, word, a, b)),
            [a, b, c] => inst.add_call(Before, routines.three, (buffer, word, a, b, c)),
            [a, b, c, d, ..] => inst.add_call(Before, routines.four, (buffer, word, a, b, c, d)),
        }
    }

    /// Adds the calls for a repeated string instruction, or one that refers to elements of a vector.
    fn add_repeated(&self, inst: Inst<'_>, references: &References, push: Push<'_>) {
        let is_element = references.times == Times::Elements;
        let accesses = inst.memory();
        let operands = references
            .operands
            .iter()
            .take(if is_element { 1 } else { 2 });
        let items = operands.enumerate().map(|(source, operand)| {
            let access = accesses.get(usize::from(*operand));
            Item::Reference {
                pc: inst.pc(),
                source: source as u8,
                offset: 0,
                size: access.map_or(1, |access| u64::from(access.size).max(1)),
                reads: access.is_none_or(|access| access.access.reads()),
                writes: access.is_some_and(|access| access.access.writes()),
            }
        });
        let items: Vec<Item> = items.collect();
        let noted = Noted {
            values: if is_element { 1 } else { 3 },
            is_repeated: !is_element,
            items: &items,
        };
        let word = word(push(&noted), if is_element { 1 } else { REPEATED });
        let routines = self.routines;
        let repeated = Repeated {
            buffer: self.buffer,
            state: self.compared,
            one: routines.simple.one,
            repeat: routines.repeat,
            compare: routines.compare,
            compared: routines.compared,
        };
        repeated.add(inst, references, word);
    }
}

/// What notes repeated string instructions and elements of vectors.
struct Repeated {
    buffer: ThreadData<NoteBuffer>,
    state: ThreadData<Compared>,
    /// Buffer, word, address.
    one: Routine<(PerThread<NoteBuffer>, u32, u64)>,
    /// Buffer, word, both addresses, repetitions, direction.
    repeat: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64, u64)>,
    /// State, both addresses, repetitions.
    compare: Routine<(PerThread<Compared>, u64, u64, u64)>,
    compared: ComparedRoutine,
}

impl Repeated {
    /// Adds the calls for an instruction whose notes begin with `word`.
    fn add(&self, inst: Inst<'_>, references: &References, word: u32) {
        let (buffer, state) = (self.buffer, self.state);
        let operands = &references.operands;
        let a = EffAddrOf(operands[0]);
        let b = operands.get(1).map(|operand| EffAddrOf(*operand));
        match (references.times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => inst.add_call(Before, self.compare, (state, a, b, RepCount)),
                    None => inst.add_call(Before, self.compare, (state, a, 0, RepCount)),
                }
                let args = (buffer, state, word, Reg::Rcx, Direction);
                inst.add_call(After, self.compared, args);
            }
            (Times::Repeated, Some(b)) => {
                let args = (buffer, word, a, b, RepCount, Direction);
                inst.add_call(Before, self.repeat, args);
            }
            (Times::Repeated, None) => {
                let args = (buffer, word, a, 0, RepCount, Direction);
                inst.add_call(Before, self.repeat, args);
            }
            _ => inst.add_call(Before, self.one, (buffer, word, a)),
        }
    }
}

impl crate::calls::typed::Arg<u64> for Source {
    fn to_host(&self) -> atom_abi::host::Arg {
        match *self {
            Self::Registers(base, index) => {
                let displacement = 0;
                crate::calls::typed::Arg::<u64>::to_host(&RegSum {
                    base,
                    index,
                    displacement,
                })
            }
            Self::Image(address) => {
                crate::calls::typed::Arg::<u64>::to_host(&ImageAddress(address))
            }
            Self::Operand(operand) => crate::calls::typed::Arg::<u64>::to_host(&EffAddrOf(operand)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::notes::NoteBuffer;

    #[test]
    fn words_are_no_addresses() {
        for number in [0, 1, MOST_BATCHES - 1] {
            for values in [0, 4] {
                let word = word(number, values) as i32 as u64;
                assert_eq!(word as i64 >> 31, -1);
                assert_eq!((word as u32 & !NOTED) >> LEN_BITS, number);
            }
        }
        let _ = NoteBuffer::new();
    }
}
