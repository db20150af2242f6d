//! The table of functions that an instrument routine calls inside `atom`.
//!
//! Procedures, blocks and instructions are numbered from 0 in address order;
//! [`NONE`] stands for "there is none". A block's number is unique in the
//! program, and so is an instruction's; blocks of one procedure are
//! consecutive, instructions of one block too. Strings returned live as long
//! as the instrument routine runs.

use core::ffi::c_void;

use crate::StrRef;
use crate::query::{
    CallFrameRecord, EdgeRecord, FrameRecord, LabelRecord, LoopRecord, MemoryRecord, ObjectRecord,
    OperandRecord, RegAccessRecord, RegUsageRecord, SectionRecord, Sink, SourceFrameRecord,
    SymbolRecord, VariableRecord,
};

/// "There is no such procedure, block or instruction."
pub const NONE: u32 = u32::MAX;

/// Opaque state of `atom`, handed back to each function of the table.
#[repr(C)]
pub struct Context {
    _private: [u8; 0],
}

/// Where a call is added. The values are those of ATOM's `PlaceType`, in its order.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Place {
    /// Before the point.
    Before = 0,
    /// After the point.
    After = 1,
}

/// What a call is added to.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Scope {
    /// The whole program; the id is ignored.
    Program = 0,
    /// A procedure.
    Proc = 1,
    /// A basic block.
    Block = 2,
    /// An instruction.
    Inst = 3,
    /// The way into a block from outside its procedure. The place is ignored here and in the next
    /// two.
    Entry = 4,
    /// The way from a block to the next instruction in the program, when its last instruction
    /// does not jump; after a call, when the callee returns.
    Falling = 5,
    /// The way out of a block by its last instruction, when that jumps or returns.
    Taken = 6,
    /// A procedure, in place of which the routine runs. Its argument [`ArgKind::Outcome`] says what happens then. The place
    /// is ignored.
    Instead = 7,
}

/// The kinds of argument. The kind says how [`Arg::value`] and [`Arg::ptr`] are read.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ArgKind {
    /// The 64-bit constant `value` (also char and int, already extended).
    Const = 0,
    /// A string: `value` bytes at `ptr`. The routine gets a `*const StrRecord`.
    Str = 1,
    /// As `Str`, but the routine gets a null-terminated `*const c_char`.
    CStr = 2,
    /// An array: `value` elements of `elem_size` bytes at `ptr`.
    /// The routine gets a `*const ArrayRecord`.
    Array = 3,
    /// As `Array`, but the routine gets a pointer to the first element (C's `int[n]`).
    CArray = 4,
    /// The contents of register number `value` (see [`Reg`]) at the point.
    Regv = 5,
    /// Non-zero if the conditional branch will be taken, else 0.
    BrCondValue = 6,
    /// The effective address of the instruction's memory operand.
    EffAddrValue = 7,
    /// The run-time address of the byte at offset `value` of the data that the
    /// tool placed with [`Host::add_data`].
    Data = 8,
    /// The run-time address of the byte at offset `value` of the running
    /// thread's copy of the data placed with [`Host::add_thread_data`]. Calls before the program
    /// get the first thread's copy, calls after the program the copy that holds the sums.
    ThreadData = 9,
    /// The effective address of memory operand number `value` of the instruction
    /// ([`ANY_OPERAND`]: as [`ArgKind::EffAddrValue`]).
    EffAddr = 10,
    /// Number of bytes that memory operand number `value` accesses.
    AccessSize = 11,
    /// The value that is read from memory operand number `value` ([`ANY_OPERAND`]: from the first
    /// operand that is read).
    LoadedValue = 12,
    /// The value that is written to memory operand number `value` ([`ANY_OPERAND`]: to the first
    /// operand that is written).
    StoredValue = 13,
    /// Number of times that a string instruction is repeated; 1 without a repeat prefix.
    RepCount = 14,
    /// Address that a jump, call or return goes to.
    BranchTarget = 15,
    /// Value that a procedure returns in `rax`.
    ReturnValue = 16,
    /// The second 64 bits of the vector register with number `value`.
    RegvHigh = 17,
    /// The run-time address of a symbol that the tool exports; `ptr` is its address in the loaded
    /// tool.
    /// Only in calls before and after the program.
    Exported = 18,
    /// All ones if string instructions go down (the direction flag is set), else 0.
    Direction = 19,
    /// The run-time address of the byte at address `value` of the program's file.
    /// Only in calls before and after the program.
    ImageAddress = 20,
    /// A sum of registers, as an address has it. `value` has the number of the base in the bits from 0 on and
    /// the number of the index in the bits from 8 on ([`NO_REGISTER`]: none), the scale (1, 2, 4 or 8) in the bits from
    /// 16 on, and in the upper 32 bits a signed displacement. Only before an instruction.
    Sum = 21,
    /// The address of two words on the stack, zeros: whether the routine has a result, and the result. In a call in place of
    /// a procedure, which then returns at once with the result in `rax`. In a call before or after an instruction, whose
    /// general register with number `value` then gets the result.
    Outcome = 22,
    /// What a system call is asked for, in the order of the kernel's ABI: number (`value` is 0) and arguments (1 to 6) before
    /// the instruction `syscall`, its result ([`SYSTEM_CALL_RESULT`]) after it.
    SystemCall = 23,
    /// The integer or pointer that is argument number `value` of a procedure, by the System V ABI. Only before a procedure, or in place of
    /// one.
    FunctionArgument = 24,
    /// The address to which a procedure returns. Only before a procedure, or in place of one.
    ReturnAddress = 25,
}

