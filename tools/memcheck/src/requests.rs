//! Client requests: what a program tells Valgrind by instructions that do nothing.
//!
//! Four rotations of rdi, which turn it once around, and `xchg rbx, rbx` are a request. Its number and five arguments are six
//! words at the address in rax; the answer is in rdx, where the program has put what it is without Valgrind.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use atom_tool::prelude::*;
use atom_tool::stacks::FrameRule;
use atom_tool::{OutcomeFor, ThreadData, stack_around};

use crate::caches::Cache;
use crate::custom::{self, Refused};
use crate::errors::{self, SITE, Wrong};
use crate::leaks::{self, Changes};
use crate::names::Does;
use crate::{calls, muted, shadow, slots, traces};

/// The instructions of a request.
const INSTRUCTIONS: [&[u8]; 5] = [
    &[0x48, 0xc1, 0xc7, 3],
    &[0x48, 0xc1, 0xc7, 13],
    &[0x48, 0xc1, 0xc7, 61],
    &[0x48, 0xc1, 0xc7, 51],
    &[0x48, 0x87, 0xdb],
];

/// Looks for requests in the instructions of a block, one after the other.
#[derive(Default)]
pub struct Matcher {
    /// Number of a request's instructions that came last.
    seen: usize,
}

impl Matcher {
    /// True if an instruction is the last one of a request.
    pub fn ends(&mut self, inst: Inst<'_>) -> bool {
        let bytes = inst.bytes();
        if bytes != INSTRUCTIONS[self.seen] {
            self.seen = usize::from(bytes == INSTRUCTIONS[0]);
            return false;
        }
        self.seen = (self.seen + 1) % INSTRUCTIONS.len();
        self.seen == 0
    }
}

/// Adds what the program's other objects need if there are requests.
pub fn add(program: &Program<'_>) {
    let procs = program.procs_named("munmap").into_iter();
    for proc in procs.filter(|proc| !proc.is_stub() && !proc.is_opaque()) {
        proc.add_call(Before, unmap, (Reg::Rdi, Reg::Rsi));
    }
}

#[analysis]
fn unmap(start: u64, size: u64) {
    custom::unmapped(start, size);
}

/// Adds the call of a request. `is_told` says whether the program is told that it runs under Valgrind.
pub fn add_call(
    inst: Inst<'_>,
    number: u32,
    rule: FrameRule,
    cache: ThreadData<Cache>,
    is_told: bool,
) {
    leaks::add_note(inst);
    let answer = OutcomeFor(Reg::Rdx);
    let is_told = u32::from(is_told);
    let args = (
        answer,
        Reg::Rax,
        number,
        &rule,
        Reg::Rsp,
        Reg::Rbp,
        cache,
        is_told,
    );
    inst.add_call(Before, requested, args);
}

/// Numbers of requests that all tools of Valgrind have.
mod number {
    pub const RUNNING_ON_VALGRIND: u64 = 0x1001;
    pub const COUNT_ERRORS: u64 = 0x1201;
    pub const MALLOCLIKE_BLOCK: u64 = 0x1301;
    pub const FREELIKE_BLOCK: u64 = 0x1302;
    pub const CREATE_MEMPOOL: u64 = 0x1303;
    pub const DESTROY_MEMPOOL: u64 = 0x1304;
    pub const MEMPOOL_ALLOC: u64 = 0x1305;
    pub const MEMPOOL_FREE: u64 = 0x1306;
    pub const MEMPOOL_TRIM: u64 = 0x1307;
    pub const MOVE_MEMPOOL: u64 = 0x1308;
    pub const MEMPOOL_CHANGE: u64 = 0x1309;
    pub const MEMPOOL_EXISTS: u64 = 0x130a;
    pub const RESIZEINPLACE_BLOCK: u64 = 0x130b;
    pub const CHANGE_ERR_DISABLEMENT: u64 = 0x1801;
    /// Of Memcheck: `MC` and a number.
    pub const MAKE_MEM_NOACCESS: u64 = 0x4d43_0000;
    pub const MAKE_MEM_UNDEFINED: u64 = 0x4d43_0001;
    pub const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;
    pub const CHECK_MEM_IS_ADDRESSABLE: u64 = 0x4d43_0004;
    pub const CHECK_MEM_IS_DEFINED: u64 = 0x4d43_0005;
    pub const DO_LEAK_CHECK: u64 = 0x4d43_0006;
    pub const COUNT_LEAKS: u64 = 0x4d43_0007;
    pub const COUNT_LEAK_BLOCKS: u64 = 0x4d43_000c;
    pub const MAKE_MEM_DEFINED_IF_ADDRESSABLE: u64 = 0x4d43_000b;
}

use number as N;

