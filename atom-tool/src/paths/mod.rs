//! Call paths: which procedure was called by which, from the start of the thread to where it runs.
//!
//! [`CallPaths::add`] adds calls where procedures are entered and left. From then on each thread has a
//! [`PathState`]: an argument of a tool's own routines, in which the running call path is a node of a tree. A routine
//! adds to the node what it counts, and at the end a [`Tree`] has the sums of all threads.
//!
//! ```
//! use atom_tool::paths::{CallPaths, PathOptions, PathState, Tree};
//! use atom_tool::prelude::*;
//!
//! #[analysis]
//! fn block(path: PerThread<PathState>, insts: u64) {
//!     path.count(insts);
//! }
//!
//! #[analysis]
//! fn report(paths: AllThreads<PathState>, procs: Sites) {
//!     let tree = Tree::merged(paths);
//!     for node in tree.nodes.iter().filter(|node| node.own != 0) {
//!         let name = node.proc.and_then(|proc| procs.get(proc)).map_or("", |site| site.proc);
//!         println!("{:indent$}{name}: {}", "", node.own, indent = node.depth);
//!     }
//! }
//!
//! fn instrument(program: &Program, _args: &Args) -> Result {
//!     let paths = CallPaths::add(program, PathOptions::default());
//!     for block in program.procs().flat_map(|proc| proc.blocks()) {
//!         block.add_call(Before, self::block, (paths.state, block.insts().len() as u64));
//!     }
//!     program.add_call(After, report, (paths.state, &paths.procs));
//!     Ok(())
//! }
//!
//! atom_tool::tool!(instrument);
//! # fn main() {}
//! ```
//!
//! What the paths show:
//!
//! - A procedure that another one jumps to (a tail call) stands below the jumping one.
//! - Procedures that are left by an exception or by `longjmp` are closed when control comes back.
//! - A signal handler stands below what it interrupted. A coroutine stands below what first switched to it.
//! - Stubs of the procedure linkage table belong to their callers, parts that the compiler split off (`foo.cold`) to
//!   their procedures.
//! - In a program that is instrumented alone, a procedure that a library calls stands below the program's procedure that
//!   called the library.

mod amounts;
mod reach;
mod slow;
mod state;
mod tree;

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use crate::Place::{After, Before};
use crate::call::BrCondValue;
use crate::handle::{Block, Inst, Proc};
use crate::program::Program;
use crate::sites::SiteList;
use crate::thread_data::{AllThreads, ThreadData, ThreadState};
use crate::{EdgeKind, InstType, Reg, analysis, forks};

pub use amounts::{Spot, amounts};
pub use reach::leading_to;
pub use state::{PathNode, PathState};
pub use tree::{Repeat, Tree, TreeNode};

/// What a call path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathOptions {
    /// Calls of one procedure from different places are different paths.
    pub by_site: bool,
    /// How often a procedure may be on a path; 0 for any number. A further call of it leads back to its innermost
    /// node.
    pub repeats: u32,
    /// Number of nodes of a thread from which on there are no new paths. Procedures that are called by a new path
    /// then have one node each, below a node of no procedure.
    pub most: u64,
}

impl Default for PathOptions {
    /// By procedure, without recursion, at most 2^20 nodes.
    fn default() -> Self {
        Self {
            by_site: false,
            repeats: 1,
            most: 1 << 20,
        }
    }
}

/// Instrument side: the call paths of all threads.
pub struct CallPaths {
    /// The argument for parameters `PerThread<PathState>` and `AllThreads<PathState>`.
    pub state: ThreadData<PathState>,
    /// The procedures, in the order of the numbers that nodes have.
    pub procs: SiteList,
    /// The calls, in the order of the numbers that nodes have for their call sites; empty where these do not count.
    pub calls: SiteList,
    by_site: bool,
}

/// The states of all threads.
struct States(AllThreads<PathState>);
// SAFETY: threads share only atomic data.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

static STATES: OnceLock<States> = OnceLock::new();
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

#[analysis]
fn path_begin(states: AllThreads<PathState>, repeats: u32, most: u64) {
    slow::REPEATS.store(repeats, Relaxed);
    slow::MOST.store(most, Relaxed);
    if STATES.set(States(states)).is_ok() {
        forks::in_child(|| {
            if let Some(states) = STATES.get() {
                states.0.iter().for_each(PathState::clear);
            }
            if let Some(function) = IN_CHILD.get() {
                function();
            }
        });
    }
}

/// True from the program's start on.
fn has_begun() -> bool {
    STATES.get().is_some()
}

/// Analysis side: sets the function that runs in each forked child, in place of [`forks::in_child`], which call paths
/// use themselves. What nodes have counted is 0 by then.
pub fn in_child(function: fn()) {
    // A second function is the tool's mistake, and changes nothing.
    let _ = IN_CHILD.set(function);
}

impl CallPaths {
    /// Adds the calls that follow call paths. A tool that adds calls at the same points does so afterwards: its
    /// routines then see the path with the entered procedure.
    pub fn add(program: &Program<'_>, options: PathOptions) -> Self {
        Self::add_for(program, options, &|_| true)
    }

