//! The procedures in place of which the tool's routines run, and what these do.

use atom_tool::prelude::*;
use atom_tool::stacks;

use crate::errors::{self, Wrong};
use crate::heap::{self, Kind, State};

/// What a procedure of the allocator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Does {
    /// `(size)`
    Malloc,
    /// `(n, size)`
    Calloc,
    /// `(block, size)`
    Realloc,
    /// `(block, n, size)`
    ReallocArray,
    /// `(alignment, size)`
    Aligned,
    /// `(&block, alignment, size)`
    PosixMemalign,
    /// `(size)`, for whole pages
    Valloc,
    /// `(size)`, of whole pages
    Pvalloc,
    /// `(block)`
    UsableSize,
    /// `(size)`, fails with an exception or with null
    New,
    NewArray,
    /// `(size, alignment)`
    NewAligned,
    NewArrayAligned,
    /// `(block)`
    Free,
    Delete,
    DeleteArray,
}

use Does as D;

/// The procedures by their symbols.
const PROCEDURES: [(&str, Does); 45] = [
    ("malloc", D::Malloc),
    ("__libc_malloc", D::Malloc),
    ("calloc", D::Calloc),
    ("__libc_calloc", D::Calloc),
    ("realloc", D::Realloc),
    ("__libc_realloc", D::Realloc),
    ("reallocarray", D::ReallocArray),
    ("__libc_reallocarray", D::ReallocArray),
    ("aligned_alloc", D::Aligned),
    ("memalign", D::Aligned),
    ("__libc_memalign", D::Aligned),
    ("posix_memalign", D::PosixMemalign),
    ("__posix_memalign", D::PosixMemalign),
    ("valloc", D::Valloc),
    ("__libc_valloc", D::Valloc),
    ("pvalloc", D::Pvalloc),
    ("__libc_pvalloc", D::Pvalloc),
    ("malloc_usable_size", D::UsableSize),
    ("__malloc_usable_size", D::UsableSize),
    ("free", D::Free),
    ("cfree", D::Free),
    ("__libc_free", D::Free),
    ("__free", D::Free),
    ("_Znwm", D::New),
    ("_ZnwmRKSt9nothrow_t", D::New),
    ("_Znam", D::NewArray),
    ("_ZnamRKSt9nothrow_t", D::NewArray),
    ("_ZnwmSt11align_val_t", D::NewAligned),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", D::NewAligned),
    ("_ZnamSt11align_val_t", D::NewArrayAligned),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", D::NewArrayAligned),
    ("_ZdlPv", D::Delete),
    ("_ZdlPvm", D::Delete),
    ("_ZdlPvSt11align_val_t", D::Delete),
    ("_ZdlPvmSt11align_val_t", D::Delete),
    ("_ZdlPvRKSt9nothrow_t", D::Delete),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", D::Delete),
    ("_ZdaPv", D::DeleteArray),
    ("_ZdaPvm", D::DeleteArray),
    ("_ZdaPvSt11align_val_t", D::DeleteArray),
    ("_ZdaPvmSt11align_val_t", D::DeleteArray),
    ("_ZdaPvRKSt9nothrow_t", D::DeleteArray),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", D::DeleteArray),
    ("__calloc", D::Calloc),
    ("__realloc", D::Realloc),
];

/// Size of a page in bytes.
const PAGE: u64 = 4096;
const ENOMEM: u64 = 12;
const EINVAL: u64 = 22;

/// Adds the calls in place of the allocators' procedures. Returns how many there are.
///
/// # Errors
/// If a procedure cannot be replaced.
pub fn replace(program: &Program<'_>) -> Result<usize> {
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
            let (a, b, c) = (Reg::Rdi, Reg::Rsi, Reg::Rdx);
            let args = (OutcomeValue, does as u32, a, b, c, Reg::Rsp, Reg::Rbp);
            match does {
                D::Free | D::Delete | D::DeleteArray => {
                    let args = (OutcomeValue, does as u32, a, Reg::Rsp, Reg::Rbp);
                    proc.replace(free, args);
                }
                _ => proc.replace(allocate, args),
            }
        }
    }
    Ok(replaced.len())
}

/// The call stack at a procedure's entry, as a number.
fn stack(sp: u64, rbp: u64) -> u32 {
    let mut calls = [0; errors::DEPTH];
    let count = stacks::at_entry(sp, rbp, &mut calls);
    errors::intern(&calls[..count])
}

