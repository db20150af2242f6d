//! The calls that an instrument routine added, in flat vectors, as planning reads them.

use std::collections::BTreeSet;
use std::ops::Range;

use atom_abi::host;
use rustc_hash::FxHashMap;

use crate::cfg::Numbers;
use crate::ids::Address48;

use super::space::{Piece, Space};
use crate::x86::asm::Gpr;

/// What a call is added to: [`host::Scope`] in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The whole program.
    Program,
    /// A procedure.
    Proc,
    /// A basic block.
    Block,
    /// An instruction.
    Inst,
    /// The way into a block from outside its procedure.
    Entry,
    /// The way from a block to what is after it.
    Falling,
    /// The way out of a block by a jump or return at its end.
    Taken,
    /// A procedure, in place of which the routine runs.
    Instead,
}

impl Scope {
    /// The object that the thing `id` of this kind belongs to, and its number in that object. `None`
    /// for the program. `numbers` has an entry for each object of the process.
    pub fn locate(self, id: u32, numbers: &[Numbers]) -> Option<(usize, u32)> {
        let first: fn(&Numbers) -> u32 = match self {
            Self::Program => return None,
            Self::Proc | Self::Instead => |n| n.proc,
            Self::Inst => |n| n.inst,
            Self::Block | Self::Entry | Self::Falling | Self::Taken => |n| n.block,
        };
        let object = numbers
            .partition_point(|n| first(n) <= id)
            .saturating_sub(1);
        Some((object, id - first(&numbers[object])))
    }
}

impl From<host::Scope> for Scope {
    fn from(scope: host::Scope) -> Self {
        match scope {
            host::Scope::Program => Self::Program,
            host::Scope::Proc => Self::Proc,
            host::Scope::Block => Self::Block,
            host::Scope::Inst => Self::Inst,
            host::Scope::Entry => Self::Entry,
            host::Scope::Falling => Self::Falling,
            host::Scope::Taken => Self::Taken,
            host::Scope::Instead => Self::Instead,
        }
    }
}

/// Whether a call is made before or after what it is added to: [`host::Place`] in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallPlace {
    /// Before it.
    Before,
    /// After it.
    After,
}

impl From<host::Place> for CallPlace {
    fn from(place: host::Place) -> Self {
        match place {
            host::Place::Before => Self::Before,
            host::Place::After => Self::After,
        }
    }
}

/// One argument of a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Argument {
    /// A 64-bit constant.
    Const(u64),
    /// A string, as a range of bytes of [`Calls::data`]; the routine gets a `*const StrRecord`.
    Str(u32, u32),
    /// A string, as a range of bytes of [`Calls::data`]; the routine gets a null-terminated
    /// `*const c_char`.
    CStr(u32, u32),
    /// An array, as a range of bytes of [`Calls::data`] and the size of an element in bytes; the
    /// routine gets a `*const ArrayRecord`.
    Array(u32, u32, u32),
    /// An array, as a range of bytes of [`Calls::data`] and the size of an element in bytes; the
    /// routine gets a pointer to the first element.
    CArray(u32, u32, u32),
    /// The run-time address of a byte of [`Calls::placed`], given by its offset.
    Data(u32),
    /// The run-time address of a byte of the running thread's copy of [`Calls::thread_data`], given
    /// by its offset.
    ThreadData(u32),
    /// The value of a register, given by its number as in `atom_abi::host::Reg`.
    Regv(u8),
    /// 1 if the conditional branch will be taken, else 0.
    BrCondValue,
    /// The effective address of the memory operand.
    EffAddrValue,
    /// The effective address of a memory operand, given by its number or [`ANY_OPERAND`].
    EffAddr(u8),
    /// The number of bytes that a memory operand accesses; the operand is given by its number.
    AccessSize(u8),
    /// The value that is read from a memory operand, given by its number.
    LoadedValue(u8),
    /// The value that is written to a memory operand, given by its number.
    StoredValue(u8),
    /// The number of repetitions of a string instruction.
    RepCount,
    /// The target of a jump, call or return.
    BranchTarget,
    /// The value that a procedure returns.
    ReturnValue,
    /// The second 64 bits of a vector register, given by its number as in `atom_abi::host::Reg`.
    RegvHigh(u8),
    /// The run-time address of one of the tool's functions, given by its address in the tool's file.
    Routine(u64),
    /// The run-time address of one of the tool's statics, given by its address in the tool's file.
    Static(u64),
    /// The direction of string instructions: all ones if they go down, else 0.
    Direction,
    /// The run-time address of a byte of the original image, given by its address in the file.
    Original(u64),
    /// Base, index, scale and displacement of a sum of registers. Registers are given by their numbers as in
    /// `atom_abi::host::Reg`, or [`NO_REGISTER`].
    Sum(u8, u8, u8, i32),
    /// The address of the words that say what happens after a call in place of a procedure, or which value the general
    /// register with this number gets.
    Outcome(Option<u8>),
    /// At a procedure's entry, the word that is this number of bytes above rsp.
    Stacked(i32),
    /// At a procedure's entry, the address to which it returns.
    ReturnAddress,
}

