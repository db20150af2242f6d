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
//!   so that it runs before the application has set up its thread pointer. (The
//!   base of gs is set in one place, `data`, for the inserted code's sake.)
//! - It never waits for a lock that an interrupted or vanished thread may hold.
//! - It does not touch the application's signal handlers, signal mask, program
//!   break, environment memory or file descriptors, and it keeps its own
//!   mappings and descriptors away from where the kernel would place the
//!   application's next ones.
//! - It may itself contain calls to `memcpy` and its kin, as the compiler
//!   pleases; they go through the tool's imports and come back to the module `string`,
//!   which therefore must not contain any.
//!
//! What a tool's code cannot do here: start threads (`pthread_create` answers
//! `EAGAIN`), catch a panic (it ends the process after its message), rely on
//! destructors of thread-local values, or install signal handlers.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]

mod arena;
mod data;
mod dir;
mod entry;
mod env;
mod exec;
mod exports;
mod futex;
mod heap;
mod io;
mod keys;
mod math;
mod path;
mod process;
mod signals;
mod start;
mod string;
mod sys;
mod table;
mod thread;
mod time;
mod tls;
mod totals;
mod unwind;

pub use data::{thread_block, thread_enter, thread_started};
pub use entry::{Entered, enter, refused_entries};
pub use exports::{EXPORT_COUNT, EXPORTS};
pub use signals::Uninterrupted;
pub use start::{finish, pid, set_flush_hook, start, start_pid};
pub use sys::map_wiped;
