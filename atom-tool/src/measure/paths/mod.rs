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
//! - A procedure that another one jumps to (a tail call) is below the jumping one.
//! - Procedures that are left by an exception or by `longjmp` are closed when control comes back.
//! - A signal handler is below what it interrupted. A coroutine is below what first switched to it.
//! - Stubs of the procedure linkage table belong to their callers, parts that the compiler split off (`foo.cold`) to
//!   their procedures.
//! - In a program that is instrumented alone, a procedure that a library calls is below the program's procedure that
//!   called the library.

// While the program runs, each uses those before it: `state`, `open_calls` and `nodes`, `walk`, `search`, `slow`, `sites`
// and `procs`.
mod amounts;
mod nodes;
mod open_calls;
mod procs;
mod reach;
mod search;
mod silent;
mod sites;
mod slow;
mod state;
mod tree;
pub(crate) mod walk;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use crate::Place::{After, Before};
use crate::calls::params::Array;
use crate::calls::proto::{Placed, PlacedType};
use crate::calls::typed::{Arg, BrCondValue};
use crate::data::sites::SiteList;
use crate::data::thread_data::{AllThreads, PerThread, ThreadData, ThreadState};
use crate::navigation::address::on_object_event;
use crate::navigation::handle::{Block, Inst, Proc};
use crate::navigation::program::Program;
use crate::{EdgeKind, InstType, Reg, analysis, forks};

use silent::FoundCall;
use walk::SiteFrame;

pub use amounts::{Spot, amounts};
pub use reach::leading_to;
pub(crate) use reach::{Entered, entered};
pub use state::{PathNode, PathState};
pub use tree::{Repeat, Tree, TreeNode};