/// Stands for the result in [`ArgKind::SystemCall`].
pub const SYSTEM_CALL_RESULT: u64 = u64::MAX;

/// Stands for no register in [`ArgKind::Sum`].
pub const NO_REGISTER: u64 = 0xff;

/// Operand number that stands for no operand in particular.
pub const ANY_OPERAND: u64 = u64::MAX;

/// One argument of an added call. Data at `ptr` is copied during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arg {
    /// Kind of argument.
    pub kind: ArgKind,
    /// Size of an array's element in bytes; 0 for other kinds.
    pub elem_size: u32,
    /// Constant, register number, offset or length, depending on the kind.
    pub value: u64,
    /// Data of a string or an array, or an exported symbol; null for other kinds.
    pub ptr: *const u8,
}

/// Registers. Numbers 0 to 15 are those of the instruction encoding. Queries know all of them;
/// not all can be arguments of calls.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum Reg {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
    /// The program counter, with the value of the uninstrumented program.
    Pc = 16,
    /// The arithmetic flags, as `pushfq` would store them.
    Flags = 17,
    /// The processor's cycle counter (`rdtsc`).
    CycleCounter = 18,
    /// Control and status of vector floating point.
    Mxcsr = 19,
    /// Base address of the segment fs.
    FsBase = 20,
    /// Base address of the segment gs.
    GsBase = 21,
    /// Control word of the x87 unit.
    X87Control = 22,
    /// Status word of the x87 unit, which includes the number of the top of its stack.
    X87Status = 23,
    K0 = 24,
    K1 = 25,
    K2 = 26,
    K3 = 27,
    K4 = 28,
    K5 = 29,
    K6 = 30,
    K7 = 31,
    /// Vector registers; xmm, ymm and zmm of the same number are one register.
    Xmm0 = 32,
    Xmm1 = 33,
    Xmm2 = 34,
    Xmm3 = 35,
    Xmm4 = 36,
    Xmm5 = 37,
    Xmm6 = 38,
    Xmm7 = 39,
    Xmm8 = 40,
    Xmm9 = 41,
    Xmm10 = 42,
    Xmm11 = 43,
    Xmm12 = 44,
    Xmm13 = 45,
    Xmm14 = 46,
    Xmm15 = 47,
    Xmm16 = 48,
    Xmm17 = 49,
    Xmm18 = 50,
    Xmm19 = 51,
    Xmm20 = 52,
    Xmm21 = 53,
    Xmm22 = 54,
    Xmm23 = 55,
    Xmm24 = 56,
    Xmm25 = 57,
    Xmm26 = 58,
    Xmm27 = 59,
    Xmm28 = 60,
    Xmm29 = 61,
    Xmm30 = 62,
    Xmm31 = 63,
    /// x87 registers, numbered from the top of the stack; `mm0` to `mm7` are in them.
    St0 = 64,
    St1 = 65,
    St2 = 66,
    St3 = 67,
    St4 = 68,
    St5 = 69,
    St6 = 70,
    St7 = 71,
    /// Tile registers.
    Tmm0 = 72,
    Tmm1 = 73,
    Tmm2 = 74,
    Tmm3 = 75,
    Tmm4 = 76,
    Tmm5 = 77,
    Tmm6 = 78,
    Tmm7 = 79,
}

