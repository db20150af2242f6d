//! References to memory as notes: for tools that look at all references of a thread, in their order, later.
//!
//! A routine of a few instructions notes the number of a group of references ([`super::groups`]) and the address of the
//! lowest of them in the thread's [buffer](crate::notes). What belongs to a group is known beforehand ([`Noted`]). A
//! repeated string instruction is a group of its own, with three notes: its addresses and the number of repetitions.
//! [`noted_references!`](crate::noted_references) defines the routines; [`Entries`] puts notes together again.

use super::groups::{self, Group};
use super::{Comparison, begin, end};
use crate::Place::{After, Before};
use crate::Reg;
use crate::call::{Direction, EffAddrOf, RepCount, Routine};
use crate::handle::{Inst, Proc};
use crate::notes::{self, NoteBuffer};
use crate::program::Program;
use crate::references::{References, Times};
use crate::thread_data::{PerThread, ThreadData, ThreadState};

/// Largest distance in bytes between references of a group.
const MOST_BYTES: u64 = 1 << 12;

/// Kinds of notes: the address of a group; of a repeated instruction the first address, the second one, and
/// twice the number of repetitions, plus 1 if addresses go down.
pub const GROUP: u32 = 0;
/// See [`GROUP`].
pub const FIRST: u32 = 1;
/// See [`GROUP`].
pub const SECOND: u32 = 2;
/// See [`GROUP`].
pub const TIMES: u32 = 3;

/// A note: its kind and the number of its group (see [`notes::word`]), and a value.
pub type Note = [u64; 2];

/// Size of a note in bytes.
pub const NOTE: u64 = size_of::<Note>() as u64;

/// Largest number of signal handlers that interrupt each other between a look at the room and a reservation.
const HANDLERS: u64 = 256;

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

/// Makes a note. `slow` makes it where that is not simple: there is no buffer, it is full, the process has forked or
/// the thread is another one.
#[inline(always)]
pub fn note(
    buffer: PerThread<NoteBuffer>,
    word: u32,
    value: u64,
    slow: fn(PerThread<NoteBuffer>, u32, u64),
) {
    // Nothing is stored before this decision, so that the routine can be inlined. A signal handler that runs
    // behind it asks for as much room, so each level of handlers takes one note of what was asked for.
    if buffer.has_room(HANDLERS * NOTE) && buffer.thread() == buffer.thread_number() {
        write(&buffer, word, value);
    } else {
        slow(buffer, word, value);
    }
}

/// Writes a note to a buffer that has room for it.
#[inline(always)]
pub fn write(buffer: &NoteBuffer, word: u32, value: u64) {
    let word = notes::word(word);
    let at = buffer.reserve(NOTE);
    // SAFETY: the reserved space belongs to this note only and lies before the limit.
    unsafe { (at as *mut Note).write([word, value]) };
}

/// Buffer, state, group, rcx, direction.
pub type ComparedRoutine = Routine<(PerThread<NoteBuffer>, PerThread<Compared>, u32, u64, u64)>;

/// The routines of a tool: for a group, for a repeated instruction or an element of a vector, before a comparison, after
/// it.
#[derive(Clone, Copy)]
pub struct Routines {
    /// Buffer, group, address.
    pub refer: Routine<(PerThread<NoteBuffer>, u32, u64)>,
    /// Buffer, group, both addresses, repetitions, direction.
    pub repeat: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64, u64)>,
    /// State, both addresses, repetitions.
    pub compare: Routine<(PerThread<Compared>, u64, u64, u64)>,
    /// Buffer, state, group, rcx, direction.
    pub compared: ComparedRoutine,
}

