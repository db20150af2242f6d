//! Blocks of the program's own allocators, which it tells by client requests.
//!
//! They may be at any address, also inside of a block of the heap, so they are kept by their addresses. Memory of pools has
//! chunks; it is closed by its shadow, as redzones and freed blocks are.

use std::cell::UnsafeCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use atom_tool::SpinLock;

use crate::names::Does;
use crate::slots::{self, Block, FREED, Known};
use crate::{shadow, traces};

/// Flags of a pool: its chunks have blocks inside, which are freed with the chunk.
const AUTO_FREE: u64 = 1;
/// Number of freed blocks that are remembered.
const REMEMBERED: usize = 4096;
/// Bytes beside a block that are told as near it.
const NEAR: u64 = 16;
/// The mark of a block that has others inside and takes no part in the search for leaks.
const OUTER: u8 = 0xff;

/// A block, and the redzone on each side.
#[derive(Clone, Copy)]
struct Custom {
    block: &'static Block,
    redzone: u64,
}

impl Custom {
    fn end(self) -> u64 {
        self.block.start().saturating_add(self.block.size())
    }

    /// True for an address in the block, or at most `more` bytes beside it.
    fn is_near(self, address: u64, more: u64) -> bool {
        let start = self.block.start().saturating_sub(more);
        (start..self.end().saturating_add(more)).contains(&address)
    }

    /// Makes the block addressable, and its redzones not.
    fn open(self) {
        let (start, end) = (self.block.start(), self.end());
        shadow::change(start.saturating_sub(self.redzone), start, shadow::REDZONE);
        shadow::change(start, end, 0);
        shadow::change(end, end.saturating_add(self.redzone), shadow::REDZONE);
    }

    /// Makes the block with its redzones not addressable.
    fn close(self, redzone: u64) {
        let start = self.block.start().saturating_sub(redzone);
        shadow::change(start, self.end().saturating_add(redzone), shadow::FREED);
    }
}

/// A pool of chunks.
struct Pool {
    redzone: u64,
    flags: u64,
    chunks: BTreeMap<u64, Custom>,
}

/// A range on a stack of which the shadow was changed, and the stack of the request.
struct OnStack {
    range: [u64; 2],
    stack: u32,
}

struct Registry {
    blocks: BTreeMap<u64, Custom>,
    pools: BTreeMap<u64, Pool>,
    /// Blocks that were freed, in this order, and memory for others.
    freed: VecDeque<Custom>,
    spare: Vec<&'static Block>,
    on_stacks: Vec<OnStack>,
}

struct Locked {
    lock: SpinLock,
    registry: UnsafeCell<Registry>,
}
// SAFETY: the registry is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static REGISTRY: Locked = Locked {
    lock: SpinLock::new(),
    registry: UnsafeCell::new(Registry {
        blocks: BTreeMap::new(),
        pools: BTreeMap::new(),
        freed: VecDeque::new(),
        spare: Vec::new(),
        on_stacks: Vec::new(),
    }),
};
static IS_USED: AtomicBool = AtomicBool::new(false);
/// Blocks that take part in the search for leaks, by their starts. Each search has a list of its own, which stays.
static LEAKS: AtomicPtr<Vec<&'static Block>> = AtomicPtr::new(null_mut());

/// What a request cannot do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such block.
    Block,
    /// There is no such pool.
    Pool,
}

type Answer = Result<(), Refused>;

/// Does something with the registry. Signals wait until a routine has ended, so its holder is never interrupted.
fn with<R>(work: impl FnOnce(&mut Registry) -> R) -> R {
    REGISTRY.lock.lock();
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *REGISTRY.registry.get() });
    REGISTRY.lock.unlock();
    result
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    REGISTRY.lock.unlock();
}

/// True if a request has changed what may be accessed.
#[inline]
pub fn is_used() -> bool {
    IS_USED.load(Relaxed)
}

/// True for an address that may be one of a block, or beside one.
#[inline]
pub fn may_have(address: u64) -> bool {
    slots::has(address) || is_used() && address < shadow::END
}