impl Reg {
    /// All registers, in the order of their numbers.
    pub const ALL: [Self; 80] = [
        Self::Rax,
        Self::Rcx,
        Self::Rdx,
        Self::Rbx,
        Self::Rsp,
        Self::Rbp,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
        Self::Pc,
        Self::Flags,
        Self::CycleCounter,
        Self::Mxcsr,
        Self::FsBase,
        Self::GsBase,
        Self::X87Control,
        Self::X87Status,
        Self::K0,
        Self::K1,
        Self::K2,
        Self::K3,
        Self::K4,
        Self::K5,
        Self::K6,
        Self::K7,
        Self::Xmm0,
        Self::Xmm1,
        Self::Xmm2,
        Self::Xmm3,
        Self::Xmm4,
        Self::Xmm5,
        Self::Xmm6,
        Self::Xmm7,
        Self::Xmm8,
        Self::Xmm9,
        Self::Xmm10,
        Self::Xmm11,
        Self::Xmm12,
        Self::Xmm13,
        Self::Xmm14,
        Self::Xmm15,
        Self::Xmm16,
        Self::Xmm17,
        Self::Xmm18,
        Self::Xmm19,
        Self::Xmm20,
        Self::Xmm21,
        Self::Xmm22,
        Self::Xmm23,
        Self::Xmm24,
        Self::Xmm25,
        Self::Xmm26,
        Self::Xmm27,
        Self::Xmm28,
        Self::Xmm29,
        Self::Xmm30,
        Self::Xmm31,
        Self::St0,
        Self::St1,
        Self::St2,
        Self::St3,
        Self::St4,
        Self::St5,
        Self::St6,
        Self::St7,
        Self::Tmm0,
        Self::Tmm1,
        Self::Tmm2,
        Self::Tmm3,
        Self::Tmm4,
        Self::Tmm5,
        Self::Tmm6,
        Self::Tmm7,
    ];

    /// The register with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        if (number as usize) < Self::ALL.len() {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// The register's number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// Class of an instruction (ATOM's `IClassType`); mutually exclusive.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// None of the others.
    Null = 0,
    /// Integer load: a move from memory to a general register.
    Load = 1,
    /// Floating-point or vector load.
    Fload = 2,
    /// Integer store.
    Store = 3,
    /// Floating-point or vector store.
    Fstore = 4,
    /// Branch on integer flags, conditional or not.
    Ibranch = 5,
    /// Branch on a floating-point condition (none on x86-64).
    Fbranch = 6,
    /// Subroutine call, return.
    Subroutine = 7,
    /// Integer arithmetic other than multiply and divide, moves included.
    Iarithmetic = 8,
    /// Integer multiply, 32 bits and less.
    Imultiplyl = 9,
    /// Integer multiply, 64 bits.
    Imultiplyq = 10,
    /// Integer logic.
    Ilogical = 11,
    /// Integer shift or rotate.
    Ishift = 12,
    /// Integer conditional move or set.
    Icondmove = 13,
    /// Integer compare or test.
    Icompare = 14,
    /// Floating-point or vector operation.
    Fpop = 15,
    /// Floating-point divide, single precision.
    Fdivs = 16,
    /// Floating-point divide, double precision.
    Fdivd = 17,
}

