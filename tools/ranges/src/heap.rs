//! Blocks of the heap, followed by the program's calls of the allocator.
//!
//! The size is known before a call, the address after it. In between, one procedure of the
//! allocator may call another (`operator new` calls `malloc`); only the outermost call counts. A
//! procedure that ends in a jump to the allocator returns to its own caller, which is recognised
//! by the stack pointer.
//!
//! A call through a pointer is known when it arrives: at the entry of an allocator that no known call has
//! entered. Its place is the last call through a pointer, if the stack pointer then was the same.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::ThreadState;
use atom_tool::allocations::{self, Allocator, GoThread};
use atom_tool::prelude::*;

use crate::live::{self, Block, MAP};

/// Most nested calls of the allocator in one thread.
const DEPTH: usize = 16;

thread_state! {
    /// The calls of the allocator that a thread is in, the outermost first.
    pub struct Calls {
        depth: ThreadCell<u64>,
        /// For each call: rsp before it, kind and site, size, address of the old block or of the
        /// result.
        calls: [[ThreadCell<u64>; 4]; DEPTH],
        /// The last call through a pointer in a place that a request names: its site, and rsp before the call.
        pointer: [ThreadCell<u64>; 2],
        /// Of a program of Go.
        go: GoThread,
    }
}

impl Calls {
    pub fn new() -> Self {
        Self {
            depth: ThreadCell::new(0),
            calls: std::array::from_fn(|_| std::array::from_fn(|_| ThreadCell::new(0))),
            pointer: std::array::from_fn(|_| ThreadCell::new(0)),
            go: GoThread::zero(),
        }
    }
}

plain_data! {
    /// The blocks of the heap that a range wants.
    pub struct Request {
        /// Least and greatest size in bytes.
        pub sizes: [u64; 2],
        /// The first and the last of the blocks with such a size, counted from 1.
        pub numbers: [u64; 2],
        /// Number of the range.
        pub range: u32,
        pub _unused: u32,
    }

    /// A call of the allocator that may fulfil a request.
    pub struct RequestSite {
        /// Number of the call.
        pub site: u32,
        /// Number of the request.
        pub request: u32,
    }
}

/// A request, and the blocks of its sizes so far.
struct Wanted {
    request: Request,
    seen: AtomicU64,
}

struct Requests {
    all: Vec<Wanted>,
    /// For each site the requests that its place fits.
    by_site: Vec<Vec<u32>>,
}

static REQUESTS: OnceLock<Requests> = OnceLock::new();

/// Begins with the requests and the sites that fit them.
pub fn begin(requests: &[Request], sites: &[RequestSite]) {
    let all = requests.iter().map(|request| Wanted {
        request: *request,
        seen: AtomicU64::new(0),
    });
    let mut by_site: Vec<Vec<u32>> = Vec::new();
    for RequestSite { site, request } in sites {
        let site = *site as usize;
        if by_site.len() <= site {
            by_site.resize_with(site + 1, Vec::new);
        }
        by_site[site].push(*request);
    }
    let _ = REQUESTS.set(Requests {
        all: all.collect(),
        by_site,
    });
}

/// The ranges that a new block belongs to.
fn ranges_of(site: usize, size: u64) -> Vec<u32> {
    let Some(requests) = REQUESTS.get() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let fitting = requests.by_site.get(site).into_iter().flatten();
    for Wanted { request, seen } in fitting.filter_map(|i| requests.all.get(*i as usize)) {
        if !(request.sizes[0]..=request.sizes[1]).contains(&size) {
            continue;
        }
        let number = seen.fetch_add(1, Relaxed) + 1;
        if (request.numbers[0]..=request.numbers[1]).contains(&number) {
            found.push(request.range);
        }
    }
    found
}

/// Before a call of the allocator, with its arguments. `what` is the site, times 16, plus the
/// kind of procedure; `sp` is rsp, which has this value again after the call.
#[analysis]
pub fn enter(calls: PerThread<Calls>, what: u64, sp: u64, a: u64, b: u64, c: u64) {
    entered(&calls, what, sp, [a, b, c]);
}

/// Before a jump to the allocator, which returns to the procedure's caller: rsp is then higher
/// by the return address.
#[analysis]
pub fn enter_by_jump(calls: PerThread<Calls>, what: u64, sp: u64, a: u64, b: u64, c: u64) {
    entered(&calls, what, sp + RETURN_ADDRESS, [a, b, c]);
}