#[analysis(uninterrupted)]
fn requested(
    answer: Outcome,
    words: u64,
    site: u32,
    rule: Record<FrameRule>,
    sp: u64,
    rbp: u64,
    cache: PerThread<Cache>,
    is_told: u32,
) {
    // SAFETY: the program has put the six words there.
    let [request, a, b, c, d, _] =
        unsafe { with_exposed_provenance::<[u64; 6]>(words as usize).read_unaligned() };
    match request {
        N::RUNNING_ON_VALGRIND if is_told != 0 => return answer.returns(1),
        N::CHANGE_ERR_DISABLEMENT => return muted::mute(a),
        N::COUNT_ERRORS => return answer.returns(errors::sum().errors),
        N::MEMPOOL_EXISTS => return answer.returns(custom::has_pool(a).into()),
        N::DO_LEAK_CHECK => {
            let told = match b {
                1 => Changes::Increased,
                2 => Changes::Any,
                3 => Changes::New,
                _ => Changes::All,
            };
            return leaks::look(a != 0, told);
        }
        N::COUNT_LEAKS | N::COUNT_LEAK_BLOCKS => {
            let counts = leaks::counts(request == N::COUNT_LEAK_BLOCKS);
            for (place, count) in [a, b, c, d].into_iter().zip(counts) {
                // SAFETY: the macro has variables of the program there.
                unsafe { *with_exposed_provenance_mut::<u64>(place as usize) = count };
            }
            return;
        }
        N::MAKE_MEM_NOACCESS
        | N::MAKE_MEM_UNDEFINED
        | N::MAKE_MEM_DEFINED
        | N::MAKE_MEM_DEFINED_IF_ADDRESSABLE => answer.returns(u64::MAX),
        N::CHECK_MEM_IS_ADDRESSABLE | N::CHECK_MEM_IS_DEFINED => {
            let bad = shadow::first_closed(a, b);
            if let Some(address) = bad {
                let stack = traces::at_inst(Some(site | SITE), *rule.get(), sp, rbp);
                errors::report(&Wrong::Check { address, stack });
            }
            return answer.returns(bad.unwrap_or(0));
        }
        _ => {}
    }
    let is_known = (N::MALLOCLIKE_BLOCK..=N::RESIZEINPLACE_BLOCK).contains(&request)
        || (N::MAKE_MEM_NOACCESS..=N::MAKE_MEM_DEFINED).contains(&request);
    if !is_known || a == 0 {
        return;
    }
    let stack = traces::at_inst(Some(site | SITE), *rule.get(), sp, rbp);
    let closed = match request {
        N::MALLOCLIKE_BLOCK => [a.saturating_sub(c), a.saturating_add(b).saturating_add(c)],
        N::RESIZEINPLACE_BLOCK => [a, a.saturating_add(b.max(c)).saturating_add(d)],
        N::MEMPOOL_ALLOC => [
            b.saturating_sub(NEAR),
            b.saturating_add(c).saturating_add(NEAR),
        ],
        N::MAKE_MEM_NOACCESS => [a, a.saturating_add(b)],
        _ => [0, 0],
    };
    if closed[1] > sp && !slots::has(closed[1]) && closed[0] < stack_end(&cache, sp) {
        custom::note_on_stack(closed, stack);
    }
    match act(request, [a, b, c, d], stack) {
        Err(Refused::Block) if request == N::FREELIKE_BLOCK => {
            calls::release(&cache, a, Does::Request, stack, None);
        }
        Err(Refused::Block) => {
            let is_in_pool = [N::MEMPOOL_FREE, N::MEMPOOL_CHANGE].contains(&request);
            errors::report(&Wrong::Free {
                address: if is_in_pool { b } else { a },
                does: Does::Request,
                stack,
            });
        }
        Err(Refused::Pool) => errors::report(&Wrong::Pool { address: a, stack }),
        Ok(()) => {}
    }
}

/// Does what a request is for, except in the heap.
fn act(request: u64, [a, b, c, d]: [u64; 4], stack: u32) -> Result<(), Refused> {
    match request {
        N::MALLOCLIKE_BLOCK => custom::allocate([a, b], c, stack),
        N::RESIZEINPLACE_BLOCK => custom::resize(a, b, c, d)?,
        N::FREELIKE_BLOCK => custom::free(a, b, stack)?,
        N::CREATE_MEMPOOL => custom::create_pool(a, b, d),
        N::DESTROY_MEMPOOL => custom::destroy_pool(a)?,
        N::MEMPOOL_ALLOC => custom::allocate_in_pool(a, [b, c], stack)?,
        N::MEMPOOL_FREE => custom::free_in_pool(a, b, stack)?,
        N::MEMPOOL_TRIM => custom::trim_pool(a, [b, c], stack)?,
        N::MOVE_MEMPOOL => custom::move_pool(a, b)?,
        N::MEMPOOL_CHANGE => custom::change_in_pool(a, b, [c, d])?,
        N::MAKE_MEM_NOACCESS => custom::change([a, b], false),
        N::MAKE_MEM_UNDEFINED | N::MAKE_MEM_DEFINED => custom::change([a, b], true),
        _ => {}
    }
    Ok(())
}

/// Bytes beside a chunk of a pool on the stack that may be closed with it.
const NEAR: u64 = 256;

/// The end of the stack that a thread is on.
fn stack_end(cache: &Cache, sp: u64) -> u64 {
    let [start, end] = [cache.stack[0].get(), cache.stack[1].get()];
    if (start..end).contains(&sp) {
        return end;
    }
    let (start, end) = stack_around(sp).unwrap_or_default();
    cache.stack[0].set(start);
    cache.stack[1].set(end);
    end
}