/// Types of instruction (ATOM's `ITypeType`); one instruction may have several.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum InstType {
    /// Reads memory.
    Load = 1 << 0,
    /// Writes memory.
    Store = 1 << 1,
    /// Indirect jump, call or return.
    Jump = 1 << 2,
    /// Divides.
    Div = 1 << 3,
    /// Multiplies.
    Mul = 1 << 4,
    /// Adds.
    Add = 1 << 5,
    /// Subtracts.
    Sub = 1 << 6,
    /// Conditional branch.
    CondBr = 1 << 7,
    /// Direct unconditional branch.
    UncondBr = 1 << 8,
    /// Direct or indirect call.
    Call = 1 << 9,
    /// Return.
    Ret = 1 << 10,
    /// System call: `syscall`, `sysenter`, `int 0x80`.
    Syscall = 1 << 11,
}

/// Numbers that [`Host::program_info`] returns. The values are those of ATOM's `PInfoType`, in
/// its order.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ProgramInfo {
    /// Start of the text segment.
    TextStartAddress = 0,
    /// Size of the text segment.
    TextSize = 1,
    /// Start of initialised data.
    InitDataStartAddress = 2,
    /// Size of initialised data.
    InitDataSize = 3,
    /// Start of uninitialised data.
    UninitDataStartAddress = 4,
    /// Size of uninitialised data.
    UninitDataSize = 5,
    /// 1 if the program may have more than one thread, judged by its imports; else 0.
    MayHaveThreads = 6,
    /// Number of procedures.
    ProcCount = 7,
    /// Number of basic blocks.
    BlockCount = 8,
    /// Number of instructions.
    InstCount = 9,
}

/// The functions. A new one is added at the end, with a new interface version.
#[repr(C)]
#[allow(missing_docs)]
pub struct Host {
    /// [`crate::INTERFACE_VERSION`] of `atom`.
    pub version: u32,
    /// Size of this structure in bytes.
    pub size: u32,
    /// First argument of every function below.
    pub context: *mut Context,

    /// Reports an error of the tool, which may be about its options; `atom` ends with it once the routine returns.
    pub error: extern "C" fn(*mut Context, is_usage: bool, message: StrRef),
    /// The instrument routine panicked, or cannot return an error: prints the message, which may be about the tool's options, and ends `atom`.
    pub panicked:
        extern "C" fn(*mut Context, is_usage: bool, message: StrRef, location: StrRef) -> !,

    pub program_name: extern "C" fn(*mut Context) -> StrRef,
    pub program_path: extern "C" fn(*mut Context) -> StrRef,
    /// `what` is a [`ProgramInfo`].
    pub program_info: extern "C" fn(*mut Context, what: u32) -> u64,
    /// The procedure of that name, or [`NONE`].
    pub named_proc: extern "C" fn(*mut Context, name: StrRef) -> u32,
    /// The procedure that contains this address, or [`NONE`].
    pub proc_at: extern "C" fn(*mut Context, address: u64) -> u32,