/// Before a call through a pointer.
#[analysis]
pub fn enter_by_pointer(calls: PerThread<Calls>, site: u64, sp: u64) {
    calls.pointer[0].set(site);
    calls.pointer[1].set(sp);
}

/// Before a jump through a pointer out of a procedure.
#[analysis]
pub fn enter_by_pointer_jump(calls: PerThread<Calls>, site: u64, sp: u64) {
    calls.pointer[0].set(site);
    calls.pointer[1].set(sp + RETURN_ADDRESS);
}

/// At the entry of a procedure of the allocator, with its arguments. `what` has the site for calls from anywhere.
#[analysis]
pub fn enter_proc(calls: PerThread<Calls>, what: u64, sp: u64, a: u64, b: u64, c: u64) {
    let sp = sp + RETURN_ADDRESS;
    // A known call has entered it, or it is inside of a call. The outermost call has the highest stack pointer.
    if calls.depth.get() != 0 && calls.calls[0][0].get() >= sp {
        return;
    }
    let site = if calls.pointer[1].get() == sp {
        calls.pointer[0].get()
    } else {
        what / 16
    };
    entered(&calls, (site << 4) | (what % 16), sp, [a, b, c]);
}

/// Before an instruction by which a procedure of the allocator may be left.
#[analysis]
pub fn leave_proc(calls: PerThread<Calls>, sp: u64, result: u64) {
    if calls.depth.get() != 0 {
        returned(&calls, sp + RETURN_ADDRESS, result);
    }
}

/// Where control comes back by an exception or `longjmp`, maybe out of the allocator.
#[analysis]
pub fn landed(calls: PerThread<Calls>, sp: u64) {
    if calls.depth.get() != 0 {
        drop_left(&calls, sp);
    }
}

/// Forgets the calls that are not below an outer one on the stack. Returns the number of the others.
fn drop_left(calls: &Calls, sp: u64) -> u64 {
    let mut depth = calls.depth.get().min(DEPTH as u64);
    while depth > 0 && calls.calls[depth as usize - 1][0].get() <= sp {
        depth -= 1;
    }
    calls.depth.set(depth);
    depth
}

/// Bytes of a return address.
const RETURN_ADDRESS: u64 = 8;

fn entered(calls: &Calls, what: u64, sp: u64, [a, b, c]: [u64; 3]) {
    let kind = Allocator::from_number(what % 16);
    // A call that is not below an outer one on the stack is not inside it.
    let depth = drop_left(calls, sp);
    match kind {
        Allocator::Free if depth == 0 => return gone(a, None),
        Allocator::Munmap if depth == 0 => return gone(a, Some(b)),
        Allocator::Free | Allocator::Munmap => return,
        _ => {}
    }
    let (size, other) = kind.request([a, b, c]);
    let Some(call) = calls.calls.get(depth as usize) else {
        return;
    };
    for (cell, value) in call.iter().zip([sp, what, size, other]) {
        cell.set(value);
    }
    calls.depth.set(depth + 1);
    if kind.takes_block() && depth == 0 && MAP.covers(other, other + 1) {
        // Another thread may get the block's memory before this call returns.
        live::locked(|live| {
            if let Some(block) = live.blocks.get(&other).cloned() {
                live.vanish(&block.ranges, other, block.size);
            }
        });
    }
}

/// After a call that may have been a call of the allocator.
#[analysis]
pub fn leave(calls: PerThread<Calls>, sp: u64, result: u64) {
    calls.pointer[1].set(0);
    if calls.depth.get() != 0 {
        returned(&calls, sp, result);
    }
}

