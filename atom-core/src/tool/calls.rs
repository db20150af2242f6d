//! The calls that an instrument routine added, in flat vectors, as planning reads them.

use std::ops::Range;

use atom_abi::host;

use crate::ids::Address48;

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
    /// The way from a block to what stands behind it.
    Falling,
    /// The way out of a block by a jump or return at its end.
    Taken,
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
        }
    }
}

/// Where there: [`host::Place`] in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallPlace {
    /// Before the point.
    Before,
    /// After the point.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// A 64-bit constant.
    Const(u64),
    /// A string at this range of [`Calls::data`]; the routine gets a `*const StrRecord`.
    Str(u32, u32),
    /// The same, as a null-terminated `*const c_char`.
    CStr(u32, u32),
    /// An array: range of [`Calls::data`] and element size; the routine gets a `*const ArrayRecord`.
    Array(u32, u32, u32),
    /// The same, as a pointer to the first element.
    CArray(u32, u32, u32),
    /// The run-time address of the byte at this offset of [`Calls::placed`].
    Data(u32),
    /// The run-time address of the byte at this offset of the running thread's
    /// copy of [`Calls::thread_data`].
    ThreadData(u32),
    /// A register: number as in `atom_abi::host::Reg`.
    Regv(u8),
    /// Whether the conditional branch will be taken.
    BrCondValue,
    /// The effective address of the memory operand.
    EffAddrValue,
    /// The effective address of the memory operand of this number, or [`ANY_OPERAND`].
    EffAddr(u8),
    /// The number of bytes that the operand of this number accesses.
    AccessSize(u8),
    /// The value that is read from the operand of this number.
    LoadedValue(u8),
    /// The value that is written to the operand of this number.
    StoredValue(u8),
    /// How often a string instruction is repeated.
    RepCount,
    /// Where a jump, call or return goes.
    BranchTarget,
    /// What a procedure returns.
    ReturnValue,
    /// The second 64 bits of a vector register: number as in `atom_abi::host::Reg`.
    RegvHigh(u8),
    /// The address of one of the tool's functions: its address in the tool's file.
    Routine(u64),
    /// The same of data of the tool.
    Static(u64),
    /// Whether string instructions go down.
    Direction,
    /// The run-time address of an address of the original image.
    Original(u64),
}

/// The operand that a value without a number means.
pub const ANY_OPERAND: u8 = u8::MAX;

/// One call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// What it is added to.
    pub scope: Scope,
    /// Procedure, block or instruction number; 0 for the program.
    pub id: u32,
    /// Before or after.
    pub place: CallPlace,
    /// The analysis routine: address in the tool's file.
    pub routine: Address48,
    /// Range of [`Calls::args`].
    pub args: Range<u32>,
}

/// All calls, in the order in which they were added.
#[derive(Default, Debug)]
pub struct Calls {
    /// The calls.
    pub calls: Vec<Call>,
    /// Their arguments.
    pub args: Vec<Argument>,
    /// Contents of strings and arrays.
    pub data: Vec<u8>,
    /// Data that the tool placed: writable in the instrumented program, once
    /// and as a whole, aligned to 16 bytes. [`Argument::Data`] points into it.
    pub placed: Vec<u8>,
    /// Where in it each piece starts that was placed by itself, ascending.
    pub regions: Vec<u32>,
    /// Data that each thread has a copy of.
    pub thread_data: ThreadData,
}

/// Data that the tool placed for each thread; [`Argument::ThreadData`] points into it.
#[derive(Default, Debug)]
pub struct ThreadData {
    /// Size in bytes.
    pub len: u32,
    /// What is not all zeros at first: offset, and range of `contents`.
    pub initial: Vec<(u32, Range<u32>)>,
    /// Initial contents.
    pub contents: Vec<u8>,
    /// Where each piece starts that was placed by itself, ascending.
    pub regions: Vec<u32>,
    /// Ranges of 64-bit cells that are summed at the end.
    pub sums: Vec<Range<u32>>,
}