    /// Demangled name if `demangle`, else as in the symbol table; `sub_1234` if it has none.
    pub proc_name: extern "C" fn(*mut Context, proc: u32, demangle: bool) -> StrRef,
    /// Source file from debug information, or empty.
    pub proc_file: extern "C" fn(*mut Context, proc: u32) -> StrRef,
    pub proc_pc: extern "C" fn(*mut Context, proc: u32) -> u64,
    /// Size in bytes.
    pub proc_size: extern "C" fn(*mut Context, proc: u32) -> u64,
    /// 0 full, 1 partial, 2 opaque.
    pub proc_status: extern "C" fn(*mut Context, proc: u32) -> u32,
    /// First block; blocks of a procedure are consecutive. [`NONE`] for an opaque procedure.
    pub proc_first_block: extern "C" fn(*mut Context, proc: u32) -> u32,
    pub proc_block_count: extern "C" fn(*mut Context, proc: u32) -> u32,

    pub block_proc: extern "C" fn(*mut Context, block: u32) -> u32,
    pub block_pc: extern "C" fn(*mut Context, block: u32) -> u64,
    pub block_first_inst: extern "C" fn(*mut Context, block: u32) -> u32,
    pub block_inst_count: extern "C" fn(*mut Context, block: u32) -> u32,

    pub inst_block: extern "C" fn(*mut Context, inst: u32) -> u32,
    pub inst_pc: extern "C" fn(*mut Context, inst: u32) -> u64,
    /// Length in bytes.
    pub inst_len: extern "C" fn(*mut Context, inst: u32) -> u32,
    /// The original bytes.
    pub inst_bytes: extern "C" fn(*mut Context, inst: u32) -> StrRef,
    /// Bits of [`InstType`].
    pub inst_types: extern "C" fn(*mut Context, inst: u32) -> u32,
    /// A [`Class`].
    pub inst_class: extern "C" fn(*mut Context, inst: u32) -> u32,
    /// Target of a direct branch or call as an address; 0 if it has none.
    pub inst_target: extern "C" fn(*mut Context, inst: u32) -> u64,
    /// The instruction that starts at this address, or [`NONE`].
    pub inst_at: extern "C" fn(*mut Context, address: u64) -> u32,
    /// Source line from debug information; 0 if unknown. `file` is set too unless null.
    pub inst_line: extern "C" fn(*mut Context, inst: u32, file: *mut StrRef) -> u32,
    /// The instruction as text (`mov rax,[rdi+8]`).
    pub inst_text: extern "C" fn(*mut Context, inst: u32) -> StrRef,

    /// Adds a call of the analysis routine at `routine` (its address in the
    /// loaded tool) at a point. Returns 0, or 1 after having noted the error.
    pub add_call: extern "C" fn(
        *mut Context,
        scope: Scope,
        id: u32,
        place: Place,
        routine: *const (),
        args: *const Arg,
        arg_count: usize,
    ) -> i32,
    /// Address of the analysis routine with this name in the loaded tool
    /// (exported as `atom_analysis_NAME` or `NAME`); null if there is none.
    pub named_routine: extern "C" fn(*mut Context, name: StrRef) -> *const (),
    /// Places `len` bytes of writable data, aligned to 16 bytes, in the
    /// instrumented program: a copy of those at `bytes`, or zeros if `bytes` is null. The data is
    /// there before the first call can be made, also before ProgramBefore. Returns its offset,
    /// for [`ArgKind::Data`], or [`u64::MAX`] after having noted the error.
    /// [`Host::mark_counts`] says which of it forked children do not inherit.
    pub add_data: extern "C" fn(*mut Context, bytes: *const u8, len: usize) -> u64,