#[cold]
#[inline(never)]
fn returned(calls: &Calls, sp: u64, result: u64) {
    let depth = calls.depth.get().min(DEPTH as u64) as usize;
    let open = calls.calls.iter().take(depth);
    let Some(at) = open.rev().position(|call| call[0].get() == sp) else {
        return;
    };
    let at = depth - 1 - at;
    calls.depth.set(at as u64);
    if at != 0 {
        return;
    }
    let [_, what, size, other] = [0, 1, 2, 3].map(|i: usize| calls.calls[at][i].get());
    let (kind, site) = (Allocator::from_number(what % 16), (what / 16) as usize);
    let block = match kind {
        // SAFETY: the allocator has just written it there.
        Allocator::PosixMemalign if result == 0 => unsafe { *(other as *const u64) },
        Allocator::PosixMemalign => 0,
        _ if kind.is_mapping() && result > u64::MAX - 4096 => 0,
        _ => result,
    };
    let old = match kind {
        kind if kind.takes_block() && other != 0 => {
            live::locked(|live| live.blocks.remove(&other)).map(|old| (other, old))
        }
        _ => None,
    };
    if block == 0 {
        // `realloc` to a size of 0 frees the block.
        if let Some((at, old)) = old.filter(|_| size != 0) {
            live::locked(|live| {
                live.appear(&old.ranges, at, old.size);
                live.blocks.insert(at, old);
            });
        }
        return;
    }
    let ranges = old.map_or(Vec::new(), |(_, old)| old.ranges);
    add(block, size, with_wanted(ranges, site, size));
}

/// These ranges, and those that want a new block.
fn with_wanted(mut ranges: Vec<u32>, site: usize, size: u64) -> Vec<u32> {
    for range in ranges_of(site, size) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

/// A block of these ranges has been allocated.
fn add(block: u64, size: u64, ranges: Vec<u32>) {
    if ranges.is_empty() || size == 0 {
        return;
    }
    live::locked(|live| {
        // A block there was freed in a way that the tool did not see.
        if let Some(stale) = live.blocks.remove(&block) {
            live.vanish(&stale.ranges, block, stale.size);
        }
        live.appear(&ranges, block, size);
        live.blocks.insert(block, Block { size, ranges });
    });
}

/// Before a call by which a goroutine enters the runtime.
#[analysis]
pub fn enter_runtime(calls: PerThread<Calls>, goroutine: u64, site: u64) {
    calls.go.enters_runtime(goroutine, site);
}

/// After such a call.
#[analysis]
pub fn leave_runtime(calls: PerThread<Calls>, goroutine: u64) {
    calls.go.leaves_runtime(goroutine);
}

/// At the entry of a procedure of Go's allocator.
#[analysis]
pub fn enter_go(calls: PerThread<Calls>, proc: u32, goroutine: u64, size: u64, unknown: u64) {
    calls.go.allocates(proc, goroutine, size, unknown);
}

/// Before a procedure of Go's allocator returns a block, in memory that the collector has freed.
#[analysis]
pub fn leave_go(proc: u32, goroutine: u64, block: u64) {
    if let Some((site, size)) = allocations::go_allocated(proc, goroutine) {
        given(site as usize, block, size);
    }
}

/// A block has been allocated in memory that a collector has freed.
fn given(site: usize, block: u64, size: u64) {
    let end = block.saturating_add(size);
    if block != 0 && MAP.covers(block, end) {
        live::locked(|live| {
            // Blocks do not overlap, so the last one that begins before the end is the last one that may be hit.
            while let Some((at, old)) = live.blocks.range(..end).next_back() {
                let at = *at;
                if at.saturating_add(old.size) <= block {
                    break;
                }
                if let Some(old) = live.blocks.remove(&at) {
                    live.vanish(&old.ranges, at, old.size);
                }
            }
        });
    }
    add(block, size, with_wanted(Vec::new(), site, size));
}

/// Memory is freed: a block, or `size` bytes of a mapping.
fn gone(start: u64, size: Option<u64>) {
    let end = start.saturating_add(size.unwrap_or(1));
    if start == 0 || !MAP.covers(start, end) {
        return;
    }
    live::locked(|live| {
        let Some(size) = size else {
            if let Some(block) = live.blocks.remove(&start) {
                live.vanish(&block.ranges, start, block.size);
            }
            return;
        };
        let end = start.saturating_add(size.next_multiple_of(4096));
        let inside = |(at, block): (&u64, &Block)| {
            let (from, to) = ((*at).max(start), (at + block.size).min(end));
            (from < to).then_some((*at, from, to))
        };
        let hit: Vec<_> = live.blocks.iter().filter_map(inside).collect();
        for (at, from, to) in hit {
            let Some(block) = live.blocks.remove(&at) else {
                continue;
            };
            live.vanish(&block.ranges, from, to - from);
            for (from, to) in [(at, from), (to, at + block.size)] {
                if from < to {
                    let size = to - from;
                    live.blocks.insert(
                        from,
                        Block {
                            size,
                            ..block.clone()
                        },
                    );
                }
            }
        }
    });
}
