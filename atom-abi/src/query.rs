//! Records in which the queries of [`crate::host::Host`] answer.
//!
//! Answers of several items are handed to a [`Sink`], one call for each item,
//! before the query returns; an item and what it points to are valid during
//! that call only. Numbers of registers are those of [`crate::host::Reg`], or
//! [`NO_REG`].

use core::ffi::c_void;

use crate::StrRef;

/// "No register."
pub const NO_REG: u32 = u32::MAX;

/// A function that takes one item of an answer; `arg` is the pointer that was given with the
/// function.
pub type Sink<T> = extern "C" fn(arg: *mut c_void, item: *const T);

/// An edge of the control flow, seen from one of its ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EdgeRecord {
    /// [`EdgeKind`] as a number.
    pub kind: u32,
    /// The block at the other end, or [`crate::host::NONE`].
    pub block: u32,
    /// Address of that block, also where the edge leads out of the procedure; 0 if not known.
    pub address: u64,
}

/// Kinds of edge: how control goes along it.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EdgeKind {
    /// To the next instruction: no branch, or one that is not taken.
    Fall = 0,
    /// By a direct branch.
    Taken = 1,
    /// By an indirect jump; the edge leads to one of its known targets.
    Table = 2,
    /// To the instruction after a call.
    CallReturn = 3,
    /// From a call to a landing pad, by an exception.
    Unwind = 4,
    /// To another procedure, by a jump.
    Tail = 5,
    /// To the caller.
    Return = 6,
    /// To an address that is not known.
    Unknown = 7,
}

impl EdgeKind {
    /// The kind with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Fall,
            1 => Self::Taken,
            2 => Self::Table,
            3 => Self::CallReturn,
            4 => Self::Unwind,
            5 => Self::Tail,
            6 => Self::Return,
            _ => Self::Unknown,
        }
    }
}

/// A natural loop.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoopRecord {
    /// Block through which it is entered.
    pub header: u32,
    /// Index in the answer of the innermost loop around this one, or [`crate::host::NONE`].
    pub parent: u32,
    /// Nesting depth; 1 for an outermost loop.
    pub depth: u32,
    /// Number of `latches`.
    pub latch_count: u32,
    /// Blocks from which a back edge leads to the header.
    pub latches: *const u32,
    /// Blocks of the loop, including the blocks of inner loops.
    pub blocks: *const u32,
    /// Number of `blocks`.
    pub block_count: usize,
}

/// Questions to [`crate::host::Host::block_relation`].
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Relation {
    /// The immediate dominator.
    Dominator = 0,
    /// The immediate post-dominator.
    PostDominator = 1,
    /// The index of the innermost loop in the answer of `proc_loops`.
    InnermostLoop = 2,
    /// 1 if some entry of the procedure leads to the block, else 0.
    Reachable = 3,
    /// 1 if the block's address is taken: a code pointer in data, in an operand or
    /// in the table of exported symbols, so that an indirect call may lead there.
    AddressTaken = 4,
    /// 1 if the user's choice of code lets calls on the block be made, else 0.
    Selected = 5,
}

/// How a procedure uses the stack. Offsets count from the virtual frame
/// pointer, which is the value of rsp before the call that entered it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameRecord {
    /// Size in bytes, from the virtual frame pointer down to rsp in the procedure's body. It
    /// includes the return address.
    pub size: u64,
    /// The frame's size is not fixed; `size` is the fixed part.
    pub is_dynamic: bool,
    /// The frame was found in unwind tables; if false, by the instructions at the start.
    pub from_tables: bool,
    /// Set of the general registers that are saved, one bit for each number.
    pub int_mask: u32,
    /// Set of the vector registers that are saved, one bit for each number.
    pub float_mask: u32,
    /// Offset at which each general register is saved.
    pub int_offsets: [i32; 16],
    /// Offset at which each of the first 16 vector registers is saved.
    pub float_offsets: [i32; 16],
    /// Offset of the upper end of the local variables.
    pub local_offset: i32,
    /// Offset of the return address.
    pub return_offset: i32,
    /// Register that addresses the frame in the body.
    pub frame_reg: u32,
    /// Number of bytes at the start that serve the processor only (`endbr64`).
    pub landing_size: u32,
}

/// How the caller's frame is found at a call. The caller's frame begins at the *virtual frame pointer*, rsp before the
/// call that entered the procedure; the return address is 8 bytes below.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFrameRecord {
    /// Number of the call instruction.
    pub inst: u32,
    /// 1 if the virtual frame pointer is rbp plus `offset`, 0 if it is rsp plus `offset`. rsp is meant before the call, where
    /// it is the same as after it.
    pub by_rbp: u32,
    /// Offset in bytes.
    pub offset: i32,
    /// Where the caller's rbp is saved, from the virtual frame pointer; 0 if rbp is still the caller's.
    pub rbp_offset: i32,
}

