//! What a tool in C is linked with.
//!
//! `atom APP branch.inst.c branch.anal.c` has `cc` compile the two files and link them with this archive into a shared
//! object, which is a tool like any other. The archive has three parts:
//!
//! | part | what it does |
//! | --- | --- |
//! | `entry` | the tool's header; runs the C instrument routine |
//! | `primitives` | ATOM's primitives and ours as C functions; `include/atom.h` declares them |
//! | `c` | the part of C's library that analysis routines have beside the runtime's |
//!
//! The instrument routine runs inside `atom` and has the system's C library. Analysis routines run in the instrumented
//! program and have the functions of `c`: `atom` binds the imports of the tool's copy to them. Neither these functions nor the
//! runtime's are exported under C's names, so that nothing here is in for the system's library inside `atom`.

mod c;
mod entry;
mod primitives;
mod varargs;
