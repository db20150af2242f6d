//! Blocks of the heap of a program of Go.
//!
//! All blocks come from procedures of the runtime whose names begin with `runtime.mallocgc`. They take the size in rax
//! and return the block in rax (Go's ABIInternal; r14 is the running goroutine). The place that a user means is not
//! the call of such a procedure, which is in the runtime (`newobject`, `growslice`), but the call by which other
//! code enters the runtime. So each such call is noted in the running thread, with its goroutine.
//!
//! A goroutine may wait inside the allocator for the collector, and continue in another thread: a call of the allocator
//! belongs to its goroutine. The collector frees memory without a call that names the block, so a block is there until its
//! memory is given out again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::data::thread_data::ThreadCell;
use crate::navigation::handle::{Inst, Proc};
use crate::navigation::program::Program;
use crate::{InstType, thread_state};

/// How the names of the allocator's procedures begin.
const ALLOCATOR: &str = "runtime.mallocgc";

/// A point at which a tool follows Go's allocator. The goroutine is in r14.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoPoint<'a> {
    /// The entry of the allocator, and a number of the procedure: for [`GoThread::allocates`]. rax has the size.
    Enter(Proc<'a>, u32),
    /// An instruction before which the procedure of this number returns: for [`go_allocated`]. rax has the block.
    Leave(Inst<'a>, u32),
    /// A call by which a function outside of the runtime enters it, and may reach the allocator: for
    /// [`GoThread::enters_runtime`] before it, and [`GoThread::leaves_runtime`] after it.
    EnterRuntime(Inst<'a>),
}

/// True for a procedure of Go's runtime.
fn is_runtime(proc: &Proc<'_>) -> bool {
    let name = proc.name();
    name.starts_with("runtime.") || name.starts_with("internal/runtime/")
}

/// The last instructions of the blocks of some procedures: calls are among them.
fn calls_of<'a>(procs: impl Iterator<Item = Proc<'a>>) -> impl Iterator<Item = Inst<'a>> {
    procs
        .flat_map(|proc| proc.blocks())
        .map(|block| block.last_inst())
}

/// The procedures of the runtime that call one of these, or call procedures that do, by their numbers.
fn leading_to(program: &Program<'_>, allocators: &[Proc<'_>]) -> HashSet<usize> {
    let mut callers: HashMap<usize, Vec<usize>> = HashMap::new();
    for inst in calls_of(program.procs().filter(is_runtime)) {
        if let Some(called) = inst.called_proc() {
            let callers = callers.entry(called.index()).or_default();
            callers.push(inst.proc().index());
        }
    }
    let mut new: Vec<usize> = allocators.iter().map(Proc::index).collect();
    let mut found: HashSet<usize> = new.iter().copied().collect();
    while let Some(proc) = new.pop() {
        let callers = callers.remove(&proc).unwrap_or_default();
        new.extend(callers.into_iter().filter(|caller| found.insert(*caller)));
    }
    found
}

/// Gives all points for Go's allocator to `each`; none if the program is not of Go.
pub fn go_points<'a>(program: &Program<'a>, each: &mut dyn FnMut(GoPoint<'a>)) {
    let is_allocator = |proc: &Proc<'_>| proc.name().starts_with(ALLOCATOR);
    let allocators: Vec<Proc<'_>> = program.procs().filter(is_allocator).collect();
    if allocators.is_empty() {
        return;
    }
    for proc in &allocators {
        let number = proc.index() as u32 + 1;
        each(GoPoint::Enter(*proc, number));
        for block in proc.blocks() {
            let last = block.last_inst();
            if last.is_type(InstType::Ret) {
                each(GoPoint::Leave(last, number));
            }
        }
    }
    let leading = leading_to(program, &allocators);
    let others = program.procs().filter(|proc| !is_runtime(proc));
    for inst in calls_of(others) {
        let called = inst.called_proc();
        if called.is_some_and(|to| leading.contains(&to.index())) {
            each(GoPoint::EnterRuntime(inst));
        }
    }
}

thread_state! {
    /// The goroutine that has entered the runtime last in a thread, and by which call.
    pub struct GoThread {
        goroutine: ThreadCell<u64>,
        site: ThreadCell<u64>,
    }
}

impl GoThread {
    /// Before a call by which a goroutine enters the runtime. `site` is the tool's number of the call.
    pub fn enters_runtime(&self, goroutine: u64, site: u64) {
        self.goroutine.set(goroutine);
        self.site.set(site);
    }

    /// After such a call: what the runtime allocates for itself belongs to none.
    pub fn leaves_runtime(&self, goroutine: u64) {
        if self.goroutine.get() == goroutine {
            self.goroutine.set(0);
        }
    }

    /// At the entry of a procedure of the allocator. It may be entered again for one call, if its stack has grown at the
    /// entry. `unknown` is the site if the goroutine has entered the runtime in another thread, or by no call.
    pub fn allocates(&self, proc: u32, goroutine: u64, size: u64, unknown: u64) {
        let site = if self.goroutine.get() == goroutine {
            self.site.get()
        } else {
            unknown
        };
        let open = places(goroutine).find(|open| open.goroutine.load(Acquire) == goroutine);
        let open = match open {
            // A procedure of the allocator has called another one.
            Some(open) if open.proc.load(Relaxed) != u64::from(proc) => return,
            Some(open) => open,
            None => {
                let take = |open: &&Open| {
                    let taken = open
                        .goroutine
                        .compare_exchange(0, goroutine, AcqRel, Relaxed);
                    taken.is_ok()
                };
                let Some(open) = places(goroutine).find(take) else {
                    return;
                };
                open
            }
        };
        open.proc.store(proc.into(), Relaxed);
        open.size.store(size, Relaxed);
        open.site.store(site, Relaxed);
    }
}

/// A call of the allocator that has not returned yet.
struct Open {
    /// The goroutine; 0 if nothing is there.
    goroutine: AtomicU64,
    /// Number of the procedure.
    proc: AtomicU64,
    size: AtomicU64,
    site: AtomicU64,
}

/// Number of calls that may be open at once.
const OPEN: usize = 4096;
/// Number of places at which a goroutine's call may be.
const PLACES: usize = 16;

static ALL: [Open; OPEN] = [const {
    Open {
        goroutine: AtomicU64::new(0),
        proc: AtomicU64::new(0),
        size: AtomicU64::new(0),
        site: AtomicU64::new(0),
    }
}; OPEN];

/// The places at which a goroutine's call may be. Descriptors of goroutines are some hundred bytes large.
fn places(goroutine: u64) -> impl Iterator<Item = &'static Open> {
    let first = (goroutine >> 6) as usize;
    (0..PLACES).map(move |i| &ALL[(first + i) % OPEN])
}

/// Before a procedure of the allocator returns a block: the site and the block's size in bytes. `None` if another procedure's
/// entry has begun the call.
pub fn go_allocated(proc: u32, goroutine: u64) -> Option<(u64, u64)> {
    let is_it = |open: &&Open| {
        open.goroutine.load(Acquire) == goroutine && open.proc.load(Relaxed) == u64::from(proc)
    };
    let open = places(goroutine).find(is_it)?;
    let found = (open.site.load(Relaxed), open.size.load(Relaxed));
    open.goroutine.store(0, Release);
    Some(found)
}
