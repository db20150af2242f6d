//! The private runtime of analysis routines inside an instrumented program.
//!
//! A tool is an ordinary Rust `cdylib` on `std`, and `std` wants a C library.
//! Inside `atom` that is the system's. Inside the instrumented program it must
//! not be: the application's libc, its heap, its thread-local storage and its
//! stdio belong to the application, and calling into them from the middle of
//! any instruction sequence would change what the application does. So this
//! crate is a second, small C library that is linked into the tool itself and
//! stays dormant there; `atom` binds the tool's imports to it when it copies
//! the tool into the program (see [`EXPORTS`]).
//!
//! Rules that hold everywhere in it:
//! - Nothing but raw system calls; no libc, no `%fs`- or `%gs`-relative access,
//!   so that it runs before the application has set up its thread pointer. (One place,
//!   `threads::data`, sets the base of gs, for the inserted code.)
//! - It never waits for a lock that an interrupted or vanished thread may hold.
//! - It does not touch the application's signal handlers, signal mask, program
//!   break, environment memory or file descriptors, and it keeps its own
//!   mappings and descriptors away from where the kernel would place the
//!   application's next ones.
//! - It may itself contain calls to `memcpy` and its kin, as the compiler
//!   pleases; they go through the tool's imports and come back to the module `c::string`,
//!   which therefore must not contain any.
//!
//! Its parts use each other in one direction, from the top of this list to the bottom:
//!
//! | part | what it does |
//! | --- | --- |
//! | `exports` | the table of C symbols |
//! | `lifecycle` | start, end, `exec`, totals of calls that were counted by control flow |
//! | `c` | C's functions: files, output, environment, strings, locks, time |
//! | `threads` | the record of each thread, and the blocks of per-thread data that gs names |
//! | `heap` | memory for analysis routines |
//! | `process` | what `atom` and the kernel said at the start; which process this is after a fork |
//! | `sys` | system calls, pages, signals, segment bases, the process's sudden end |
//!
//! What a tool's code cannot do here: start threads (`pthread_create` answers
//! `EAGAIN`), catch a panic (it ends the process after its message), rely on
//! destructors of thread-local values, or install signal handlers.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

mod c;
mod exports;
mod heap;
mod lifecycle;
mod process;
mod sys;
mod threads;

pub use exports::{EXPORT_COUNT, EXPORTS};
pub use lifecycle::deaths::{Death, death};
pub use lifecycle::end::{be_silent, finish, set_flush_hook};
pub use lifecycle::late::late_objects;
pub use lifecycle::lookups::lookups_may_fault;
pub use lifecycle::start::{set_begin_hook, start};
pub use lifecycle::watcher::{counts_are_inherited, is_snapshot, keeps_snapshots, watch};
pub use process::copy::read_memory;
pub use process::identity::{is_in_parents_memory, pid, start_pid, user};
pub use process::mapping::{MappingHook, set_mapping_hook};
pub use process::objects::{object_name, unknown_objects};
pub use process::run::{attached_folder, executed, is_attached, waiter};
pub use process::table::{load_bias, object_at, original_return};
pub use process::text::each_in_place;
pub use process::told::{code, opaque, record, replaced, unseen};
pub use sys::decimal::Decimal;
pub use sys::memory::map_wiped;
pub use sys::signals::Uninterrupted;
pub use sys::spin::SpinLock;
pub use threads::bursts::{
    FIGURES, Sampled, Statistics, compare_bursts, from_main_block, sampled, squares, statistics,
    warm_up,
};
pub use threads::counts::{in_child, in_new_thread};
pub use threads::data::{between_routines, thread_block, thread_enter, thread_started};
pub use threads::entry::{Entered, enter, refused_entries};
pub use threads::events::{ThreadEvent, watch_threads};