impl Registry {
    fn new_block(&mut self, range: [u64; 2], does: Does, stack: u32) -> &'static Block {
        let spare = self.spare.pop();
        let block = spare.unwrap_or_else(|| Box::leak(Box::default()));
        block.begin(range[0], range[1], does, stack);
        block
    }

    /// What was a live block is freed.
    fn put(&mut self, custom: Custom, redzone: u64, stack: u32) {
        custom.block.freed.store(stack, Relaxed);
        custom.block.state.store(FREED, Relaxed);
        custom.close(redzone);
        self.freed.push_back(custom);
        if self.freed.len() > REMEMBERED {
            let first = self.freed.pop_front();
            self.spare.extend(first.map(|first| first.block));
        }
    }

    fn pool(&mut self, pool: u64) -> Result<&mut Pool, Refused> {
        self.pools.get_mut(&pool).ok_or(Refused::Pool)
    }

    fn live(&self) -> impl Iterator<Item = Custom> {
        let chunks = self.pools.values().flat_map(|pool| pool.chunks.values());
        chunks.chain(self.blocks.values()).copied()
    }

    /// The smallest live block that fits, which is the innermost.
    fn smallest(&self, fits: impl Fn(Custom) -> bool) -> Option<Custom> {
        let live = self.live().filter(|custom| fits(*custom));
        live.min_by_key(|custom| custom.block.size())
    }
}

/// The program has a block of its own allocator.
pub fn allocate(range: [u64; 2], redzone: u64, stack: u32) {
    IS_USED.store(true, Relaxed);
    with(|registry| {
        let block = registry.new_block(range, Does::Request, stack);
        let custom = Custom { block, redzone };
        let old = registry.blocks.insert(range[0], custom);
        registry.spare.extend(old.map(|old| old.block));
        custom.open();
    });
}

/// A block has another size now.
pub fn resize(start: u64, old: u64, new: u64, redzone: u64) -> Answer {
    with(|registry| {
        let custom = registry.blocks.get_mut(&start).ok_or(Refused::Block)?;
        if custom.block.size() != old || new == 0 {
            return Err(Refused::Block);
        }
        custom.block.size.store(new, Relaxed);
        let (from, to) = (start.saturating_add(new), start.saturating_add(old));
        shadow::change(to, from, 0);
        shadow::change(from, from.max(to).saturating_add(redzone), shadow::REDZONE);
        Ok(())
    })
}

/// A block is free.
pub fn free(start: u64, redzone: u64, stack: u32) -> Answer {
    with(|registry| {
        let custom = registry.blocks.remove(&start).ok_or(Refused::Block)?;
        registry.put(custom, redzone, stack);
        Ok(())
    })
}

/// A function of the heap is to free a block of another allocator: returns what is known of it, before it is free.
#[cold]
pub fn free_by_function(start: u64, stack: u32) -> Option<Known> {
    with(|registry| {
        let custom = registry.blocks.remove(&start)?;
        let known = custom.block.known();
        registry.put(custom, custom.redzone, stack);
        Some(known)
    })
}

/// There is a pool at an address.
pub fn create_pool(at: u64, redzone: u64, flags: u64) {
    IS_USED.store(true, Relaxed);
    let pool = Pool {
        redzone,
        flags,
        chunks: BTreeMap::new(),
    };
    with(|registry| registry.pools.insert(at, pool));
}

/// True if there is a pool at an address.
pub fn has_pool(at: u64) -> bool {
    with(|registry| registry.pools.contains_key(&at))
}

/// The pool is no more, nor are its chunks.
pub fn destroy_pool(at: u64) -> Answer {
    with(|registry| {
        let pool = registry.pools.remove(&at).ok_or(Refused::Pool)?;
        for custom in pool.chunks.values() {
            custom.close(pool.redzone);
            registry.spare.push(custom.block);
        }
        Ok(())
    })
}

/// A pool has another address.
pub fn move_pool(from: u64, to: u64) -> Answer {
    with(|registry| {
        let pool = registry.pools.remove(&from).ok_or(Refused::Pool)?;
        registry.pools.insert(to, pool);
        Ok(())
    })
}

