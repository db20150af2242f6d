//! What the runtime is told of a process whose objects are all instrumented.
//!
//! Such a process has one copy of the tool, in an area that its program interpreter maps when the kernel
//! starts it. The runtime starts there, before any code of the application.

use core::sync::atomic::AtomicU64;

use crate::{StrRef, TextPlace};

/// Bit from which on an address of the process holds the number of its object. Below it is the
/// address in the object's file.
pub const OBJECT_SHIFT: u32 = 32;

/// One object of the process: the program, its interpreter or a library.
#[repr(C)]
pub struct ObjectInfo {
    /// Path of the original file; a null follows.
    pub path: StrRef,
    /// Path of the instrumented file; a null follows.
    pub instrumented: StrRef,
    /// Device of the original file, as `stat` gives it.
    pub device: u64,
    /// Inode of the original file.
    pub inode: u64,
    /// Size of the original file in bytes.
    pub size: u64,
    /// Seconds of the time at which the original file's contents were modified last.
    pub modified: u64,
    /// Nanoseconds of that time.
    pub modified_nanoseconds: u64,
    /// First address of the object's image, in the file.
    pub base: u64,
    /// Address after the object's image with the new segments, in the file.
    pub end: u64,
}

/// The instrumented file of an object, as the runtime found it when the program interpreter opened it.
/// Both numbers are 0 before that.
#[repr(C)]
pub struct FileIdentity {
    /// Device of the file, as `stat` gives it.
    pub device: AtomicU64,
    /// Inode of the file.
    pub inode: AtomicU64,
}

/// A system call that the process is about to make: its number and its arguments.
#[repr(C)]
pub struct SystemCall {
    /// The number.
    pub number: usize,
    /// The arguments, as far as there are any.
    pub arguments: [usize; 6],
    /// The stack pointer.
    pub stack: usize,
}

/// Facts of the process.
#[repr(C)]
pub struct ProcessInfo {
    /// The objects: the program first.
    pub objects: *const ObjectInfo,
    /// Number of objects.
    pub object_count: usize,
    /// For each object its load bias (run-time address minus address in the file), or 0 while it is not
    /// known.
    pub biases: *const AtomicU64,
    /// Index of the program interpreter.
    pub interpreter: usize,
    /// The program's entry point as the kernel finds it, an address in the file.
    pub entry: u64,
    /// Path by which the program was named, or empty if it is not known; a null follows.
    pub named: StrRef,
    /// Path of a symbolic link to the original program; a null follows.
    pub link: StrRef,
    /// For each object its instrumented file.
    pub identities: *const FileIdentity,
    /// For each object the address in the file of its table of return addresses; null if the tool wants none.
    ///
    /// The table maps return addresses of new text to the original ones. It begins with the number of entries in 32 bits and
    /// 32 unused bits. An entry has 32 bits twice: the return address minus the table's address (signed), and the
    /// original return address minus the address of the image. Entries are sorted by the first half. A
    /// return address that is not in the table was pushed by code that did not move.
    pub returns: *const u64,
    /// For each object the place of its table of moved code.
    pub texts: *const TextPlace,
    /// For each object the address in the file of its [table of instruction boundaries](crate::boundaries); 0 if it
    /// has none.
    pub boundaries: *const u64,
}

// SAFETY: written by `atom`; what changes is atomic.
unsafe impl Sync for ProcessInfo {}