/// What a call path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathOptions {
    /// Calls of one procedure from different places are different paths. Nodes are then found where
    /// [`PathState::called_here`] asks for one: entries are not counted, and [`PathState::count`] and
    /// [`PathState::here`] have no path. [`on_object_event`] is taken.
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
    /// Numbers of procedures by their index.
    numbers: HashMap<usize, u32>,
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
fn path_begin(
    states: AllThreads<PathState>,
    repeats: u32,
    most: u64,
    by_site: bool,
    frames: Array<SiteFrame>,
) {
    slow::BY_SITE.store(by_site, Relaxed);
    if by_site {
        walk::begin(frames);
        on_object_event(|_, _| walk::forget());
    }
    nodes::REPEATS.store(repeats, Relaxed);
    nodes::MOST.store(most, Relaxed);
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

/// True from the program's start on, if call paths are followed.
#[doc(hidden)]
pub fn has_begun() -> bool {
    STATES.get().is_some()
}

/// Analysis side: sets the function that runs in each forked child, in place of [`forks::in_child`], which call paths
/// use themselves. What nodes have counted is 0 by then.
pub fn in_child(function: fn()) {
    // A second function is the tool's mistake, and changes nothing.
    let _ = IN_CHILD.set(function);
}

impl Placed {
    /// The running thread's call path, for a parameter `PATH`.
    pub fn path(state: ThreadData<PathState>) -> Self {
        Self::new(
            PlacedType::Path,
            Arg::<PerThread<PathState>>::to_host(&state),
        )
    }

    /// The call paths of all threads, for a parameter `PATHS`.
    pub fn all_paths(state: ThreadData<PathState>) -> Self {
        Self::new(
            PlacedType::Paths,
            Arg::<AllThreads<PathState>>::to_host(&state),
        )
    }
}

impl CallPaths {
    /// Adds the calls that follow call paths. A tool that adds calls at the same points does so afterwards: its
    /// routines then see the path with the entered procedure.
    pub fn add(program: &Program<'_>, options: PathOptions) -> Self {
        Self::add_for(program, options, &|_| true)
    }

    /// As [`CallPaths::add`], with only some procedures on the paths. All procedures that call these must be among them,
    /// and all parts that they continue in; [`leading_to`] finds such.
    pub fn add_for(
        program: &Program<'_>,
        options: PathOptions,
        has: &dyn Fn(Proc<'_>) -> bool,
    ) -> Self {
        let state = program.thread_data(PathState::zero());
        let (mut procs, mut calls) = (SiteList::new(), SiteList::new());
        let is_whole = program.objects().len() > 1;
        let followed =
            |proc: &Proc<'_>| proc.first_block().is_some() && !proc.is_stub() && has(*proc);
        let followed: Vec<Proc<'_>> = program.procs().filter(followed).collect();
        let mut numbers = HashMap::new();
        for proc in followed.iter().filter(|proc| !is_part(**proc)) {
            numbers.insert(proc.index(), procs.push_proc(*proc) as u32 + 1);
        }
        let mut frames = Vec::new();
        if options.by_site {
            let found = silent::calls(program, &followed, has);
            frames = add_notes(&found, state, &numbers, &mut calls);
            let host = program.session.host;
            (host.map_returns)(host.context);
        }
        for proc in followed {
            let number = numbers.get(&owner(proc).index()).copied();
            if !options.by_site {
                if let Some(number) = number.filter(|_| !is_part(proc)) {
                    let args = (state, number, state::spread(number), Reg::Rsp);
                    proc.add_call(Before, procs::path_enter, args);
                }
                proc.blocks()
                    .for_each(|block| leave(block.last_inst(), state, has));
            }
            for landing in proc.landings() {
                if options.by_site {
                    landing.add_call(sites::site_back, (state, Reg::Rsp))
                } else {
                    landing.add_call(procs::path_back, (state, Reg::Rsp))
                }
            }
            proc.blocks()
                .for_each(|block| end_threads(block, state, is_whole));
        }
        let args = (
            state,
            options.repeats,
            options.most,
            options.by_site,
            &frames,
        );
        program.add_call(Before, path_begin, args);
        Self {
            state,
            procs,
            calls,
            numbers,
        }
    }

    /// Where call sites count: the number by which [`PathState::called_here`] knows a procedure. One that is not on the paths, such as a
    /// stub of the procedure linkage table, gets a number.
    pub fn number(&mut self, proc: Proc<'_>) -> u32 {
        let procs = &mut self.procs;
        let new = || procs.push_proc(proc) as u32 + 1;
        *self.numbers.entry(proc.index()).or_insert_with(new)
    }

    /// The place of a procedure in [`CallPaths::procs`], if it is there.
    pub(crate) fn place_of(&self, proc: Proc<'_>) -> Option<u32> {
        let number = self.numbers.get(&owner(proc).index())?;
        number.checked_sub(1)
    }
}

/// Adds the notes of calls where call sites count. Returns what is known of the sites, in the order of their numbers.
fn add_notes(
    found: &[FoundCall<'_>],
    state: ThreadData<PathState>,
    numbers: &HashMap<usize, u32>,
    calls: &mut SiteList,
) -> Vec<SiteFrame> {
    let number = |proc: Proc<'_>| numbers.get(&owner(proc).index()).copied().unwrap_or(0);
    let frame = |found: &FoundCall<'_>| {
        let call = found.inst;
        let site = calls.push(call) as u32 + 1;
        if !found.is_silent {
            call.add_call(Before, sites::site_call, (state, site, Reg::Rsp, Reg::Rbp));
            call.add_call(After, sites::site_returned, (state, Reg::Rsp));
        }
        // What runs after a switch of stacks is called by the procedure that asks for the switch.
        let to = call.called_proc().filter(|to| !reach::switches_stack(*to));
        let back = call.pc() + call.size() as u64;
        SiteFrame::new(
            back,
            found.frame,
            [number(call.proc()), to.map_or(0, number)],
        )
    };
    found.iter().map(frame).collect()
}

/// The procedure of which one is a part, or itself.
pub(crate) fn owner(proc: Proc<'_>) -> Proc<'_> {
    let first = proc.first_block();
    let from = first.map(|block| block.predecessors()).unwrap_or_default();
    let mut others = from.iter().filter_map(|edge| Some(edge.block?.proc()));
    others.find(|other| *other != proc).unwrap_or(proc)
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
fn leave(last: Inst<'_>, state: ThreadData<PathState>, has: &dyn Fn(Proc<'_>) -> bool) {
    if last.is_type(InstType::Ret) {
        return last.add_call(Before, procs::path_leave, (state, Reg::Rsp));
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
        last.add_call(Before, procs::path_leave_if, args);
    } else {
        last.add_call(Before, procs::path_leave_by, (state, Reg::Rsp));
    }
}

/// True if a jump certainly leads to a procedure whose entry is seen.
fn leads_to_seen(jump: Inst<'_>, has: &dyn Fn(Proc<'_>) -> bool) -> bool {
    let Some(proc) = jump.entered_proc() else {
        return false;
    };
    let proc = if proc.is_stub() {
        proc.stub_target()
    } else {
        Some(proc)
    };
    proc.is_some_and(|proc| proc.first_block().is_some() && proc.is_selected() && has(proc))
}

/// Adds calls where a thread may end: a thread that begins may continue with its state.
fn end_threads(block: Block<'_>, state: ThreadData<PathState>, is_whole: bool) {
    const ENDING: [&str; 2] = ["pthread_exit", "thrd_exit"];
    for inst in block.insts() {
        if inst.is_syscall() {
            let args = (state, Reg::Rax, Reg::Rsp);
            inst.add_call(Before, procs::path_system_call, args);
        }
    }
    let last = block.last_inst();
    if !is_whole
        && last
            .entered_import()
            .is_some_and(|name| ENDING.contains(&name))
    {
        last.add_call(Before, procs::path_end, (state,));
    }
}