/// Defines the routines of a tool, and a function `routines` that returns them as [`Routines`].
/// The argument is a function `slow(buffer, word, value)`, marked `#[cold]` and `#[inline(never)]`, that makes a note
/// where there is no room for it.
///
/// [`Routines`]: crate::simulate::noted::Routines
#[macro_export]
macro_rules! noted_references {
    ($slow:path) => {
        #[$crate::analysis]
        fn refer(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, address: u64) {
            $crate::simulate::noted::note(buffer, word, address, $slow);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn repeat(buffer: PerThread<$crate::notes::NoteBuffer>, word: u32, a: u64, b: u64, times: u64, down: u64) {
            use $crate::simulate::noted::{FIRST, SECOND, TIMES, note};
            note(buffer, word | FIRST, a, $slow);
            note(buffer, word | SECOND, b, $slow);
            note(buffer, word | TIMES, times << 1 | u64::from(down != 0), $slow);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn compare(state: PerThread<$crate::simulate::noted::Compared>, a: u64, b: u64, times: u64) {
            state.begin([a, b, times]);
        }

        #[$crate::analysis]
        #[rustfmt::skip]
        fn compared(buffer: PerThread<$crate::notes::NoteBuffer>, state: PerThread<$crate::simulate::noted::Compared>, word: u32, rcx: u64, down: u64) {
            use $crate::simulate::noted::{FIRST, SECOND, TIMES, note};
            let ([a, b], times) = state.end(rcx);
            note(buffer, word | FIRST, a, $slow);
            note(buffer, word | SECOND, b, $slow);
            note(buffer, word | TIMES, times << 1 | u64::from(down != 0), $slow);
        }

        /// The routines that note references.
        fn routines() -> $crate::simulate::noted::Routines {
            $crate::simulate::noted::Routines {
                refer: refer(),
                repeat: repeat(),
                compare: compare(),
                compared: compared(),
            }
        }
    };
}

/// A reference of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Address of the instruction.
    pub pc: u64,
    /// Distance in bytes from the lowest reference of the group.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Memory is read.
    pub reads: bool,
    /// Memory is written.
    pub writes: bool,
}

/// An instruction that refers to memory, with the number of its references that are in groups already.
struct Site<'a> {
    inst: Inst<'a>,
    references: References,
    used: usize,
}

impl Site<'_> {
    /// A reference by its operand.
    fn member(&self, operand: u8, offset: u64) -> Member {
        let accesses = self.inst.memory();
        let found = accesses.get(usize::from(operand));
        Member {
            pc: self.inst.pc(),
            offset,
            size: found.map_or(1, |access| u64::from(access.size).max(1)),
            reads: found.is_none_or(|access| access.access.reads()),
            writes: found.is_some_and(|access| access.access.writes()),
        }
    }

    /// The next reference of the instruction, at a distance from the lowest one of its group.
    fn next(&mut self, offset: u64) -> Member {
        let operand = self.references.operands.get(self.used).copied();
        self.used += 1;
        self.member(operand.unwrap_or(0), offset)
    }
}

/// Instrument side: adds the calls that note references.
pub struct Noted {
    /// The buffers of threads.
    pub buffer: ThreadData<NoteBuffer>,
    compared: ThreadData<Compared>,
    routines: Routines,
}

impl Noted {
    /// Will add calls of these routines.
    pub fn new(program: &Program<'_>, routines: Routines) -> Self {
        Self {
            buffer: program.thread_data(NoteBuffer::new()),
            compared: program.thread_data(Compared::zero()),
            routines,
        }
    }

