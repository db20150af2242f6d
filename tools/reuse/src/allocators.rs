//! The calls that follow the heap, and what they do when an allocator is entered and left.
//!
//! `atom_tool::allocations` has the points, `atom_tool::paths` the call path there. A thread looks at its noted references
//! before it changes the map, so they count for what was there when they were made.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use atom_tool::allocations::{self, Call, GoPoint, GoThread, New, OpenCall, Point, Role, Wrappers};
use atom_tool::notes::NoteBuffer;
use atom_tool::paths::{self, CallPaths, PathNode, PathOptions, PathState};
use atom_tool::prelude::*;
use atom_tool::{ThreadData, ThreadState, Uninterrupted};

use crate::heap::{HEAP, Key, MAPPINGS, end};
use crate::thread;

/// Largest number of callers that tell origins apart.
static CALLERS: AtomicU64 = AtomicU64::new(0);
/// The procedures that allocate for their callers.
static WRAPPERS: OnceLock<Wrappers> = OnceLock::new();

/// The number of the origin of what the running thread allocates.
fn origin(
    blocked: &Uninterrupted,
    path: &PathState,
    node: &'static PathNode,
    is_mapping: bool,
) -> u32 {
    if node.tool() != 0 {
        return node.tool() as u32 - 1;
    }
    let number = |number: Option<usize>| number.map_or(0, |number| number as u32 + 1);
    let procs = path.callers(node).map(|(_, proc)| proc);
    let inner = WRAPPERS.get().map_or(0, |wrappers| wrappers.inner(procs));
    let callers = path.callers(node).skip(inner);
    let callers = callers.take(CALLERS.load(Relaxed) as usize);
    let key = Key {
        is_mapping,
        callers: callers
            .map(|(call, proc)| [number(call), number(proc)])
            .collect(),
    };
    let number = HEAP.with_blocked(blocked, |heap| heap.number(key));
    node.set_tool(u64::from(number) + 1);
    number
}

#[analysis]
fn begin_heap(callers: u64, wrappers: Array<u32>) {
    CALLERS.store(callers, Relaxed);
    let _ = WRAPPERS.set(Wrappers(wrappers));
    paths::in_child(|| {
        HEAP.with(|heap| {
            for origin in &mut heap.origins {
                (origin.blocks, origin.bytes) = (0, 0);
            }
        });
    });
}

/// Runs at an allocator's entry. `what` was made by [`OpenCall::what`] from the procedure's number in call paths.
#[analysis]
#[rustfmt::skip]
fn enter(open: PerThread<OpenCall>, path: PerThread<PathState>, buffer: PerThread<NoteBuffer>, what: u32, sp: u64, rbp: u64, a: u64, b: u64, c: u64) {
    let Some(call) = open.enter(what, sp, [a, b, c]) else {
        return;
    };
    Uninterrupted::run(|blocked| {
        thread::catch_up(buffer);
        match call {
            Call::Frees { block } if thread::is_alone() => HEAP.with_blocked(blocked, |heap| heap.free(block)),
            Call::Frees { .. } => {}
            Call::Unmaps { start, size } => {
                MAPPINGS.fetch_add(1, Relaxed);
                HEAP.with_blocked(blocked, |heap| heap.forget(start, end(start, size, true)));
            }
            Call::Allocates { is_mapping } => {
                let node = path.called_here(open.proc(), sp, rbp);
                open.set_tag(origin(blocked, &path, node, is_mapping).into());
            }
        }
    })
}

/// Before an instruction by which an allocator may be left.
#[analysis]
fn leave(open: PerThread<OpenCall>, buffer: PerThread<NoteBuffer>, sp: u64, result: u64) {
    if let Some(new) = open.leave(sp, result) {
        allocated(buffer, new);
    }
}

/// After a call that may have led to an allocator of a library that is not seen.
#[analysis]
fn left(open: PerThread<OpenCall>, buffer: PerThread<NoteBuffer>, sp: u64, result: u64) {
    if let Some(new) = open.left(sp, result) {
        allocated(buffer, new);
    }
}

/// Before a jump out of an allocator to a place that is not known.
#[analysis]
fn lose(open: PerThread<OpenCall>, sp: u64) {
    open.lose(sp);
}

/// Where control comes back by an exception or `longjmp`, maybe out of an allocator.
#[analysis]
fn landed(open: PerThread<OpenCall>, sp: u64) {
    open.landed(sp);
}

/// Before a call by which a goroutine enters Go's runtime.
#[analysis]
fn enter_runtime(thread: PerThread<GoThread>, goroutine: u64, site: u64) {
    thread.enters_runtime(goroutine, site);
}

/// After such a call.
#[analysis]
fn leave_runtime(thread: PerThread<GoThread>, goroutine: u64) {
    thread.leaves_runtime(goroutine);
}

/// At the entry of a procedure of Go's allocator.
#[analysis]
fn enter_go(thread: PerThread<GoThread>, proc: u32, goroutine: u64, size: u64) {
    thread.allocates(proc, goroutine, size, 0);
}

