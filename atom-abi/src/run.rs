//! What the runtime is told of the run for which a program was instrumented.

use crate::StrRef;

/// Facts that `atom` knows and that reports and `atom run` need. It is in the image.
#[repr(C)]
pub struct RunInfo {
    /// Path of the record that the runtime leaves for `atom run`, up to the number of the process that
    /// waits for the program; empty if none is wanted.
    pub record: StrRef,
    /// Names of the libraries that the program names and that are not instrumented, with `, ` between
    /// them.
    pub unseen: StrRef,
    /// Number of procedures that are not instrumented because they are not understood.
    pub opaque: u64,
    /// The first words of the command line by which a program that the process executes is instrumented,
    /// each with a null after it: the path of `atom` first. Empty if executed programs run as they are.
    pub follow: StrRef,
    /// Size in bytes of all code that is known: the procedures of the instrumented objects, and the executable
    /// segments of libraries that are not instrumented. 0: not known.
    pub code: u64,
    /// Size in bytes of the procedures that are understood, so that a tool can instrument them.
    pub understood: u64,
    /// Device and inode of the original of a program that `atom run` runs, as `stat` gives them; zeros if
    /// there is none. The process must not change it, just as it could not change a file that it runs from.
    pub original: [u64; 2],
    /// Name of the tool, such as `icount`; empty if it is not known.
    pub tool: StrRef,
    /// The first words of the command line by which a library that the process opens later is instrumented, each
    /// with a null after it: the path of `atom` first. Empty if such libraries run as they are.
    pub late: StrRef,
    /// Path by which a program that is instrumented alone was named under `atom run`, or empty; a null follows.
    pub named: StrRef,
    /// Path of a symbolic link to the original of such a program, or empty; a null follows.
    pub link: StrRef,
    /// What the tool replaces, with `, ` between: names of procedures, and values of registers. Empty if it changes nothing.
    pub replaced: StrRef,
}

// SAFETY: written by `atom`, only read afterwards.
unsafe impl Sync for RunInfo {}

/// Kind of an entry of the auxiliary vector that the runtime is shown in a process which ran already when it was
/// instrumented: the number of the process that did it. The kernel has no such kind. AT_EXECFN then names the folder for
/// reports.
pub const ATTACHED_BY: usize = 0x6174_6f6d;

/// What the process that has instrumented a running one wants of the runtime.
#[repr(usize)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// The calling thread's process gets its own signal dispositions back.
    Leave,
    /// The calling process, which shares the memory, makes the calls at the end.
    Report,
    /// A copy of the memory makes them; the process continues.
    Snapshot,
}

/// Real-time signal by which `atom run` tells the watcher of a process to report now: the process continues.
pub const REPORT_NOW: i32 = 62;
/// Value with which [`REPORT_NOW`] comes where somebody has asked for the report: the report before it is kept.
pub const REPORT_ASKED: usize = 1;
/// Real-time signal by which `atom run` tells the watcher of a process that the process has ended: the watcher
/// reports if the process has not, and ends.
pub const PROCESS_GONE: i32 = 63;