/// Registers that an instruction uses and changes, one bit for each number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegUsageRecord {
    /// Read.
    pub used: [u64; 2],
    /// Written, in whole or in part, always or perhaps.
    pub updated: [u64; 2],
    /// Written always and in whole, so that nothing of the old value is left.
    pub replaced: [u64; 2],
    /// Flags that are read, as bits of rflags.
    pub flags_read: u32,
    /// Flags that are written, those with undefined results included.
    pub flags_written: u32,
    /// Flags that are written with undefined results.
    pub flags_undefined: u32,
}

/// Bits that say how a register or memory is accessed.
pub mod access {
    /// Read.
    pub const READ: u32 = 1;
    /// Written.
    pub const WRITE: u32 = 2;
    /// Perhaps not accessed at all: a mask, a condition or a count of 0 may prevent it.
    pub const CONDITIONAL: u32 = 4;
}

/// A register or a part of it that an instruction accesses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegAccessRecord {
    /// The whole register.
    pub reg: u32,
    /// First byte of the part: 1 for `ah`, else 0.
    pub offset: u32,
    /// Size of the part in bytes; a write that clears the rest counts as whole.
    pub size: u32,
    /// Bits of [`access`].
    pub access: u32,
}

/// A memory operand of an instruction, also one that the instruction's text does not show.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRecord {
    /// Bits of [`access`].
    pub access: u32,
    /// Size in bytes of one element; 0 if it depends on the processor's state.
    pub size: u32,
    /// Number of elements, each with an address of its own (gather, scatter); else 1.
    pub count: u32,
    /// Bits of [`memory`].
    pub flags: u32,
    /// [`crate::host::Reg::FsBase`], [`crate::host::Reg::GsBase`] or [`NO_REG`].
    pub segment: u32,
    /// Base register; `Pc` if relative to the next instruction.
    pub base: u32,
    /// Index register; a vector register for gather and scatter.
    pub index: u32,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u32,
    /// Displacement in bytes; with base `Pc` it is added to the address of the next instruction.
    pub displacement: i64,
    /// The address, if the flag [`memory::FIXED`] is set; else 0.
    pub address: u64,
    /// Size in bytes of one index of a gather or scatter; 0 for other instructions.
    pub index_size: u32,
    /// Register whose bits above the operand's size count further operands
    /// (`bt` and its like), or [`NO_REG`].
    pub bit_offset: u32,
}

/// Bits of [`MemoryRecord::flags`].
pub mod memory {
    /// Not shown as an operand: the stack of `push`, the pointers of `movs`.
    pub const IMPLICIT: u32 = 1;
    /// The operand belongs to a string instruction; its pointer is rsi or rdi.
    pub const STRING: u32 = 2;
    /// The access is repeated rcx times, or until a comparison ends it.
    pub const REPEATED: u32 = 4;
    /// One element is read and used for all (AVX-512).
    pub const BROADCAST: u32 = 8;
    /// Address registers are used as 32 bits.
    pub const ADDRESS_32: u32 = 16;
    /// The address does not depend on registers, segment bases apart.
    pub const FIXED: u32 = 32;
    /// Only the lowest byte of the index is used (`xlatb`).
    pub const INDEX_8: u32 = 64;
}

/// An operand as the instruction is written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandRecord {
    /// [`OperandKind`] as a number.
    pub kind: u32,
    /// Bits of [`access`]; 0 for constants.
    pub access: u32,
    /// The register, or [`NO_REG`].
    pub reg: u32,
    /// First byte of the part of the register.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Constant or target; for a register without a number in `Reg` the encoded one.
    pub value: u64,
}

/// Kinds of operand.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OperandKind {
    /// A register.
    Register = 0,
    /// Memory.
    Memory = 1,
    /// A constant, extended to 64 bits as the instruction does it.
    Constant = 2,
    /// The target of a branch.
    Target = 3,
}

