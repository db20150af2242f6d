//! The points at which the allocator is entered and left.

use std::collections::HashSet;

use super::{Allocator, Role};
use crate::measure::landings::Landing;
use crate::navigation::handle::{Inst, Proc};
use crate::navigation::program::Program;
use crate::{Edge, EdgeKind, InstType, Reg, paths};

/// A point at which a tool follows the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point<'a> {
    /// The entry of an allocator: add a call before the procedure, with rsp and the first three arguments, which are in
    /// rdi, rsi and rdx.
    Enter(Proc<'a>, Role),
    /// An instruction before which an allocator's work is done, if rsp is what it was at the entry. The register has the
    /// result. Add a call before it.
    Leave(Inst<'a>, Reg),
    /// A call that may have led to an allocator of a library that is not seen: add a call after it. rsp is then higher than
    /// it was at the entry, by the size of a return address; rax has the result.
    Left(Inst<'a>),
    /// A jump out of an allocator to a place that is not known: what it allocates is not seen. Add a call before it.
    Lose(Inst<'a>),
    /// A place where control comes back by an exception or `longjmp`, maybe out of an allocator: `operator new` throws
    /// `bad_alloc`. Add a call there, with rsp: calls of allocators that were entered with a lower rsp have been left.
    Landed(Landing<'a>),
}

/// Gives all points for these allocators to `each`. Those of one instruction are in their order.
pub fn points<'a>(
    program: &Program<'a>,
    allocators: &[(Proc<'a>, Role)],
    each: &mut dyn FnMut(Point<'a>),
) {
    for (proc, role) in allocators {
        each(Point::Enter(*proc, *role));
    }
    for landing in landings(program, allocators) {
        each(Point::Landed(landing));
    }
    let mut reached: HashSet<usize> = allocators.iter().map(|(proc, _)| proc.index()).collect();
    let mut new: Vec<(Proc<'a>, Role)> = allocators.to_vec();
    while let Some((proc, role)) = new.pop() {
        for block in proc.blocks().filter(|_| !proc.is_stub()) {
            let last = block.last_inst();
            if last.is_type(InstType::Ret) {
                each(Point::Leave(last, Reg::Rax));
            } else if !last.is_type(InstType::Call) {
                let others = jump(program, last, role, each);
                let others = others.into_iter().filter(|to| reached.insert(to.index()));
                new.extend(others.map(|to| (to, role)));
            }
        }
    }
    if program.objects().len() > 1 || !allocators.iter().any(|(proc, _)| proc.is_stub()) {
        return;
    }
    // The library returns after the call of its stub, or of the procedure that jumped there.
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        let last = block.last_inst();
        let leads =
            |proc: Proc<'_>| reached.contains(&proc.index()) || ends_in_jump(proc, &reached);
        if last.is_type(InstType::Call) && last.called_proc().is_none_or(leads) {
            each(Point::Left(last));
        }
    }
}

/// The places where control comes back by an exception or `longjmp`, maybe out of one of these allocators.
pub fn landings<'a>(program: &Program<'a>, allocators: &[(Proc<'a>, Role)]) -> Vec<Landing<'a>> {
    let procs: Vec<Proc<'a>> = allocators.iter().map(|(proc, _)| *proc).collect();
    let leading = paths::leading_to(program, &procs);
    let callers = program.procs().filter(|p| leading.contains(&p.index()));
    callers.flat_map(|proc| proc.landings()).collect()
}

/// Takes the jump at the end of a block. Returns the procedures, or parts of procedures, to which it certainly leads.
fn jump<'a>(
    program: &Program<'a>,
    last: Inst<'a>,
    role: Role,
    each: &mut dyn FnMut(Point<'a>),
) -> Vec<Proc<'a>> {
    let mut found = Vec::new();
    for edge in last.block().successors() {
        let is_out = matches!(edge.kind, EdgeKind::Tail | EdgeKind::Unknown);
        let to = edge.address.and_then(|address| program.proc_at(address));
        let to = to.filter(|_| is_out).or_else(|| last.entered_proc()).or(to);
        let to = to.map(|to| {
            if to.is_stub() {
                to.stub_target().unwrap_or(to)
            } else {
                to
            }
        });
        match to.filter(|to| to.first_block().is_some() && !to.is_stub()) {
            Some(to) => found.push(to),
            None if !is_out || last.is_type(InstType::CondBr) => {}
            // It ends in `memset`, whose first argument is the block.
            None if role == Role::Known(Allocator::Calloc) => each(Point::Leave(last, Reg::Rdi)),
            None => each(Point::Lose(last)),
        }
    }
    found
}

/// True if a procedure may end in a jump to one of these, or to a place that is not known.
fn ends_in_jump(proc: Proc<'_>, to: &HashSet<usize>) -> bool {
    let out = |edge: &Edge<'_>| matches!(edge.kind, EdgeKind::Tail | EdgeKind::Unknown);
    proc.blocks().any(|block| {
        let last = block.last_inst();
        let is_out = block.successors().iter().any(out) && !last.is_type(InstType::Ret);
        is_out
            && last
                .entered_proc()
                .is_none_or(|proc| to.contains(&proc.index()))
    })
}
