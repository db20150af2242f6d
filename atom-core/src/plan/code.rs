//! The result of planning: inserted code with symbolic targets.

use std::mem::offset_of;
use std::ops::Range;

use atom_abi::RunInfo;

use super::sparse::Sparse;
use crate::ids::{Address48, BlockId, InstId, ProcId};
use crate::live::RegSet;
use crate::tool::{Call, CallPlace, Calls};
use crate::x86::asm::{self, Access, FrameChange, Gpr};

/// Symbolic target of a four-byte field of inserted code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An address of the original image.
    Original(Address48),
    /// An address of the tool's file, inside the analysis image.
    Analysis(Address48),
    /// An offset in [`Plan::data`].
    Data(u32),
    /// The slot of the process's area that holds the address of a function of the tool, which is
    /// given by its address in the tool's file.
    Slot(Address48),
    /// A shared snippet: index into [`Plan::shared`].
    Shared(u32),
    /// The shared snippet [`Plan::original_return`].
    OriginalReturn,
    /// The table of return addresses that the rewriter makes for [`Self::OriginalReturn`].
    ReturnMap,
    /// The same place in the other version of the procedure.
    Twin,
    /// The snippet itself; the addend is the offset in bytes.
    Main,
    /// The cold part of the snippet; the addend is the offset in bytes.
    ColdPart,
}

impl Target {
    /// An address of the original image.
    pub const fn original(address: u64) -> Self {
        Self::Original(Address48::new(address))
    }

    /// An address of the tool's file.
    pub const fn analysis(address: u64) -> Self {
        Self::Analysis(Address48::new(address))
    }
}

/// A field of inserted code that holds an address, with its symbolic target.
pub type Fixup = asm::Fixup<Target>;

/// The assembler of inserted code.
pub(super) type Asm = asm::Asm<Target>;

/// Where the tool's code and data are, as seen from inserted code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Home {
    /// In the object's own new segments.
    #[default]
    Own,
    /// In an area below 2 GiB that all objects of the process share.
    Area,
}

/// An assembler of code that reaches the tool at its home.
pub(super) fn assembler(home: Home) -> Asm {
    let by_address = match home {
        Home::Own => |_: &Target| false,
        Home::Area => {
            |t: &Target| matches!(t, Target::Analysis(_) | Target::Data(_) | Target::Slot(_))
        }
    };
    Asm::new(by_address)
}

/// Emits the call of a function of the tool, given by its address in the tool's file.
pub(super) fn call_routine(asm: &mut Asm, routine: u64) {
    let target = Target::analysis(routine);
    if (asm.by_address)(&target) {
        asm.call_through(Target::Slot(Address48::new(routine)))
    } else {
        asm.call(target)
    }
}

/// The second operand of an instruction in inserted code.
pub(super) type Operand = asm::machine::Operand<Target>;

/// An instruction of inserted code, with its registers.
pub(super) type Encoding = asm::machine::Encoding<Target>;

/// A piece of inserted code. It has a fixed size and is position independent except for its fixups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snippet {
    /// Range of [`Plan::code`].
    pub code: Range<u32>,
    /// Range of [`Plan::fixups`]; offsets count from `code.start`.
    pub fixups: Range<u32>,
    /// Size of the cold part in bytes. It is the cold path at the end of the code, and is placed after it
    /// the procedure. Shared snippets have none.
    pub cold_part: u32,
    /// Number of changes of frame in the cold part; they come last.
    pub cold_frame_changes: u32,
}

impl Snippet {
    /// Size in bytes of the code at the point itself.
    pub fn main_size(&self) -> u32 {
        self.code.end - self.code.start - self.cold_part
    }
}

/// Position of a snippet at an instruction. Snippets are in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Position {
    /// Before the instruction, only on paths that enter the procedure here from outside.
    Entry,
    /// Before the instruction, on every path to it.
    Before,
    /// After the instruction, when it falls through or returns to the next.
    After,
    /// On the taken edge of a direct conditional branch.
    Taken,
}

/// One insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insertion {
    /// The instruction.
    pub inst: InstId,
    /// Position at the instruction.
    pub position: Position,
    /// Index into [`Plan::snippets`].
    pub snippet: u32,
}

/// A copy of a procedure's code, with insertions of its own. At the same original instruction the program's state is the same
/// in all versions, so control may go from one to another there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Version {
    /// With the tool's calls.
    #[default]
    Full,
    /// With nothing but what leads to the full version, and what the runtime needs.
    Light,
}

/// Guards to put between pads and the new text, so that a new thread gets its own data.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Guards {
    /// Offset in [`Plan::data`] of the main `atom_abi::ThreadBlock`.
    pub block: u32,
    /// The shared snippet that a guard calls if the thread is not the block's owner. It changes no
    /// register and no flag.
    pub enter: u32,
    /// Entries of procedures where r11, the flags and the red zone are free; sorted.
    pub light: Vec<BlockId>,
    /// Blocks whose pads need no guard; sorted.
    pub bare: Vec<BlockId>,
    /// True if no pad needs a guard.
    pub none_at_all: bool,
}