/// A pool has one more chunk.
pub fn allocate_in_pool(at: u64, range: [u64; 2], stack: u32) -> Answer {
    with(|registry| {
        let redzone = registry.pool(at)?.redzone;
        let block = registry.new_block(range, Does::PoolRequest, stack);
        let custom = Custom { block, redzone };
        let old = registry.pool(at)?.chunks.insert(range[0], custom);
        registry.spare.extend(old.map(|old| old.block));
        custom.open();
        Ok(())
    })
}

/// A chunk of a pool is free, with the blocks inside if the pool has this flag.
pub fn free_in_pool(at: u64, start: u64, stack: u32) -> Answer {
    with(|registry| {
        let pool = registry.pool(at)?;
        let (redzone, flags) = (pool.redzone, pool.flags);
        let chunk = pool.chunks.remove(&start).ok_or(Refused::Block)?;
        if flags & AUTO_FREE != 0 {
            let inside = registry.blocks.range(start..chunk.end().max(start));
            let inside: Vec<_> = inside
                .filter(|(_, custom)| custom.end() <= chunk.end())
                .map(|(at, _)| *at)
                .collect();
            for start in inside {
                if let Some(custom) = registry.blocks.remove(&start) {
                    registry.put(custom, redzone, stack);
                }
            }
        }
        registry.put(chunk, redzone, stack);
        Ok(())
    })
}

/// Of a pool only what is in a range is left.
pub fn trim_pool(at: u64, [start, size]: [u64; 2], stack: u32) -> Answer {
    let end = start.saturating_add(size);
    with(|registry| {
        let pool = registry.pool(at)?;
        let redzone = pool.redzone;
        for (_, custom) in std::mem::take(&mut pool.chunks) {
            let (old, old_end) = (custom.block.start(), custom.end());
            let (new, new_end) = (old.max(start), old_end.min(end));
            if new >= new_end {
                registry.put(custom, redzone, stack);
                continue;
            }
            shadow::change(old, new, shadow::FREED);
            shadow::change(new_end, old_end, shadow::FREED);
            custom.block.start.store(new, Relaxed);
            custom.block.size.store(new_end - new, Relaxed);
            registry.pool(at)?.chunks.insert(new, custom);
        }
        Ok(())
    })
}

/// A chunk of a pool is at another address.
pub fn change_in_pool(at: u64, old: u64, [start, size]: [u64; 2]) -> Answer {
    with(|registry| {
        let pool = registry.pool(at)?;
        let custom = pool.chunks.remove(&old).ok_or(Refused::Block)?;
        custom.block.start.store(start, Relaxed);
        custom.block.size.store(size, Relaxed);
        pool.chunks.insert(start, custom);
        Ok(())
    })
}

/// A range may be accessed now, or may not.
pub fn change([start, size]: [u64; 2], is_open: bool) {
    let end = start.saturating_add(size);
    if !is_open {
        IS_USED.store(true, Relaxed);
        shadow::change(start, end, shadow::REDZONE);
    } else if may_have(start) {
        shadow::change(start, end, 0);
    }
}

/// A range is not mapped any more: what is mapped there later may be accessed.
pub fn unmapped(start: u64, size: u64) {
    if is_used() && !slots::has(start) {
        shadow::change(start, start.saturating_add(size), 0);
    }
}

/// A request of a procedure with this stack has changed the shadow of a range on the stack.
pub fn note_on_stack(range: [u64; 2], stack: u32) {
    with(|registry| {
        let is_inside = |old: &OnStack| range[0] <= old.range[0] && old.range[1] <= range[1];
        registry.on_stacks.retain(|old| !is_inside(old));
        registry.on_stacks.push(OnStack { range, stack });
    });
}