    /// Places `len` bytes of writable data, aligned to 16 bytes, of which each
    /// thread gets a copy: the `initial_len` bytes at `initial`, then zeros.
    /// From the offset `sum_from` on the data consists of 64-bit cells. The calls at ProgramAfter
    /// get these cells summed over all threads, and the bytes before them as they are in the
    /// first thread. Returns the offset of the data, for [`ArgKind::ThreadData`], or [`u64::MAX`]
    /// after having noted the error.
    pub add_thread_data: extern "C" fn(
        *mut Context,
        initial: *const u8,
        initial_len: usize,
        len: usize,
        sum_from: usize,
    ) -> u64,
    /// All procedures of that name.
    pub named_procs: extern "C" fn(*mut Context, name: StrRef, arg: *mut c_void, sink: Sink<u32>),
    /// `len` bytes of the program's file as they would be loaded at an address;
    /// fewer if its segment ends before.
    pub bytes_at: extern "C" fn(*mut Context, address: u64, len: usize) -> StrRef,
    /// Name of the procedure that a call instruction calls; empty if it is not known.
    pub called_name: extern "C" fn(*mut Context, inst: u32) -> StrRef,
    /// Writes a fact of the encoding to `value`; `what` is an
    /// [`InstInfo`](crate::query::InstInfo). False if the instruction has no such fact.
    pub inst_info: extern "C" fn(*mut Context, inst: u32, what: u32, value: *mut i64) -> bool,
    pub inst_operands: extern "C" fn(*mut Context, inst: u32, *mut c_void, Sink<OperandRecord>),
    pub inst_memory: extern "C" fn(*mut Context, inst: u32, *mut c_void, Sink<MemoryRecord>),
    pub inst_reg_usage: extern "C" fn(*mut Context, inst: u32, usage: *mut RegUsageRecord),
    pub inst_reg_accesses:
        extern "C" fn(*mut Context, inst: u32, *mut c_void, Sink<RegAccessRecord>),
    pub block_successors: extern "C" fn(*mut Context, block: u32, *mut c_void, Sink<EdgeRecord>),
    pub block_predecessors: extern "C" fn(*mut Context, block: u32, *mut c_void, Sink<EdgeRecord>),
    /// `what` is a [`Relation`](crate::query::Relation); [`NONE`] if there is none.
    pub block_relation: extern "C" fn(*mut Context, block: u32, what: u32) -> u32,
    /// Whether block `a` dominates, or with `post` post-dominates, block `b`.
    pub block_dominates: extern "C" fn(*mut Context, a: u32, b: u32, post: bool) -> bool,
    /// Natural loops, outer ones before inner ones. True if there are other cycles too.
    pub proc_loops: extern "C" fn(*mut Context, proc: u32, *mut c_void, Sink<LoopRecord>) -> bool,
    /// Blocks at which control can enter the procedure.
    pub proc_entries: extern "C" fn(*mut Context, proc: u32, *mut c_void, Sink<u32>),
    /// Blocks at which a run with windows may begin to make calls, and cease to, but for entries.
    pub proc_crossings: extern "C" fn(*mut Context, proc: u32, *mut c_void, Sink<u32>),
    /// False if nothing is known of its frame.
    pub proc_frame: extern "C" fn(*mut Context, proc: u32, frame: *mut FrameRecord) -> bool,
    /// The functions that an address belongs to, innermost first.
    pub source_frames:
        extern "C" fn(*mut Context, address: u64, *mut c_void, Sink<SourceFrameRecord>),
    /// True if a call at this point can pass this argument. Where it is false, adding such a call
    /// is an error.
    pub offers:
        extern "C" fn(*mut Context, scope: Scope, id: u32, place: Place, arg: *const Arg) -> bool,
    /// True if the user's choice of procedures lets calls on this one be made.
    pub proc_is_selected: extern "C" fn(*mut Context, proc: u32) -> bool,
    /// The labels of source functions that debug information names, with names
    /// that start with `prefix`.
    pub labels:
        extern "C" fn(*mut Context, prefix: StrRef, arg: *mut c_void, sink: Sink<LabelRecord>),
    /// Contents of the section with this name, decompressed; empty if there is none.
    pub section: extern "C" fn(*mut Context, name: StrRef) -> StrRef,
    /// The procedures that a pattern of the user names, in the words of the option `--only`. An
    /// error in the pattern goes to the last sink as a message.
    pub matching_procs: extern "C" fn(
        *mut Context,
        pattern: StrRef,
        *mut c_void,
        Sink<u32>,
        *mut c_void,
        Sink<StrRef>,
    ),
    /// The data objects that the symbol tables define.
    pub data_symbols: extern "C" fn(*mut Context, arg: *mut c_void, sink: Sink<SymbolRecord>),
    /// Variables of the source, or their parts, by a path such as `table.head[3].next`.
    pub variables:
        extern "C" fn(*mut Context, path: StrRef, arg: *mut c_void, sink: Sink<VariableRecord>),
    /// Name of the import that a call, or a jump to another procedure, leads to: directly,
    /// through its slot in the global offset table or through the procedure linkage table. Empty
    /// if it leads elsewhere, or if the import is not known.
    pub entered_import: extern "C" fn(*mut Context, inst: u32) -> StrRef,
    /// Mnemonic of an instruction in lower case, without prefixes.
    pub inst_mnemonic: extern "C" fn(*mut Context, inst: u32) -> StrRef,
    /// Number of objects: 1 for a program alone.
    pub object_count: extern "C" fn(*mut Context) -> u32,
    /// Facts of an object; the program is number 0. False if there is none with this number.
    pub object: extern "C" fn(*mut Context, object: u32, record: *mut ObjectRecord) -> bool,
    /// The procedure of another object to which a call or a jump certainly leads through an import:
    /// through its slot in the global offset table, directly or by the procedure linkage table. [`NONE`]
    /// if it leads elsewhere, or if the binding is not certain.
    pub bound_proc: extern "C" fn(*mut Context, inst: u32) -> u32,
    /// Marks `len` bytes of placed data, zeros, as counts of what the process does: they are zeros again in a
    /// forked child. Data for threads needs no mark: its cells that are summed are counts.
    pub mark_counts: extern "C" fn(*mut Context, offset: u64, len: usize),
    /// The addresses that an object occupies, as its file says: the start and the end of its loaded segments.
    /// False if there is no object with this number.
    pub object_range: extern "C" fn(*mut Context, object: u32, range: *mut [u64; 2]) -> bool,
    /// The instruction set extensions that an instruction needs, by the names of their CPUID bits, with `+`
    /// between them: `AVX512F+AVX512VL`.
    pub inst_isa: extern "C" fn(*mut Context, inst: u32) -> StrRef,
    /// Adds bytes to the instrumented program's file, which nothing loads.
    pub sign: extern "C" fn(*mut Context, bytes: *const u8, len: usize),
    /// Number of bytes of which rsp is a multiple before each call by the procedure's calling convention: 16 in the
    /// System V ABI, 8 in a function of Go.
    pub stack_alignment: extern "C" fn(*mut Context, proc: u32) -> u64,
    /// How the caller's frame is found at each call of the procedure, in the order of addresses. Calls at which
    /// the unwind tables do not say it by a register and an offset are left out.
    pub call_frames: extern "C" fn(*mut Context, proc: u32, *mut c_void, Sink<CallFrameRecord>),
    /// Has the instrumented program contain tables that map return addresses of new text to the original ones; see
    /// [`crate::StartInfo::returns`] and [`crate::ProcessInfo::returns`].
    pub map_returns: extern "C" fn(*mut Context),
    /// The sections of an object that are loaded, in the order of the section header table.
    pub sections:
        extern "C" fn(*mut Context, object: u32, arg: *mut c_void, sink: Sink<SectionRecord>),
    /// The strings and arrays that routines at ProgramBefore get may become longer while the program runs, as those of
    /// routines at ProgramAfter may: when a library is added, the instrument routine runs again, and what it passes then replaces
    /// what it passed before.
    pub tables_may_grow: extern "C" fn(*mut Context),
    /// Says where in the tool's source the call is added that [`Host::add_call`] has refused just now: a file and a line.
    pub refused_at: extern "C" fn(*mut Context, file: StrRef, line: u32),
}
