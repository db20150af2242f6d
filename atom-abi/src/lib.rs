//! What crosses the borders between separately compiled parts.
//!
//! Three parties meet here. `atom` loads a *tool* (a `cdylib`) and runs its
//! instrument routine; the tool's analysis routines, with the *analysis
//! runtime* linked into the same `cdylib`, run inside the instrumented program.
//! They are compiled at different times, so everything here is `#[repr(C)]`,
//! and [`INTERFACE_VERSION`] changes whenever any of it does.
//!
//! Two values cross:
//! - [`ToolHeader`], the one symbol (`atom_tool_header`) that a tool exports;
//! - [`StartInfo`], which `atom` writes into the instrumented program and the
//!   runtime reads when it starts.
//!
//! The table of functions that an instrument routine calls is in [`host`]; what
//! its queries answer with is in [`query`].
#![no_std]
#![deny(missing_docs)]

pub mod boundaries;
mod control;
pub mod help;
pub mod host;
mod late;
pub mod names;
mod process;
pub mod query;
pub mod report;
mod run;
mod text;
mod threads;
mod version;

pub use control::*;
pub use late::*;
pub use process::*;
pub use run::*;
pub use text::*;
pub use threads::*;
pub use version::*;

/// First field of a [`ToolHeader`]: tells a tool from any other shared object.
pub const TOOL_MAGIC: u64 = u64::from_le_bytes(*b"ATOMTOOL");

/// Name of the symbol under which a tool exports its [`ToolHeader`].
pub const TOOL_HEADER_SYMBOL: &str = "atom_tool_header";

/// Name of the symbol under which a tool exports its help: UTF-8 text of the symbol's size. The first line says
/// what the tool does. An empty text means that the tool is not listed. A tool may have none.
pub const TOOL_HELP_SYMBOL: &str = "atom_tool_help";

/// Name of the symbol that a tool exports whose report reads [`report::OPTIONS`] of the run, too.
pub const TOOL_REPORT_SYMBOL: &str = "atom_tool_report";

/// The symbol of a tool's pointer to its instrument routine, for debuggers.
pub const TOOL_INSTRUMENT_SYMBOL: &str = "atom_tool_instrument";

/// What a tool's shared object exports, as the symbol `atom_tool_header`.
///
/// Addresses are those of the running process: `atom` subtracts the load
/// address to find the same place in the file that it copies from.
#[repr(C)]
pub struct ToolHeader {
    /// [`TOOL_MAGIC`].
    pub magic: u64,
    /// [`INTERFACE_VERSION`] of the tool's build.
    pub version: u32,
    /// Size of this structure in bytes, as a second check of the version.
    pub size: u32,
    /// Runs the instrument routine inside `atom`.
    /// Returns 0, or 1 after having reported an error through the host table.
    pub instrument: extern "C" fn(host: *const host::Host, argc: usize, argv: *const StrRef) -> i32,
    /// Functions of the analysis runtime by the C symbol that they stand for.
    pub exports: *const Export,
    /// Number of entries at `exports`.
    pub export_count: usize,
    /// Starts the runtime in the instrumented program; see [`StartInfo`].
    pub start: unsafe extern "C" fn(info: *const StartInfo, stack: *const usize),
    /// Runs the ProgramAfter calls and flushes; once for each process.
    /// Takes no arguments, preserves nothing but what the C ABI preserves.
    pub finish: unsafe extern "C" fn(),
    /// A thread enters instrumented code whose block, by the gs base, is not its own.
    /// These three functions preserve nothing but what the C ABI preserves.
    pub thread_enter: unsafe extern "C" fn(),
    /// A system call that may be `clone` has answered 0: perhaps in a new thread.
    pub thread_started: unsafe extern "C" fn(),
    /// The calling thread's block, found without the gs base, which is left alone.
    pub thread_block: unsafe extern "C" fn() -> *mut ThreadBlock,
}

// SAFETY: the raw pointers point to immutable statics of the tool.
unsafe impl Sync for ToolHeader {}

/// One function of the analysis runtime.
#[repr(C)]
pub struct Export {
    /// The C symbol, such as `malloc`.
    pub name: StrRef,
    /// Its address.
    pub address: *const (),
}

// SAFETY: both fields point to immutable data and code of the tool.
unsafe impl Sync for Export {}

/// A borrowed string across the border: UTF-8, not null-terminated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StrRef {
    /// First byte; never null, also when `len` is 0.
    pub ptr: *const u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: a StrRef is a plain borrowed view; who makes one keeps the bytes alive.
unsafe impl Sync for StrRef {}

impl StrRef {
    /// A view of `s`.
    pub const fn new(s: &str) -> Self {
        Self {
            ptr: s.as_ptr(),
            len: s.len(),
        }
    }

    /// The string again.
    ///
    /// # Safety
    /// The bytes must still be alive for `'a` and must be UTF-8, as they are
    /// when they came from [`StrRef::new`].
    pub const unsafe fn as_str<'a>(self) -> &'a str {
        // SAFETY: the caller's promise.
        unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(self.ptr, self.len)) }
    }
}

