//! The program's calls of the allocator: which procedures allocate and free, where they are entered and left, and what a
//! thread's calls do.
//!
//! [`find`] finds the procedures by their symbols, and those that the user names. [`points`] gives the places for a tool's own
//! routines, tail calls and stubs of libraries included. An [`OpenCall`] of each thread follows the calls at run time.
//!
//! ```
//! use atom_tool::allocations::{self, Call, OpenCall, Point};
//! use atom_tool::prelude::*;
//!
//! #[analysis]
//! fn enter(open: PerThread<OpenCall>, what: u32, sp: u64, a: u64, b: u64, c: u64) {
//!     if let Some(Call::Frees { block }) = open.enter(what, sp, [a, b, c]) {
//!         println!("{block:#x} is free");
//!     }
//! }
//!
//! #[analysis]
//! fn leave(open: PerThread<OpenCall>, sp: u64, result: u64) {
//!     if let Some(new) = open.leave(sp, result) {
//!         println!("{:#x} has {} bytes", new.block, new.size);
//!     }
//! }
//!
//! #[analysis]
//! fn left(open: PerThread<OpenCall>, sp: u64, result: u64) {
//!     if let Some(new) = open.left(sp, result) {
//!         println!("{:#x} has {} bytes", new.block, new.size);
//!     }
//! }
//!
//! #[analysis]
//! fn lose(open: PerThread<OpenCall>, sp: u64) {
//!     open.lose(sp);
//! }
//!
//! #[analysis]
//! fn landed(open: PerThread<OpenCall>, sp: u64) {
//!     open.landed(sp);
//! }
//!
//! fn instrument(program: &Program, args: &Args) -> Result {
//!     let options = args.options();
//!     let named = allocations::named(&options.values("--alloc")?, &options.values("--free")?)?;
//!     options.finish()?;
//!     let open = program.thread_data(OpenCall::zero());
//!     let found = allocations::find(program, &named, false)?;
//!     allocations::points(program, &found, &mut |point| match point {
//!         Point::Enter(proc, role) => {
//!             let what = OpenCall::what(role, proc.index() as u32);
//!             proc.add_call(Before, enter, (open, what, Reg::Rsp, Reg::Rdi, Reg::Rsi, Reg::Rdx));
//!         }
//!         Point::Leave(inst, block) => inst.add_call(Before, leave, (open, Reg::Rsp, block)),
//!         Point::Left(inst) => inst.add_call(After, left, (open, Reg::Rsp, Reg::Rax)),
//!         Point::Lose(inst) => inst.add_call(Before, lose, (open, Reg::Rsp)),
//!         Point::Landed(landing) => landing.add_call(landed, (open, Reg::Rsp)),
//!     });
//!     Ok(())
//! }
//!
//! atom_tool::tool!(instrument);
//! # fn main() {}
//! ```
//!
//! Go's allocator is another one: [`go_points`], a [`GoThread`] of each thread, and [`go_allocated`].
//!
//! ABI: a procedure's execution is known by rsp at its entry, which its `ret` has again, also if it ends in a jump to
//! another procedure, which then returns. Arguments are those of the System V ABI.

mod golang;
mod known;
mod open;
mod points;
mod wrappers;

use std::collections::{BTreeMap, HashMap};

use crate::Result;
use crate::navigation::handle::Proc;
use crate::navigation::program::Program;

pub use golang::{GoPoint, GoThread, go_allocated, go_points};
pub use known::Allocator;
pub use open::{Call, New, OpenCall};
pub use points::{Point, landings, points};
pub use wrappers::{Wrappers, is_allocator, wrappers};

/// What a procedure does, and where its argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// One of the known procedures.
    Known(Allocator),
    /// An allocator of the user's, with the size in this place, from 1 to 3.
    Sized(u32),
    /// A procedure of the user's that frees the block that is its first argument.
    Frees,
}

/// The allocators of the user's, by their names.
pub type Named = HashMap<String, Role>;

/// Reads the values of the options `--alloc NAME:PLACE` and `--free NAME`.
///
/// # Errors
/// If a place is not 1, 2 or 3.
pub fn named(alloc: &[&str], free: &[&str]) -> Result<Named> {
    let mut named = Named::new();
    for word in alloc {
        let (name, place) = word.rsplit_once(':').unwrap_or((word, "1"));
        let place = place.parse().ok().filter(|place| (1..=3).contains(place));
        let Some(place) = place else {
            return Err(format!(
                "--alloc takes NAME:PLACE, where PLACE is 1, 2 or 3: the argument that has the size, not `{word}`"
            )
            .into());
        };
        named.insert(name.to_owned(), Role::Sized(place));
    }
    named.extend(free.iter().map(|name| ((*name).to_owned(), Role::Frees)));
    Ok(named)
}

/// Finds the procedures that allocate and free: those with known symbols, and those that the user has named. A procedure is
/// found by each of its symbols. With `has_mappings`, `mmap` and its relatives are among them. The list is empty if there
/// are none.
///
/// # Errors
/// If the program has no procedure of a name that the user has given.
pub fn find<'a>(
    program: &Program<'a>,
    named: &Named,
    has_mappings: bool,
) -> Result<Vec<(Proc<'a>, Role)>> {
    let is_alone = program.objects().len() == 1;
    let mut found: BTreeMap<usize, (Proc<'a>, Role)> = BTreeMap::new();
    let mut add = |name: &str, role: Role| {
        let procs = [name, &format!("{name}@plt")].map(|name| program.procs_named(name));
        let procs = procs.into_iter().flatten();
        // In a whole process stubs lead to procedures that are seen.
        let procs = procs.filter(|proc| is_alone || !proc.is_stub());
        let mut count = 0;
        for proc in procs.filter(|proc| proc.first_block().is_some()) {
            found.entry(proc.index()).or_insert((proc, role));
            count += 1;
        }
        count
    };
    for (name, role) in named {
        if add(name, *role) == 0 {
            return Err(format!("there is no procedure `{name}`").into());
        }
    }
    for (symbol, known) in Allocator::procedures() {
        if has_mappings || !known.is_mapping() {
            add(symbol, Role::Known(known));
        }
    }
    Ok(found.into_values().collect())
}

/// Size of a return address on the stack.
const RETURN_ADDRESS: u64 = 8;