    /// Adds the calls for a procedure. `push` gets each group, whether it is repeated, and returns its number, which is
    /// below 2^30.
    pub fn add_proc(&self, proc: Proc<'_>, push: &mut dyn FnMut(bool, &[Member]) -> u32) {
        for block in proc.blocks() {
            let insts = block.insts();
            let insts: Vec<(Inst<'_>, References)> = insts
                .filter_map(|inst| Some((inst, inst.references()?)))
                .collect();
            if insts.is_empty() {
                continue;
            }
            let groups = groups::groups(&block, &insts, MOST_BYTES);
            let site = |(inst, references)| Site {
                inst,
                references,
                used: 0,
            };
            let mut sites: Vec<Site<'_>> = insts.into_iter().map(site).collect();
            for group in groups {
                self.add_group(&mut sites, &group, push);
            }
            for site in &sites {
                if site.references.times != Times::Once {
                    self.add_repeated(site, push);
                }
            }
        }
    }

    fn add_group(
        &self,
        sites: &mut [Site<'_>],
        group: &Group,
        push: &mut dyn FnMut(bool, &[Member]) -> u32,
    ) {
        let (lowest, operand) = group.lowest;
        let members: Vec<Member> = match group.members.is_empty() {
            true => vec![sites[group.first].next(0)],
            false => {
                let members = group.members.iter();
                let next = |m: &groups::Member| (group.first + usize::from(m.row), m.offset);
                let members = members.map(next);
                members
                    .map(|(site, offset)| sites[site].next(offset.into()))
                    .collect()
            }
        };
        let word = notes::kind_and_number(GROUP, push(false, &members));
        let args = (self.buffer, word, EffAddrOf(operand));
        let inst = sites[lowest].inst;
        inst.add_call(Before, self.routines.refer, args);
    }

    /// Adds the calls for a repeated string instruction, or one that refers to elements of a vector.
    fn add_repeated(&self, site: &Site<'_>, push: &mut dyn FnMut(bool, &[Member]) -> u32) {
        let (inst, operands) = (site.inst, &site.references.operands);
        let members: Vec<Member> = operands
            .iter()
            .take(2)
            .map(|operand| site.member(*operand, 0))
            .collect();
        let is_element = site.references.times == Times::Elements;
        let used = if is_element { 1 } else { members.len() };
        let word = notes::kind_and_number(GROUP, push(!is_element, &members[..used]));
        let routines = self.routines;
        let repeated = Repeated {
            buffer: self.buffer,
            state: self.compared,
            one: routines.refer,
            repeat: routines.repeat,
            compare: routines.compare,
            compared: routines.compared,
        };
        repeated.add(inst, &site.references, word);
    }
}

/// What notes repeated string instructions and elements of vectors.
pub(super) struct Repeated {
    pub(super) buffer: ThreadData<NoteBuffer>,
    pub(super) state: ThreadData<Compared>,
    /// Buffer, word, address.
    pub(super) one: Routine<(PerThread<NoteBuffer>, u32, u64)>,
    /// Buffer, word, both addresses, repetitions, direction.
    pub(super) repeat: Routine<(PerThread<NoteBuffer>, u32, u64, u64, u64, u64)>,
    /// State, both addresses, repetitions.
    pub(super) compare: Routine<(PerThread<Compared>, u64, u64, u64)>,
    pub(super) compared: ComparedRoutine,
}

impl Repeated {
    /// Adds the calls for an instruction whose notes begin with `word`.
    pub(super) fn add(&self, inst: Inst<'_>, references: &References, word: u32) {
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

/// A group that was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// Number of the group.
    pub group: u32,
    /// Address of its lowest reference.
    pub address: u64,
    /// Address of the second operand of a repeated instruction; 0 if there is none.
    pub second: u64,
    /// Number of repetitions; `None` if the group is not repeated.
    pub times: Option<u64>,
    /// True if the addresses of repetitions go down.
    pub down: bool,
}

/// Analysis side: puts the notes of a thread together again.
#[derive(Default)]
pub struct Entries {
    /// Repeated instructions with notes that are not complete.
    open: Vec<Executed>,
    /// Number of notes that were begun and never written.
    pub lost: u64,
}

impl Entries {
    /// Forgets what is not complete.
    pub fn clear(&mut self) {
        self.open.clear();
        self.lost = 0;
    }

    /// Takes the next note; returns the group that it completes.
    #[inline(always)]
    pub fn take(&mut self, [word, value]: Note) -> Option<Executed> {
        let entry = Executed {
            group: notes::number(word),
            address: value,
            ..Executed::default()
        };
        if word != 0 && notes::kind(word) == GROUP {
            return Some(entry);
        }
        self.take_part(word, entry)
    }

    fn take_part(&mut self, word: u64, mut entry: Executed) -> Option<Executed> {
        let value = entry.address;
        if word == 0 {
            self.lost += 1;
            return None;
        }
        let kind = notes::kind(word);
        if kind == FIRST {
            self.open.push(entry);
            return None;
        }
        // A signal handler's notes may stand between the notes of one instruction.
        let of_group = |open: &Executed| open.group == entry.group;
        let Some(place) = self.open.iter().rposition(of_group) else {
            self.lost += 1;
            return None;
        };
        if kind == SECOND {
            self.open[place].second = value;
            return None;
        }
        entry = self.open.remove(place);
        (entry.times, entry.down) = (Some(value >> 1), value & 1 != 0);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_a_repeated_instruction_belong_together() {
        let note = |kind, group, value| [notes::word(notes::kind_and_number(kind, group)), value];
        let mut entries = Entries::default();
        assert_eq!(entries.take(note(FIRST, 7, 0x100)), None);
        // A signal handler comes in between.
        let group = entries.take(note(GROUP, 3, 0x900)).unwrap();
        assert_eq!((group.group, group.address, group.times), (3, 0x900, None));
        assert_eq!(entries.take(note(SECOND, 7, 0x200)), None);
        assert_eq!(entries.take([0, 0]), None);
        let whole = entries.take(note(TIMES, 7, 5 << 1 | 1)).unwrap();
        let expected = Executed {
            group: 7,
            address: 0x100,
            second: 0x200,
            times: Some(5),
            down: true,
        };
        assert_eq!(whole, expected);
        assert_eq!(entries.lost, 1);
    }
}