/// True if an address on the stack was closed by a procedure that has ended, as the stack of the error says. Its range is then
/// opened.
pub fn is_stale(address: u64, stack: u32) -> bool {
    let now = traces::calls(stack).unwrap_or_default();
    with(|registry| {
        let has_ended = |request: u32| {
            // The first call is the request itself.
            let then = traces::calls(request).unwrap_or_default();
            traces::is_whole(&then) && !now.ends_with(then.get(1..).unwrap_or_default())
        };
        let (mut there, mut ended) = (0, Vec::new());
        for (place, on_stack) in registry.on_stacks.iter().enumerate() {
            if (on_stack.range[0]..on_stack.range[1]).contains(&address) {
                there += 1;
                ended.extend(has_ended(on_stack.stack).then_some(place));
            }
        }
        if there == 0 || ended.len() < there {
            return false;
        }
        for place in ended.into_iter().rev() {
            let [start, end] = registry.on_stacks.swap_remove(place).range;
            shadow::change(start, end, 0);
        }
        true
    })
}

/// The block that an address is in, or beside.
pub fn nearest(address: u64) -> Option<Known> {
    if !is_used() {
        return None;
    }
    with(|registry| {
        let beside = |custom: Custom| match custom.block.does() {
            Does::PoolRequest => custom.redzone,
            _ => custom.redzone.max(NEAR),
        };
        let freed = |more: u64| {
            let freed = registry.freed.iter().rev().copied();
            freed.into_iter().find(|old| old.is_near(address, more))
        };
        let live = registry.smallest(|custom| custom.is_near(address, 0));
        let near = registry.smallest(|custom| custom.is_near(address, beside(custom)));
        // Memory of a freed block may be another one's now.
        let is_new = |old: &Custom| near.is_some_and(|near| old.is_near(near.block.start(), 0));
        live.or_else(|| freed(0).filter(|old| !is_new(old)))
            .or(near)
            .map(|custom| custom.block.known())
    })
}

/// Before leaks are looked for: no block has a mark, and blocks that have others inside take no part.
pub fn begin_leaks() {
    slots::live().for_each(|block| block.mark.store(0, Relaxed));
    if !is_used() {
        return;
    }
    let mut live: Vec<_> = with(|registry| registry.live().collect());
    live.sort_unstable_by_key(|custom| (custom.block.start(), Reverse(custom.block.size())));
    for custom in &live {
        for address in [custom.block.start(), custom.end().saturating_sub(1)] {
            let outer = slots::find(address).filter(|outer| {
                outer.is_live() && address.wrapping_sub(outer.start()) < outer.size()
            });
            if let Some(outer) = outer {
                outer.mark.store(OUTER, Relaxed);
            }
        }
    }
    let starts: Vec<_> = live.iter().map(|custom| custom.block.start()).collect();
    let next = starts.into_iter().skip(1).chain([u64::MAX]);
    let inner = live.into_iter().zip(next);
    let inner = inner.filter(|(custom, next)| custom.end() <= *next);
    let blocks: Vec<_> = inner.map(|(custom, _)| custom.block).collect();
    blocks.iter().for_each(|block| block.mark.store(0, Relaxed));
    LEAKS.store(Box::into_raw(Box::new(blocks)), Release);
}

fn leaks() -> &'static [&'static Block] {
    // SAFETY: null, or a list that stays.
    unsafe { LEAKS.load(Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// All live blocks that take part in the search for leaks.
pub fn live() -> impl Iterator<Item = &'static Block> {
    let custom = leaks().iter().copied();
    slots::live().filter(|block| !is_outer(block)).chain(custom)
}

/// The block at an address, or near it, that takes part in the search for leaks.
#[inline]
pub fn find(address: u64) -> Option<&'static Block> {
    let custom = leaks();
    let after = custom.partition_point(|block| block.start() <= address);
    let block = after.checked_sub(1).and_then(|place| custom.get(place));
    let is_in = |block: &Block| address - block.start() < block.size().max(1);
    if let Some(block) = block.filter(|block| is_in(block)) {
        return Some(block);
    }
    slots::find(address).filter(|block| !is_outer(block))
}

fn is_outer(block: &Block) -> bool {
    block.mark.load(Relaxed) == OUTER
}
