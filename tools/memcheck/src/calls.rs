//! What runs in place of the allocators' procedures.
//!
//! The usual way needs little of the program's stack, so it runs there; all reports are made on a stack of the runtime's.

use atom_tool::prelude::*;
use atom_tool::{ThreadData, Uninterrupted};

use crate::caches::Cache;
use crate::custom;
use crate::errors::{self, Wrong};
use crate::heap::{self, Wanted};
use crate::names::{Does, Does as D, Family, PROCEDURES};
use crate::slots::{self, Block, Known};
use crate::traces;

/// Size of a page in bytes.
const PAGE: u64 = 4096;
const ENOMEM: u64 = 12;
const EINVAL: u64 = 22;

/// Procedures that start the runtime of a sanitizer, with its name. Each has an allocator and memory at addresses of its own.
const SANITIZERS: [(&str, &str); 5] = [
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__lsan_init", "LeakSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
];

/// The sanitizer with which the program was built.
pub fn sanitizer(program: &Program<'_>) -> Option<&'static str> {
    let has = |start: &str| {
        let procs = program.procs_named(start);
        procs.into_iter().any(|proc| !proc.is_stub())
    };
    let found = SANITIZERS.into_iter().find(|(start, _)| has(start));
    found.map(|(_, name)| name)
}

/// Adds the calls in place of the allocators' procedures. Returns how many there are.
///
/// # Errors
/// If a procedure cannot be replaced.
pub fn replace(program: &Program<'_>, cache: ThreadData<Cache>) -> Result<usize> {
    let mut replaced = std::collections::HashSet::new();
    for (symbol, does) in PROCEDURES {
        let procs = program.procs_named(symbol).into_iter();
        for proc in procs.filter(|proc| !proc.is_stub()) {
            if !replaced.insert(proc.index()) {
                continue;
            }
            if !proc.can_be_replaced() {
                let name = proc.name();
                return Err(format!("`{name}` cannot be replaced: its code is not understood, or it is chosen when the program starts").into());
            }
            let number = u32::from(does as u8);
            let (a, b, c) = (Reg::Rdi, Reg::Rsi, Reg::Rdx);
            let args = (OutcomeValue, number, a, b, c, Reg::Rsp, Reg::Rbp, cache);
            match does {
                D::UsableSize => proc.replace(usable_size, (OutcomeValue, a)),
                D::Malloc | D::New => {
                    let args = (OutcomeValue, number, a, Reg::Rsp, Reg::Rbp, cache);
                    proc.replace(allocate, args);
                }
                D::Free | D::Delete | D::DeleteArray => {
                    let args = (OutcomeValue, number, a, Reg::Rsp, Reg::Rbp, cache);
                    proc.replace(free, args);
                }
                D::DeleteSized | D::DeleteArraySized => {
                    let args = (OutcomeValue, number, a, b, Reg::Rsp, Reg::Rbp, cache);
                    proc.replace(free_sized, args);
                }
                D::Realloc | D::ReallocArray => proc.replace(resize, args),
                _ => proc.replace(allocate_otherwise, args),
            }
        }
    }
    Ok(replaced.len())
}

/// Reports an error, where the usual way has a stack that is small.
#[cold]
#[inline(never)]
fn report(wrong: &Wrong) {
    Uninterrupted::run(|_| errors::report(wrong));
}

#[analysis]
fn usable_size(outcome: Outcome, address: u64) {
    let block = slots::find(address).filter(|block| block.is_live());
    outcome.returns(block.map_or(0, Block::size));
}

#[analysis]
fn allocate(outcome: Outcome, does: u32, size: u64, sp: u64, rbp: u64, cache: PerThread<Cache>) {
    let does = Does::from_number(does);
    let wanted = Wanted {
        size,
        align: 16,
        does,
        stack: traces::at_entry(&cache.walks, sp, rbp),
    };
    finish(outcome, &cache, wanted, false);
}

/// The ways to allocate that are rarer.
#[analysis]
fn allocate_otherwise(
    outcome: Outcome,
    does: u32,
    a: u64,
    b: u64,
    c: u64,
    sp: u64,
    rbp: u64,
    cache: PerThread<Cache>,
) {
    let does = Does::from_number(does);
    let (size, align) = match does {
        D::Calloc => (a.saturating_mul(b), 0),
        D::Aligned | D::Memalign => (b, a),
        D::PosixMemalign => (c, b),
        D::Valloc => (a, PAGE),
        D::Pvalloc => (a.checked_next_multiple_of(PAGE).unwrap_or(a), PAGE),
        D::NewAligned | D::NewArrayAligned => (a, b),
        _ => (a, 0),
    };
    let is_power = align.is_power_of_two() && align >= 8;
    if does == D::PosixMemalign && !is_power {
        return outcome.returns(EINVAL);
    }
    let wanted = Wanted {
        size,
        align: match align {
            0 => 16,
            align => align.checked_next_power_of_two().unwrap_or(16),
        },
        does,
        stack: traces::at_entry(&cache.walks, sp, rbp),
    };
    if does != D::PosixMemalign {
        return finish(outcome, &cache, wanted, does == D::Calloc);
    }
    check_size(wanted);
    match heap::allocate(&cache, wanted, false) {
        Some(at) => {
            // SAFETY: the program's own place for the result.
            unsafe { *std::ptr::with_exposed_provenance_mut(a as usize) = at };
            outcome.returns(0);
        }
        None => outcome.returns(ENOMEM),
    }
}

/// Allocates, and says so to the program.
#[inline(always)]
fn finish(outcome: Outcome, cache: &Cache, wanted: Wanted, is_zero: bool) {
    check_size(wanted);
    match heap::allocate(cache, wanted, is_zero) {
        Some(at) => outcome.returns(at),
        // The original calls `malloc`, which fails, and throws.
        None if wanted.does.family() != Family::Malloc => {}
        None => outcome.returns(0),
    }
}

/// Reports a size below zero.
#[inline]
fn check_size(wanted: Wanted) {
    let Wanted {
        size, does, stack, ..
    } = wanted;
    if (size as i64) < 0 && does != D::Calloc {
        report(&Wrong::Size { size, does, stack });
    }
}

/// `realloc`: the block is always another one afterwards.
#[analysis]
fn resize(
    outcome: Outcome,
    does: u32,
    old: u64,
    b: u64,
    c: u64,
    sp: u64,
    rbp: u64,
    cache: PerThread<Cache>,
) {
    let does = Does::from_number(does);
    let size = match does {
        D::ReallocArray => b.checked_mul(c),
        _ => Some(b),
    };
    let stack = traces::at_entry(&cache.walks, sp, rbp);
    let wanted = size.map(|size| Wanted {
        size,
        align: 16,
        does,
        stack,
    });
    let new = wanted.and_then(|wanted| reallocate(&cache, old, wanted));
    outcome.returns(new.unwrap_or(0));
}

fn reallocate(cache: &Cache, old: u64, wanted: Wanted) -> Option<u64> {
    check_size(wanted);
    let Wanted {
        size, stack, does, ..
    } = wanted;
    if old == 0 {
        return heap::allocate(cache, wanted, false);
    }
    let block = slots::find(old).filter(|block| block.start() == old && block.is_live());
    let Some(block) = block else {
        report(&Wrong::Free {
            address: old,
            does,
            stack,
        });
        return None;
    };
    if size == 0 {
        release(cache, old, D::Realloc, stack, None);
        return None;
    }
    if block.does().family() != Family::Malloc {
        mismatch(block.known(), does, stack);
    }
    let new = heap::allocate(cache, wanted, false)?;
    heap::copy(old, new, block.size().min(size));
    heap::free(cache, block, stack);
    Some(new)
}

#[analysis]
fn free(outcome: Outcome, does: u32, address: u64, sp: u64, rbp: u64, cache: PerThread<Cache>) {
    outcome.returns(0);
    if address != 0 {
        let stack = traces::at_entry(&cache.walks, sp, rbp);
        release(&cache, address, Does::from_number(does), stack, None);
    }
}

#[analysis]
fn free_sized(
    outcome: Outcome,
    does: u32,
    address: u64,
    size: u64,
    sp: u64,
    rbp: u64,
    cache: PerThread<Cache>,
) {
    outcome.returns(0);
    if address != 0 {
        let stack = traces::at_entry(&cache.walks, sp, rbp);
        release(&cache, address, Does::from_number(does), stack, Some(size));
    }
}

/// Frees a block, or reports why it cannot.
#[inline]
pub fn release(cache: &Cache, address: u64, does: Does, stack: u32, size: Option<u64>) {
    if custom::is_used()
        && does.family() != Family::Custom
        && let Some(known) = Uninterrupted::run(|_| custom::free_by_function(address, stack))
    {
        return mismatch(known, does, stack);
    }
    let block = slots::find(address).filter(|b| b.start() == address && b.is_live());
    let is_other = block.is_some_and(|block| block.does().family() != does.family());
    if let Some(block) = block {
        if is_other {
            mismatch(block.known(), does, stack);
        } else if let Some(size) = size
            && size != block.size()
        {
            report(&Wrong::DeletedSize {
                known: block.known(),
                size,
                does,
                stack,
            });
        }
        if heap::free(cache, block, stack) {
            return;
        }
    }
    report(&Wrong::Free {
        address,
        does,
        stack,
    });
}

/// Reports that a block is about to be freed by another family than allocated it.
#[cold]
#[inline(never)]
fn mismatch(known: Known, does: Does, stack: u32) {
    report(&Wrong::Mismatch { known, does, stack });
}
