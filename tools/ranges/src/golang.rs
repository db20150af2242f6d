//! Blocks of the heap of a program of Go.
//!
//! All blocks come from procedures of the runtime whose names begin with `runtime.mallocgc`. They take the size in rax
//! and return the block in rax (Go's ABIInternal; r14 is the running goroutine). The place that a user means is not
//! the call of such a procedure, which stands in the runtime (`newobject`, `growslice`), but the call by which other
//! code enters the runtime. So each such call is noted in the running thread, with its goroutine.
//!
//! A goroutine may wait inside the allocator for the collector, and go on in another thread: a call of the allocator
//! belongs to its goroutine. The collector frees memory without a call that names the block, so a block is there until its
//! memory is given out again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use atom_tool::ThreadData;
use atom_tool::prelude::*;

use crate::heap::{self, Calls};
use crate::points::HeapPoints;
use crate::spec;

/// How the names of the allocator's procedures begin.
const ALLOCATOR: &str = "runtime.mallocgc";

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

/// Adds calls where Go's allocator is entered and left, and where other code enters the runtime and may reach the
/// allocator. Does nothing in programs that are not of Go.
pub fn add(
    program: &Program<'_>,
    wishes: &[&spec::Heap],
    calls: ThreadData<Calls>,
    points: &mut HeapPoints,
) {
    let is_allocator = |proc: &Proc<'_>| proc.name().starts_with(ALLOCATOR);
    let allocators: Vec<Proc<'_>> = program.procs().filter(is_allocator).collect();
    if allocators.is_empty() {
        return;
    }
    let unknown = points.add_site(wishes, spec::Heap::is_anywhere);
    for proc in &allocators {
        let number = proc.index() as u64 + 1;
        proc.add_call(
            Before,
            enter_go,
            (calls, number, Reg::R14, Reg::Rax, unknown),
        );
        for block in proc.blocks() {
            let last = block.last_inst();
            if last.is_type(InstType::Ret) {
                last.add_call(Before, leave_go, (number, Reg::R14, Reg::Rax));
            }
        }
    }
    let leading = leading_to(program, &allocators);
    let others = program.procs().filter(|proc| !is_runtime(proc));
    for inst in calls_of(others) {
        let called = inst.called_proc();
        if called.is_some_and(|to| leading.contains(&to.index())) {
            let site = points.add_site(wishes, |wish| wish.fits(inst));
            inst.add_call(Before, enter_runtime, (calls, Reg::R14, site));
        }
    }
}

/// Before a call by which a goroutine enters the runtime.
#[analysis]
fn enter_runtime(calls: PerThread<Calls>, goroutine: u64, site: u64) {
    calls.goroutine.set(goroutine);
    calls.site.set(site);
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

/// At the entry of a procedure of the allocator. It may be entered again for one call, if its stack has grown at the
/// entry. `unknown` is the site if the goroutine has changed its thread since it entered the runtime.
#[analysis]
fn enter_go(calls: PerThread<Calls>, proc: u64, goroutine: u64, size: u64, unknown: u64) {
    let site = match calls.goroutine.get() == goroutine {
        true => calls.site.get(),
        false => unknown,
    };
    let open = places(goroutine).find(|open| open.goroutine.load(Acquire) == goroutine);
    let open = match open {
        // A procedure of the allocator has called another one.
        Some(open) if open.proc.load(Relaxed) != proc => return,
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
    open.proc.store(proc, Relaxed);
    open.size.store(size, Relaxed);
    open.site.store(site, Relaxed);
}

/// Before a procedure of the allocator returns a block.
#[analysis]
fn leave_go(proc: u64, goroutine: u64, block: u64) {
    let is_it =
        |open: &&Open| open.goroutine.load(Acquire) == goroutine && open.proc.load(Relaxed) == proc;
    let Some(open) = places(goroutine).find(is_it) else {
        return;
    };
    let (size, site) = (open.size.load(Relaxed), open.site.load(Relaxed));
    open.goroutine.store(0, Release);
    heap::given(site as usize, block, size);
}
