//! The table of functions that an instrument routine calls inside `atom`.
//!
//! Procedures, blocks and instructions are numbered from 0 in address order;
//! [`NONE`] stands for "there is none". A block's number is unique in the
//! program, and so is an instruction's; blocks of one procedure are
//! consecutive, instructions of one block too. Strings returned live as long
//! as the instrument routine runs.

use crate::StrRef;

/// "There is no such procedure, block or instruction."
pub const NONE: u32 = u32::MAX;

/// Opaque state of `atom`, handed back to each function of the table.
#[repr(C)]
pub struct Context {
    _private: [u8; 0],
}

/// Where a call is added; values as in ATOM's `PlaceType`, in its order.
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
}

/// The kinds of argument; says how [`Arg::value`] and [`Arg::ptr`] are read.
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
    /// thread's copy of the data placed with [`Host::add_thread_data`]. Before
    /// the program it is the first thread's; after the program, that of the sums.
    ThreadData = 9,
}

/// One argument of an added call. Data at `ptr` is copied during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arg {
    /// Which kind.
    pub kind: ArgKind,
    /// Size of an array's element in bytes; else 0.
    pub elem_size: u32,
    /// Constant, register number or length.
    pub value: u64,
    /// Data of a string or an array; else null.
    pub ptr: *const u8,
}

/// Registers that REGV can name. Numbers 0 to 15 are the hardware's.
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
    /// The program counter, as in the uninstrumented program.
    Pc = 16,
    /// The arithmetic flags, as `pushfq` would store them.
    Flags = 17,
    /// The processor's cycle counter (`rdtsc`).
    CycleCounter = 18,
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
}

/// What [`Host::program_info`] can tell; values as in ATOM's `PInfoType`, in its order.
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
    /// 1 if the program can have more than one thread, as far as its imports tell.
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

    /// Reports an error of the tool; `atom` ends with it once the routine returns.
    pub error: extern "C" fn(*mut Context, message: StrRef),
    /// The instrument routine panicked: prints the message and ends `atom` with code 1.
    pub panicked: extern "C" fn(*mut Context, message: StrRef, location: StrRef) -> !,

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
    /// The instruction in words (`mov rax,[rdi+8]`).
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
    /// instrumented program: a copy of those at `bytes`, or zeros if that is
    /// null. It is there before the first call can be made, also before
    /// ProgramBefore. Returns its offset, for [`ArgKind::Data`], or
    /// [`u64::MAX`] after having noted the error.
    pub add_data: extern "C" fn(*mut Context, bytes: *const u8, len: usize) -> u64,

    /// Places `len` bytes of writable data, aligned to 16 bytes, of which each
    /// thread gets a copy: the `initial_len` bytes at `initial`, then zeros.
    /// From the offset `sum_from` on it consists of 64-bit cells, which the
    /// calls at ProgramAfter find summed over all threads; what is before that
    /// they find as it is in the first thread. Returns its offset, for
    /// [`ArgKind::ThreadData`], or [`u64::MAX`] after having noted the error.
    pub add_thread_data: extern "C" fn(
        *mut Context,
        initial: *const u8,
        initial_len: usize,
        len: usize,
        sum_from: usize,
    ) -> u64,
}