/// Before a procedure of Go's allocator returns a block, in memory that the collector has freed. A site is a caller as origins
/// have it: the number of its call in the upper half, its procedure's in the lower one.
#[analysis]
fn leave_go(buffer: PerThread<NoteBuffer>, proc: u32, goroutine: u64, block: u64) {
    let Some((site, size)) = allocations::go_allocated(proc, goroutine) else {
        return;
    };
    Uninterrupted::run(|blocked| {
        let is_mapping = false;
        let caller = Some([(site >> 32) as u32, site as u32]).filter(|_| site != 0);
        let callers = caller.into_iter().collect();
        let tag = HEAP.with_blocked(blocked, |heap| {
            heap.number(Key {
                is_mapping,
                callers,
            })
        });
        let new = New {
            block,
            size,
            old: 0,
            tag: tag.into(),
            is_mapping,
        };
        add_block(blocked, buffer, new);
    })
}

#[cold]
#[inline(never)]
fn allocated(buffer: PerThread<NoteBuffer>, new: New) {
    Uninterrupted::run(|blocked| add_block(blocked, buffer, new));
}

/// Puts a new block into the map, and takes out the block that it replaces.
fn add_block(blocked: &Uninterrupted, buffer: PerThread<NoteBuffer>, new: New) {
    let end = end(new.block, new.size, new.is_mapping);
    if new.is_mapping {
        MAPPINGS.fetch_add(1, Relaxed);
    }
    if new.block != 0 && end > new.block {
        HEAP.with_blocked(blocked, |heap| heap.allocate(new, end));
    }
    thread::catch_up(buffer);
    if new.old != 0 && new.old != new.block && (thread::is_alone() || new.is_mapping) {
        HEAP.with_blocked(blocked, |heap| heap.free(new.old));
    }
}

/// Instrument side: what the report needs.
#[derive(Default)]
pub struct Followed {
    /// The procedures and calls of the call paths.
    pub procs: SiteList,
    pub calls: SiteList,
    /// The allocator is known.
    pub is_known: bool,
    /// The allocator of some library is not seen.
    pub has_unseen: bool,
}

/// Adds the calls that follow the heap.
pub fn add(
    program: &Program<'_>,
    buffer: ThreadData<NoteBuffer>,
    named: &allocations::Named,
    callers: u64,
) -> Result<Followed> {
    let allocators = allocations::find(program, named, true)?;
    if let Some(followed) = heap_of_go(program, buffer) {
        return Ok(followed);
    }
    if allocators.is_empty() {
        return Ok(Followed::default());
    }
    let options = PathOptions {
        by_site: true,
        ..PathOptions::default()
    };
    let procs: Vec<Proc<'_>> = allocators.iter().map(|(proc, _)| *proc).collect();
    let leading = paths::leading_to(program, &procs);
    let mut paths = CallPaths::add_for(program, options, &|proc| leading.contains(&proc.index()));
    let open = program.thread_data(OpenCall::zero());
    let sp = Reg::Rsp;
    allocations::points(program, &allocators, &mut |point| match point {
        Point::Enter(proc, role) => {
            let what = OpenCall::what(role, paths.number(proc));
            let [a, b, c] = [Reg::Rdi, Reg::Rsi, Reg::Rdx];
            let args = (open, paths.state, buffer, what, sp, Reg::Rbp, a, b, c);
            proc.add_call(Before, enter, args);
        }
        Point::Leave(inst, block) => inst.add_call(Before, leave, (open, buffer, sp, block)),
        Point::Left(inst) => inst.add_call(After, left, (open, buffer, sp, Reg::Rax)),
        Point::Lose(inst) => inst.add_call(Before, lose, (open, sp)),
        Point::Landed(landing) => landing.add_call(landed, (open, sp)),
    });
    let wrappers = allocations::wrappers(program, &allocators, &paths);
    program.add_call(Before, begin_heap, (callers, &wrappers));
    let is_heap = |role: Role| !matches!(role, Role::Known(known) if known.is_mapping());
    Ok(Followed {
        procs: paths.procs,
        calls: paths.calls,
        is_known: allocators.iter().any(|(_, role)| is_heap(*role)),
        has_unseen: procs.iter().any(Proc::is_stub),
    })
}

/// Adds the calls that follow Go's heap. `None` if the program is not of Go.
fn heap_of_go(program: &Program<'_>, buffer: ThreadData<NoteBuffer>) -> Option<Followed> {
    let thread = program.thread_data(GoThread::zero());
    let (mut procs, mut calls) = (SiteList::new(), SiteList::new());
    let mut numbers: HashMap<usize, u64> = HashMap::new();
    let mut is_known = false;
    let goroutine = Reg::R14;
    allocations::go_points(program, &mut |point| match point {
        GoPoint::Enter(proc, number) => {
            is_known = true;
            proc.add_call(Before, enter_go, (thread, number, goroutine, Reg::Rax));
        }
        GoPoint::Leave(inst, number) => {
            inst.add_call(Before, leave_go, (buffer, number, goroutine, Reg::Rax));
        }
        GoPoint::EnterRuntime(inst) => {
            let mut new = || procs.push_proc(inst.proc()) as u64 + 1;
            let proc = *numbers.entry(inst.proc().index()).or_insert_with(&mut new);
            let site = (calls.push(inst) as u64 + 1) << 32 | proc;
            inst.add_call(Before, enter_runtime, (thread, goroutine, site));
            inst.add_call(After, leave_runtime, (thread, goroutine));
        }
    });
    is_known.then_some(Followed {
        procs,
        calls,
        is_known,
        has_unseen: false,
    })
}