/// Stands for no register in [`Argument::Sum`].
pub const NO_REGISTER: u8 = atom_abi::host::NO_REGISTER as u8;

/// Number that stands for the main memory operand of an instruction.
pub const ANY_OPERAND: u8 = u8::MAX;

/// A call of an analysis routine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Kind of thing that the call is added to.
    pub scope: Scope,
    /// Procedure, block or instruction number; 0 for the program.
    pub id: u32,
    /// Before or after that thing.
    pub place: CallPlace,
    /// Address of the analysis routine in the tool's file.
    pub routine: Address48,
    /// Range of [`Calls::args`].
    pub args: Range<u32>,
}

impl Call {
    /// The general register that the call may set at its instruction. `args` are the arguments of all calls.
    pub fn sets(&self, args: &[Argument]) -> Option<Gpr> {
        let args = &args[self.args.start as usize..self.args.end as usize];
        args.iter().find_map(|argument| match argument {
            Argument::Outcome(number) => number.map(Gpr),
            _ => None,
        })
    }
}

/// All calls, in the order in which they were added.
#[derive(Default, Debug)]
pub struct Calls {
    /// The calls.
    pub calls: Vec<Call>,
    /// The arguments of all calls.
    pub args: Vec<Argument>,
    /// Contents of strings and arrays. Equal contents are stored once.
    pub data: Vec<u8>,
    /// Ranges of `data` by the hash of their contents.
    pub known: FxHashMap<u64, (u32, u32)>,
    /// Data that the tool placed: writable in the instrumented program, once
    /// and as a whole, aligned to 16 bytes. [`Argument::Data`] points into it.
    pub placed: Vec<u8>,
    /// Offsets in `placed` at which the separately placed pieces start, ascending.
    pub regions: Vec<u32>,
    /// The same pieces with their sizes.
    pub pieces: Vec<Piece>,
    /// The space of these pieces, and of those of `thread_data`.
    pub spaces: [Space; 2],
    /// Ranges of `placed` that are zeros in a forked child again.
    pub counts: Vec<Range<u32>>,
    /// Data of which each thread has a copy.
    pub thread_data: ThreadData,
    /// Bytes that the program's file gets and that nothing loads.
    pub signature: Vec<u8>,
    /// The runtime is told of the tables of return addresses.
    pub maps_returns: bool,
    /// Strings and arrays of calls at ProgramBefore may be replaced by longer ones, as those at ProgramAfter may.
    pub tables_may_grow: bool,
}

impl Calls {
    /// The numbers of the procedures in place of which routines run, as the calls have them.
    pub fn replaced(&self) -> impl Iterator<Item = u32> {
        let instead = self.calls.iter().filter(|c| c.scope == Scope::Instead);
        instead.map(|c| c.id)
    }

    /// True if a call changes the program.
    pub fn are_changing(&self) -> bool {
        self.args
            .iter()
            .any(|argument| matches!(argument, Argument::Outcome(_)))
    }

    /// Addresses of the analysis routines that are called, each once, in order.
    pub fn routines(&self) -> Vec<u64> {
        let mut routines = BTreeSet::new();
        // Runs of calls mostly name the same routine.
        for same in self.calls.chunk_by(|a, b| a.routine == b.routine) {
            routines.insert(same[0].routine.get());
        }
        // Routines that are passed as arguments may be called, too.
        routines.extend(self.args.iter().filter_map(|argument| match argument {
            Argument::Routine(address) => Some(*address),
            _ => None,
        }));
        routines.into_iter().collect()
    }
}

/// Data that the tool placed for each thread; [`Argument::ThreadData`] points into it.
#[derive(Default, Debug)]
pub struct ThreadData {
    /// Size in bytes.
    pub len: u32,
    /// Pieces that are not all zeros at first: offset, and range of `contents`.
    pub initial: Vec<(u32, Range<u32>)>,
    /// Initial contents of these pieces.
    pub contents: Vec<u8>,
    /// Offsets at which the separately placed pieces start, ascending.
    pub regions: Vec<u32>,
    /// The same pieces with their sizes.
    pub pieces: Vec<Piece>,
    /// Ranges of 64-bit cells that are summed at the end.
    pub sums: Vec<Range<u32>>,
}