/// Facts of an encoding that [`crate::host::Host::inst_info`] returns, ATOM's `IInfoType`.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum InstInfo {
    /// The memory displacement as encoded, sign-extended.
    MemDisp = 0,
    /// The branch displacement as encoded, sign-extended: target minus next instruction.
    BrDisp = 1,
    /// The opcode bytes without prefixes and map: `0xaf` of `0f af`.
    Opcode = 2,
    /// The map that the opcode is from: 0 (one byte), 1 (`0f`), 2 (`0f 38`), 3 (`0f 3a`), ...
    OpcodeMap = 3,
    /// Encoding: 0 legacy, 1 VEX, 2 EVEX, 3 XOP, 4 3DNow!.
    Encoding = 4,
    /// The first constant, extended to 64 bits as the instruction does it.
    Immediate = 5,
    /// Size in bytes of the memory displacement.
    MemDispSize = 6,
    /// Size in bytes of the first constant.
    ImmediateSize = 7,
    /// Number of operands.
    OperandCount = 8,
    /// How a string instruction is repeated, a [`Repeat`] as a number; no other instruction has it.
    Repeat = 9,
    /// Number of the mask register that chooses the elements of an AVX-512 instruction, 1 to 7. An
    /// instruction that works on all elements does not have it.
    MaskRegister = 10,
}

/// How a string instruction is repeated.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Repeat {
    /// It has no repeat prefix and runs once.
    Once = 0,
    /// It runs rcx times: `movs`, `stos`, `lods`, `ins` and `outs`, with either prefix.
    Counted = 1,
    /// It compares (`cmps`, `scas`), and ends after rcx times or at the first difference (`repe`).
    WhileEqual = 2,
    /// It compares, and ends after rcx times or when both are equal (`repne`).
    UntilEqual = 3,
}

impl Repeat {
    /// The value with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Once),
            1 => Some(Self::Counted),
            2 => Some(Self::WhileEqual),
            3 => Some(Self::UntilEqual),
            _ => None,
        }
    }
}

/// One of the source functions that an address belongs to, as a result of inlining.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SourceFrameRecord {
    /// Name as in the debug information (mangled, if it is so there); empty if unknown.
    pub function: StrRef,
    /// Name demangled for people.
    pub name: StrRef,
    /// Source file, or empty.
    pub file: StrRef,
    /// Line, or 0. In the innermost frame it is the instruction's line, in the others the line of
    /// the inlined call.
    pub line: u32,
    /// Column, or 0.
    pub column: u32,
}

/// A label in a source function, as debug information describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LabelRecord {
    /// Its name.
    pub name: StrRef,
    /// Name of the function as in the debug information; empty if unknown.
    pub function: StrRef,
    /// Source file, or empty.
    pub file: StrRef,
    /// Line, or 0.
    pub line: u32,
    /// Column, or 0.
    pub column: u32,
    /// Address that the compiler gave the label, or 0. Optimisation makes it unreliable. A label
    /// of an inlined function has one address for each copy, and this is one of them.
    pub address: u64,
}

/// A data object that a symbol table defines.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SymbolRecord {
    /// Its name as in the table.
    pub name: StrRef,
    /// Name demangled for people.
    pub plain_name: StrRef,
    /// Its address in the program's file.
    pub address: u64,
    /// Its size in bytes, 0 if not stated.
    pub size: u64,
}

/// A section of an object that is loaded.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SectionRecord {
    /// Its name.
    pub name: StrRef,
    /// Its address in the file.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_type`.
    pub kind: u32,
    /// Zero.
    pub unused: u32,
}

/// How [`VariableRecord::at`] is read.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum VariablePlace {
    /// An address in the program's file.
    Static = 0,
    /// A signed offset in bytes from the value of rsp before the call that entered the function.
    Frame = 1,
    /// In each thread's own storage; `at` has no meaning.
    ThreadLocal = 2,
    /// Not at one address: in registers, in several places, or nowhere.
    Moving = 3,
    /// A part that does not consist of whole bytes.
    Bits = 4,
}

/// A variable of the source, or the part of it that was asked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VariableRecord {
    /// Name as in the debug information of the function that it is local to; empty for others.
    pub function: StrRef,
    /// Address of that function, or 0.
    pub function_address: u64,
    /// [`VariablePlace`] as a number.
    pub place: u32,
    /// Line of its declaration, or 0.
    pub line: u32,
    /// Location, in the form that `place` says.
    pub at: u64,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// The source file that was compiled, or empty.
    pub unit: StrRef,
}

/// An object of the process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectRecord {
    /// File name by which it is loaded.
    pub name: StrRef,
    /// Path by which it is loaded.
    pub path: StrRef,
    /// Name by which other objects name it as their library (`DT_SONAME`); empty if it has none.
    pub soname: StrRef,
    /// The bytes of its build-id, which are no text; empty if it has none.
    pub build_id: StrRef,
    /// [`ObjectKind`] as a number.
    pub kind: u32,
    /// Its first procedure.
    pub first_proc: u32,
    /// Number of its procedures.
    pub proc_count: u32,
}

/// Kinds of object.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ObjectKind {
    /// The program.
    Program = 0,
    /// The program interpreter, which is the dynamic loader.
    Interpreter = 1,
    /// A library.
    Library = 2,
}