#[analysis]
fn allocate(outcome: Outcome, does: u32, a: u64, b: u64, c: u64, sp: u64, rbp: u64) {
    let is = |other: Does| does == other as u32;
    if is(D::UsableSize) {
        let size = heap::with(|heap| heap.find(a).map(|block| block.size));
        return outcome.returns(size.unwrap_or(0));
    }
    let stack = stack(sp, rbp);
    if is(D::Realloc) || is(D::ReallocArray) {
        let size = if is(D::Realloc) {
            Some(b)
        } else {
            b.checked_mul(c)
        };
        return outcome.returns(size.map_or(0, |size| reallocate(a, size, stack)));
    }
    let (kind, size, align) = match does {
        _ if is(D::Calloc) => (Kind::Malloc, a.saturating_mul(b), 16),
        _ if is(D::Aligned) => (Kind::Malloc, b, a),
        _ if is(D::PosixMemalign) => (Kind::Malloc, c, b),
        _ if is(D::Valloc) => (Kind::Malloc, a, PAGE),
        _ if is(D::Pvalloc) => (
            Kind::Malloc,
            a.checked_next_multiple_of(PAGE).unwrap_or(a),
            PAGE,
        ),
        _ if is(D::New) => (Kind::New, a, 16),
        _ if is(D::NewArray) => (Kind::NewArray, a, 16),
        _ if is(D::NewAligned) => (Kind::New, a, b),
        _ if is(D::NewArrayAligned) => (Kind::NewArray, a, b),
        _ => (Kind::Malloc, a, 16),
    };
    if is(D::PosixMemalign) && (!align.is_power_of_two() || align < 8) {
        return outcome.returns(EINVAL);
    }
    if (size as i64) < 0 && !is(D::Calloc) {
        errors::report(&Wrong::Size { size, kind, stack });
    }
    let align = align.max(1).checked_next_power_of_two().unwrap_or(16);
    let at = heap::with(|heap| heap.allocate(size, align, (kind, stack), is(D::Calloc)));
    match at {
        Some(at) if is(D::PosixMemalign) => {
            // SAFETY: the program's own place for the result.
            unsafe { *std::ptr::with_exposed_provenance_mut(a as usize) = at };
            outcome.returns(0);
        }
        None if is(D::PosixMemalign) => outcome.returns(ENOMEM),
        Some(at) => outcome.returns(at),
        // The original calls `malloc`, which fails, and throws.
        None if kind != Kind::Malloc => {}
        None => outcome.returns(0),
    }
}

/// `realloc`: the block is always another one afterwards.
fn reallocate(old: u64, size: u64, stack: u32) -> u64 {
    let kind = Kind::Malloc;
    if (size as i64) < 0 {
        errors::report(&Wrong::Size { size, kind, stack });
        return 0;
    }
    if old == 0 {
        let at = heap::with(|heap| heap.allocate(size, 16, (kind, stack), false));
        return at.unwrap_or(0);
    }
    let is_live = heap::with(|heap| {
        let block = heap.find(old);
        block.is_some_and(|block| block.start == old && block.state == State::Live)
    });
    if !is_live {
        errors::report(&Wrong::Free {
            address: old,
            stack,
        });
        return 0;
    }
    if size == 0 {
        release(old, Kind::Malloc, stack);
        return 0;
    }
    heap::with(|heap| {
        let new = heap.allocate(size, 16, (kind, stack), false)?;
        let block = heap.find(old)?;
        heap::copy(old, new, block.size.min(size));
        heap.free(block, stack);
        Some(new)
    })
    .unwrap_or(0)
}

#[analysis]
fn free(outcome: Outcome, does: u32, address: u64, sp: u64, rbp: u64) {
    outcome.returns(0);
    if address != 0 {
        let kind = match does {
            _ if does == D::Delete as u32 => Kind::New,
            _ if does == D::DeleteArray as u32 => Kind::NewArray,
            _ => Kind::Malloc,
        };
        release(address, kind, stack(sp, rbp));
    }
}

/// Frees a block, or reports why it cannot.
fn release(address: u64, kind: Kind, stack: u32) {
    let wrong = heap::with(|heap| {
        let block = heap.find(address);
        let block = block.filter(|b| b.start == address && b.state == State::Live);
        let Some(block) = block else {
            return Some(Wrong::Free { address, stack });
        };
        let is_other = block.kind != kind;
        heap.free(block, stack);
        is_other.then_some(Wrong::Mismatch { address, stack })
    });
    if let Some(wrong) = wrong {
        errors::report(&wrong);
    }
}