/// The kind of a pad's guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// Uses r11, the flags and the stack.
    Light,
    /// Changes no register, flag or memory of the program.
    Clean,
}

impl Guards {
    /// No guards: all code that starts threads is instrumented.
    pub fn none(block: u32, enter: u32) -> Self {
        Self {
            block,
            enter,
            none_at_all: true,
            ..Self::default()
        }
    }

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

/// Places of the counters of edges and of the table that computes totals, as offsets in the plan's data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// The table, as the runtime reads it.
    pub table: u32,
    /// Size of the table in bytes.
    pub table_size: u32,
    /// The counters of edges.
    pub counters: u32,
    /// Scratch memory of the runtime's computation.
    pub scratch: u32,
}

/// All code and data that is to be inserted.
#[derive(Default, Debug)]
pub struct Plan {
    /// Bytes of all snippets.
    pub code: Vec<u8>,
    /// Fixups of all snippets.
    pub fixups: Vec<Fixup>,
    /// Places where inserted code moves the stack pointer, by ascending offset in `code`. Before the first
    /// change of a snippet the frame is `Below(0)`, and again at its end.
    pub frame_changes: Vec<FrameChange>,
    /// Instructions of routines in line that may fault, by ascending offset in `code`.
    pub accesses: Vec<Access>,
    /// Snippets that insertions name. One snippet may serve several insertions.
    pub snippets: Vec<Snippet>,
    /// Snippets that are placed once in the new text and called or jumped to.
    pub shared: Vec<Snippet>,
    /// Insertions sorted by (instruction, position), in the order of addition.
    pub insertions: Vec<Insertion>,
    /// Insertions of the [light version](Version::Light), if there is one, in the same order.
    pub light: Option<Vec<Insertion>>,
    /// Blocks at which control that comes from outside begins in the full version, as only that one tests there; in ascending
    /// order.
    pub full_fronts: Vec<BlockId>,
    /// Read-write data of the plan: records and contents of string and array arguments.
    pub data: Sparse,
    /// Offsets of 8-byte slots in `data` that hold an offset in `data`. The run-time address of `data` is
    /// added to them.
    pub data_relocs: Vec<u32>,
    /// Shared snippet that makes the ProgramBefore calls: a function by the C ABI.
    pub program_before: Option<u32>,
    /// Shared snippet that makes the ProgramAfter calls: a function by the C ABI.
    pub program_after: Option<u32>,
    /// Shared snippet that turns a return address into the original's, if one is used.
    pub original_return: Option<u32>,
    /// The runtime is told of the table of return addresses.
    pub maps_returns: bool,
    /// The runtime looks up instruction boundaries of the new text.
    pub maps_boundaries: bool,
    /// The `atom_abi::ThreadInfo` in `data`, if threads have data of their own.
    pub thread_info: Option<u32>,
    /// The `atom_abi::ThreadInfo` in `data`, if the tool has cells; also if the process has one thread.
    pub cell_info: Option<u32>,
    /// The `atom_abi::Control` in `data`, if a word of it decides between two versions.
    pub control: Option<u32>,
    /// The slot of `data_relocs` that must be relocated before any code of the program runs: the main
    /// block's own address.
    pub early_reloc: Option<u32>,
    /// Inserted code has a stack of its own where rsp may lead to data.
    pub has_private_stack: bool,
    /// Guards of pads, if the running thread's data is found through gs.
    pub guards: Option<Guards>,
    /// The table of `atom_abi::CountRange` in `data`, and its length.
    pub counts: (u32, usize),
    /// What the calls change of the program.
    pub changes: Changes,
    /// Bytes that the file gets and that nothing loads.
    pub signature: Vec<u8>,
    /// The `atom_abi::RunInfo` in `data`, if there is one.
    pub run_info: Option<u32>,
    /// How the tool's cells follow from the counters of edges, if there are any.
    pub totals: Option<Totals>,
    /// Number of calls that are not made because edges of the control flow are counted instead.
    pub calls_by_flow: u64,
    /// Number of calls that the tool added to this object, for the report.
    pub calls_added: u64,
    /// Number of these calls whose routine is in line.
    pub calls_inlined: u64,
}

/// What calls change of an object.
#[derive(Clone, Default, Debug)]
pub struct Changes {
    /// Procedures in place of which routines run; sorted.
    pub procs: Vec<ProcId>,
    /// Registers that calls at instructions may set; sorted by the instructions.
    pub registers: Vec<SetRegister>,
}

/// A register that a call may set.
#[derive(Clone, Copy, Debug)]
pub struct SetRegister {
    /// The instruction at which the call is made.
    pub inst: InstId,
    /// Before or after it.
    pub place: CallPlace,
    /// The register.
    pub register: Gpr,
}

impl Changes {
    /// The changes that the calls on an object make.
    pub fn of(calls: &Calls) -> Self {
        let at = |call: &Call| {
            let register = call.sets(&calls.args)?;
            Some(SetRegister {
                inst: InstId(call.id),
                place: call.place,
                register,
            })
        };
        let mut changes = Self {
            procs: calls.replaced().map(ProcId).collect(),
            registers: calls.calls.iter().filter_map(at).collect(),
        };
        changes.procs.sort_unstable();
        changes.registers.sort_unstable_by_key(|set| set.inst);
        changes
    }

