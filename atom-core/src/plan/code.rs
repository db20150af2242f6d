//! What planning hands to rewriting: inserted code with symbolic targets.

use std::ops::Range;

use super::sparse::Sparse;
use crate::ids::{Address48, BlockId, InstId};
use crate::x86::asm::{self, Shift};

/// Where a four-byte relative field of inserted code points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An address of the original image.
    Original(Address48),
    /// An address of the tool's own numbering, inside the analysis image.
    Analysis(Address48),
    /// An offset in [`Plan::data`].
    Data(u32),
    /// A shared snippet: index into [`Plan::shared`].
    Shared(u32),
    /// The shared snippet [`Plan::original_return`].
    OriginalReturn,
    /// The table of return addresses that the rewriter makes for it.
    ReturnMap,
    /// The snippet itself; the addend says which byte.
    Main,
    /// The snippet's tail, likewise.
    Tail,
}

impl Target {
    /// An address of the original image.
    pub const fn original(address: u64) -> Self {
        Self::Original(Address48::new(address))
    }

    /// An address of the tool's own numbering.
    pub const fn analysis(address: u64) -> Self {
        Self::Analysis(Address48::new(address))
    }
}

/// A field of inserted code that holds an address, with its symbolic target.
pub type Fixup = asm::Fixup<Target>;

/// The assembler of inserted code.
pub(super) type Asm = asm::Asm<Target>;

/// The second operand of an instruction in inserted code.
pub(super) type Operand = asm::machine::Operand<Target>;

/// An instruction of inserted code, with its registers.
pub(super) type Encoding = asm::machine::Encoding<Target>;

/// A piece of inserted code: fixed size, position independent but for its fixups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snippet {
    /// Range of [`Plan::code`].
    pub code: Range<u32>,
    /// Range of [`Plan::fixups`]; offsets count from `code.start`.
    pub fixups: Range<u32>,
    /// This many bytes at the end of the code stand behind the procedure: what
    /// is rarely run is out of the way there. Only what insertions name has any.
    pub tail: u32,
    /// How many changes of frame are the tail's; they come last.
    pub tail_shifts: u32,
}

impl Snippet {
    /// Bytes that stand at the point itself.
    pub fn main_size(&self) -> u32 {
        self.code.end - self.code.start - self.tail
    }
}

/// Where at an instruction a snippet stands; in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Position {
    /// Only when control enters the procedure here from outside.
    Entry,
    /// Before the instruction, on every path to it.
    Before,
    /// After the instruction, when it falls through or returns to the next.
    After,
    /// On the way to the target of a direct conditional branch, only if it is taken.
    Taken,
}

/// One insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insertion {
    /// The instruction.
    pub inst: InstId,
    /// Where at it.
    pub position: Position,
    /// Index into [`Plan::snippets`].
    pub snippet: u32,
}

/// What to put between pads and the new text, so that a new thread gets its own data.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Guards {
    /// Offset in [`Plan::data`] of the main `atom_abi::ThreadBlock`.
    pub block: u32,
    /// The shared snippet to call where the thread is not the block's owner. It
    /// changes no register and no flag.
    pub enter: u32,
    /// Entries of procedures where r11, the flags and the red zone are free; sorted.
    pub light: Vec<BlockId>,
    /// Blocks whose pads need no guard; sorted.
    pub bare: Vec<BlockId>,
    /// No pad needs a guard.
    pub none_at_all: bool,
}

/// The kind of a pad's guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// Uses r11, the flags and the stack.
    Light,
    /// Changes nothing.
    Clean,
}

impl Guards {
    /// The guard of a pad that leads to this block.
    pub fn of(&self, block: BlockId) -> Option<Guard> {
        if self.none_at_all || self.bare.binary_search(&block).is_ok() {
            None
        } else if self.light.binary_search(&block).is_ok() {
            Some(Guard::Light)
        } else {
            Some(Guard::Clean)
        }
    }
}

/// Where the counters lie and how totals follow from them; offsets in the plan's data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// The table, as the runtime reads it.
    pub table: u32,
    /// Its size.
    pub table_size: u32,
    /// The flow's counters.
    pub counters: u32,
    /// Room for the runtime to compute in.
    pub scratch: u32,
}

/// All that is to be inserted.
#[derive(Default, Debug)]
pub struct Plan {
    /// Bytes of all snippets.
    pub code: Vec<u8>,
    /// Fixups of all snippets.
    pub fixups: Vec<Fixup>,
    /// Where inserted code moves the stack pointer: offsets in `code`, ascending. Before
    /// the first change of a snippet the frame is `Below(0)`, and again at its end.
    pub shifts: Vec<Shift>,
    /// Snippets that insertions name. One snippet may serve several insertions.
    pub snippets: Vec<Snippet>,
    /// Snippets that are placed once in the new text and called or jumped to.
    pub shared: Vec<Snippet>,
    /// Insertions sorted by (instruction, position), in the order of addition.
    pub insertions: Vec<Insertion>,
    /// Read-write data of the plan: records and contents of string and array arguments.
    pub data: Sparse,
    /// 8-byte slots in `data` that hold an offset in `data` and want the
    /// run-time address of `data` added.
    pub data_relocs: Vec<u32>,
    /// Shared snippet that makes the ProgramBefore calls: a function by the C ABI.
    pub program_before: Option<u32>,
    /// Shared snippet that makes the ProgramAfter calls: a function by the C ABI.
    pub program_after: Option<u32>,
    /// Shared snippet that turns a return address into the original's, if one is used.
    pub original_return: Option<u32>,
    /// The `atom_abi::ThreadInfo` in `data`, if threads have data of their own.
    pub thread_info: Option<u32>,
    /// A slot of `data_relocs` that must be right before any code of the program
    /// runs: the main block's own address.
    pub early_reloc: Option<u32>,
    /// Guards of pads, if the running thread's data is found through gs.
    pub guards: Option<Guards>,
    /// How the tool's cells follow from the flow's counters.
    pub totals: Option<Totals>,
    /// Calls that are not made because control flow is counted instead.
    pub calls_by_flow: u64,
    /// Calls added, for the report.
    pub calls_added: u64,
    /// Of these, made by code in line.
    pub calls_inlined: u64,
}

impl Plan {
    /// The number of changes of frame in the snippets from one place to another of the code.
    pub fn shifts_between(&self, start: u32, end: u32) -> usize {
        let index = |end: u32| self.shifts.partition_point(|s| s.at <= end);
        index(end) - index(start)
    }

    /// The changes of frame in a snippet.
    pub fn shifts_of(&self, snippet: &Snippet) -> &[Shift] {
        let index = |end: u32| self.shifts.partition_point(|s| s.at <= end);
        &self.shifts[index(snippet.code.start)..index(snippet.code.end)]
    }
}