/// What `atom` writes into the instrumented program for the runtime's start.
///
/// The start stub has relocated the analysis image and restored the heap's
/// start before it calls [`ToolHeader::start`] with this structure, once,
/// before any code of the application runs. All addresses are run-time
/// addresses in the instrumented process; all functions follow the C ABI.
#[repr(C)]
pub struct StartInfo {
    /// Initial contents of a thread-local block.
    pub tls_image: *const u8,
    /// Bytes at `tls_image`.
    pub tls_file_size: usize,
    /// Size of a thread-local block; what is beyond `tls_file_size` is zero.
    pub tls_mem_size: usize,
    /// Alignment of a thread-local block, a power of two.
    pub tls_align: usize,
    /// The tool's initialisers (`.init_array`): `fn(argc, argv, envp)`.
    pub init_array: *const usize,
    /// Number of functions at `init_array`.
    pub init_count: usize,
    /// Makes the calls that the tool added at ProgramBefore.
    pub program_before: unsafe extern "C" fn(),
    /// Makes the calls that the tool added at ProgramAfter.
    pub program_after: unsafe extern "C" fn(),
    /// Null if the program has one thread only or the tool no per-thread data.
    pub threads: *const ThreadInfo,
    /// What must be added to the tool's cells before that.
    pub totals: Totals,
    /// Facts of the process if all of its objects are instrumented; null for a program alone.
    pub process: *const ProcessInfo,
    /// Facts of the run; null if there are none.
    pub run: *const RunInfo,
    /// Address of this structure in the file. In a program alone, the difference from its run-time address
    /// is the load bias; see [`ProcessInfo::biases`] for a process.
    pub address: u64,
    /// Layout of the tool's cells, where the process has one thread as well; null if the tool has none.
    pub cells: *const ThreadInfo,
    /// Counts that lie outside of the cells, with the counters of [`Totals`] if those are outside of them.
    pub counts: *const CountRange,
    /// Number of ranges at `counts`.
    pub count_ranges: usize,
    /// In a program alone, the table of return addresses as in [`ProcessInfo::returns`]; null if the tool wants
    /// none.
    pub returns: *const u32,
    /// Address of the image in the file, from which the original addresses in that table and in that of boundaries count.
    pub image: u64,
    /// In a program alone, the table of its moved code; null if nothing moved.
    pub text: *const TextTable,
    /// In a program alone, its [table of instruction boundaries](boundaries); null if there is none.
    pub boundaries: *const u8,
    /// The tool's code.
    pub code: *const u8,
    /// Its size in bytes.
    pub code_size: usize,
    /// The `.eh_frame` of the tool's code.
    pub frames: *const u8,
    /// Its size in bytes.
    pub frames_size: usize,
    /// What decides between the versions of the text; null if there is one version.
    pub control: *const Control,
}

/// Memory that counts what the process does: zeros at the start, and at the start of a forked child.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CountRange {
    /// Where it begins.
    pub start: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// How totals follow from the counters of control flow.
///
/// The table has one record for each group of procedures, each of unsigned
/// LEB128 numbers. A record computes *values*, numbered from 0: first those of
/// its counters, which follow those of the record before; then sums of earlier
/// values; last it adds values to cells. A value is named by its distance back
/// from the next one. Signed numbers are folded: 0, -1, 1, -2 are as 0, 1, 2, 3.
///
/// - the number of counters;
/// - the length in bytes of the rest of the record, which need not be read if all its counters are 0;
/// - the number of sums, and for each the number of its terms, and for each
///   term its distance times 2, plus 1 if it is subtracted;
/// - the number of cells, and for each: its 8-byte word in `data` as a signed
///   distance from the one before, the first from `data`; the value's distance
///   times 2, plus 1 if an amount follows; the amount (signed) that each unit
///   of the value adds, else 1.
#[repr(C)]
pub struct Totals {
    /// The table; null if there is none.
    pub table: *const u8,
    /// Its size in bytes.
    pub table_size: usize,
    /// The counters.
    pub counters: *mut u64,
    /// Room for the values of the largest record.
    pub scratch: *mut i64,
    /// From here cells are numbered.
    pub data: *mut u64,
}

// SAFETY: written by `atom`, only read afterwards.
unsafe impl Sync for StartInfo {}

/// A string argument of an analysis routine, as it is in the analysis image.
#[repr(C)]
pub struct StrRecord {
    /// First byte. The byte after the last is a null, for C's sake.
    pub ptr: *const u8,
    /// Length in bytes, without the null.
    pub len: usize,
}

/// An array argument of an analysis routine, as it is in the analysis image.
#[repr(C)]
pub struct ArrayRecord {
    /// First element, aligned to 16 bytes.
    pub ptr: *const u8,
    /// Number of elements.
    pub len: usize,
}