    /// The registers that calls at a place of an instruction may set.
    pub fn registers_at(&self, inst: InstId, place: CallPlace) -> RegSet {
        let first = self.registers.partition_point(|set| set.inst < inst);
        let here = self.registers[first..]
            .iter()
            .take_while(|set| set.inst == inst);
        let here = here.filter(|set| set.place == place);
        here.fold(RegSet::EMPTY, |all, set| {
            all | RegSet::gpr(set.register.0.into())
        })
    }
}

/// What the runtime is told of the run; the fields are those of `atom_abi::RunInfo`.
#[derive(Clone, Copy, Default)]
pub struct Told<'a> {
    /// Path of the record for `atom run`, up to the process number; may be empty.
    pub record: &'a [u8],
    /// Names of the libraries that are not instrumented.
    pub unseen: &'a str,
    /// Number of procedures that are not understood.
    pub opaque: u64,
    /// First words of the command line that follows executed programs, each with a null after it.
    pub follow: &'a [u8],
    /// First words of the command line that instruments libraries when they are opened, each with a null after it.
    pub late: &'a [u8],
    /// Path by which a program that is instrumented alone was named under `atom run`; may be empty.
    pub named: &'a [u8],
    /// Path of a symbolic link to its original; may be empty.
    pub link: &'a [u8],
    /// Size in bytes of all known code, and of the part that is understood.
    pub code: [u64; 2],
    /// Device and inode of the program's file under `atom run`, else zeros.
    pub original: [u64; 2],
    /// Name of the tool.
    pub tool: &'a str,
    /// What the tool replaces, with `, ` between.
    pub replaced: &'a str,
}

impl Plan {
    /// Adds what the runtime is told of the run: an `atom_abi::RunInfo`.
    pub fn tell(&mut self, told: &Told<'_>) {
        let start = self.data.len().next_multiple_of(8);
        let texts = [
            (offset_of!(RunInfo, record), told.record),
            (offset_of!(RunInfo, unseen), told.unseen.as_bytes()),
            (offset_of!(RunInfo, follow), told.follow),
            (offset_of!(RunInfo, tool), told.tool.as_bytes()),
            (offset_of!(RunInfo, late), told.late),
            (offset_of!(RunInfo, named), told.named),
            (offset_of!(RunInfo, link), told.link),
            (offset_of!(RunInfo, replaced), told.replaced.as_bytes()),
        ];
        self.data.grow(start + size_of::<RunInfo>());
        for (field, text) in texts {
            let (slot, at) = (start + field, self.data.len() as u64);
            self.data.extend(text);
            self.data.extend(b"\0");
            self.data.write(slot, &at.to_le_bytes());
            self.data
                .write(slot + 8, &(text.len() as u64).to_le_bytes());
            self.data_relocs.push(slot as u32);
        }
        let [code, understood] = told.code;
        let [device, inode] = told.original;
        let original = offset_of!(RunInfo, original);
        for (field, number) in [
            (offset_of!(RunInfo, opaque), told.opaque),
            (offset_of!(RunInfo, code), code),
            (offset_of!(RunInfo, understood), understood),
            (original, device),
            (original + 8, inode),
        ] {
            self.data.write(start + field, &number.to_le_bytes());
        }
        self.run_info = Some(start as u32);
    }

    /// The insertions of a version.
    pub fn insertions(&self, version: Version) -> &[Insertion] {
        match version {
            Version::Full => &self.insertions,
            Version::Light => self.light.as_deref().unwrap_or_default(),
        }
    }

    /// Number of changes of frame in the snippets between two offsets of the code.
    pub fn frame_changes_between(&self, start: u32, end: u32) -> usize {
        let index = |end: u32| self.frame_changes.partition_point(|s| s.at <= end);
        index(end) - index(start)
    }

    /// True if any of these fixups may belong to a call of shared code or of a routine.
    pub fn calls(&self, fixups: &Range<u32>) -> bool {
        let fixups = &self.fixups[fixups.start as usize..fixups.end as usize];
        fixups.iter().any(|f| {
            use Target as T;
            matches!(
                f.target,
                T::Shared(_) | T::OriginalReturn | T::Analysis(_) | T::Slot(_)
            )
        })
    }

    /// The instructions of routines in a snippet that may fault.
    pub fn accesses_of(&self, snippet: &Snippet) -> &[Access] {
        let index = |end: u32| self.accesses.partition_point(|a| a.at < end);
        &self.accesses[index(snippet.code.start)..index(snippet.code.end)]
    }

    /// The changes of frame in a snippet.
    pub fn frame_changes_of(&self, snippet: &Snippet) -> &[FrameChange] {
        let index = |end: u32| self.frame_changes.partition_point(|s| s.at <= end);
        &self.frame_changes[index(snippet.code.start)..index(snippet.code.end)]
    }
}