    /// As [`CallPaths::add`], with only some procedures on the paths. All procedures that call these must be among them,
    /// and all parts that they go on in; [`leading_to`] finds such.
    pub fn add_for(
        program: &Program<'_>,
        options: PathOptions,
        has: &dyn Fn(Proc<'_>) -> bool,
    ) -> Self {
        let state = program.thread_data(PathState::zero());
        let (mut procs, mut calls) = (SiteList::new(), SiteList::new());
        let is_whole = program.objects().len() > 1;
        for proc in program.procs() {
            if proc.first_block().is_none() || proc.is_stub() || !has(proc) {
                continue;
            }
            if !is_part(proc) {
                enter(proc, state, &mut procs, options.by_site);
            }
            for landing in proc.landings() {
                landing.add_call(state::path_back, (state, Reg::Rsp));
            }
            for block in proc.blocks() {
                let call = block.last_inst();
                leave(call, state, options.by_site, has);
                let is_call = options.by_site && call.is_type(InstType::Call);
                if is_call && call.called_proc().is_none_or(|to| to.is_stub() || has(to)) {
                    let number = calls.push(call) as u64 + 1;
                    call.add_call(Before, state::path_call, (state, number));
                }
                end_threads(block, state, is_whole);
            }
        }
        let args = (state, options.repeats, options.most);
        program.add_call(Before, path_begin, args);
        Self {
            state,
            procs,
            calls,
            by_site: options.by_site,
        }
    }

    /// Adds a stub of the procedure linkage table as a procedure of its own: what it leads to is not seen. The calls that
    /// may lead to it get [`CallPaths::returned`].
    pub fn add_stub(&mut self, stub: Proc<'_>) {
        enter(stub, self.state, &mut self.procs, self.by_site);
    }

    /// Adds what is needed behind a call from which control may come back from a stub.
    pub fn returned(&self, call: Inst<'_>) {
        call.add_call(After, state::path_returned, (self.state, Reg::Rsp));
    }
}

/// Adds the call for the entry of a procedure.
fn enter(proc: Proc<'_>, state: ThreadData<PathState>, procs: &mut SiteList, by_site: bool) {
    let number = procs.push_proc(proc) as u32 + 1;
    let args = (state, number, state::spread(number), Reg::Rsp);
    match by_site {
        true => proc.add_call(Before, state::path_enter_from, args),
        false => proc.add_call(Before, state::path_enter, args),
    }
}

/// True if a procedure is a part of another one that the compiler put elsewhere (`foo.cold`): only that one jumps there.
fn is_part(proc: Proc<'_>) -> bool {
    let first = proc.first_block();
    let from = first.map(|block| block.predecessors()).unwrap_or_default();
    let is_own = |block: Block<'_>| block.proc() == proc;
    from.iter()
        .any(|edge| edge.block.is_some_and(|block| !is_own(block)))
}

/// Adds the call for a way out of a procedure at the end of a block.
fn leave(
    last: Inst<'_>,
    state: ThreadData<PathState>,
    by_site: bool,
    has: &dyn Fn(Proc<'_>) -> bool,
) {
    if last.is_type(InstType::Ret) {
        return match by_site {
            true => last.add_call(Before, state::path_leave_to, (state, Reg::Rsp)),
            false => last.add_call(Before, state::path_leave, (state, Reg::Rsp)),
        };
    }
    if last.is_type(InstType::Call) {
        return;
    }
    let out = |kind| matches!(kind, EdgeKind::Tail | EdgeKind::Unknown);
    let is_out = last.block().successors().iter().any(|edge| out(edge.kind));
    if !is_out || leads_to_seen(last, has) {
        return;
    }
    if last.is_type(InstType::CondBr) {
        let args = (state, Reg::Rsp, BrCondValue);
        last.add_call(Before, state::path_leave_if, args);
    } else {
        last.add_call(Before, state::path_leave_by, (state, Reg::Rsp));
    }
}

/// True if a jump certainly leads to a procedure whose entry is seen.
fn leads_to_seen(jump: Inst<'_>, has: &dyn Fn(Proc<'_>) -> bool) -> bool {
    let Some(proc) = jump.entered_proc() else {
        return false;
    };
    let proc = match proc.is_stub() {
        true => proc.stub_target(),
        false => Some(proc),
    };
    proc.is_some_and(|proc| proc.first_block().is_some() && proc.is_selected() && has(proc))
}

/// Adds calls where a thread may end: a thread that begins may go on with its state.
fn end_threads(block: Block<'_>, state: ThreadData<PathState>, is_whole: bool) {
    const ENDING: [&str; 2] = ["pthread_exit", "thrd_exit"];
    for inst in block.insts() {
        if inst.mnemonic() == "syscall" {
            let args = (state, Reg::Rax, Reg::Rsp);
            inst.add_call(Before, state::path_system_call, args);
        }
    }
    let last = block.last_inst();
    if !is_whole
        && last
            .entered_import()
            .is_some_and(|name| ENDING.contains(&name))
    {
        last.add_call(Before, state::path_end, (state,));
    }
}
