//! The points at which the allocator is entered and left.

use std::collections::{HashMap, HashSet};

use atom_tool::notes::NoteBuffer;
use atom_tool::paths::CallPaths;
use atom_tool::prelude::*;
use atom_tool::{Allocator, ThreadData};

use crate::calls::{self, Open};

/// What a procedure does, and where its argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// One of the known procedures.
    Known(Allocator),
    /// An allocator of the user's, with the size in this place, from 1 on.
    Sized(u32),
    /// A procedure of the user's that frees the block that is its first argument.
    Frees,
}

/// The allocators of the user's, by their names.
pub type Named = HashMap<String, Role>;

/// Reads `--alloc NAME:PLACE` and `--free NAME`.
pub fn named(alloc: &[&str], free: &[&str]) -> Result<Named> {
    let mut named = Named::new();
    for word in alloc {
        let (name, place) = word.rsplit_once(':').unwrap_or((word, "1"));
        let place = place.parse().ok().filter(|place| (1..=3).contains(place));
        let Some(place) = place else {
            return Err(format!(
                "--alloc takes NAME:PLACE, where PLACE is 1, 2 or 3: the argument that has the size, not `{word}`"
            )
            .into());
        };
        named.insert(name.to_owned(), Role::Sized(place));
    }
    named.extend(free.iter().map(|name| ((*name).to_owned(), Role::Frees)));
    Ok(named)
}

/// The states that the calls need.
#[derive(Clone, Copy)]
pub struct States {
    pub open: ThreadData<Open>,
    pub buffer: ThreadData<NoteBuffer>,
}

fn role(proc: Proc<'_>, named: &Named) -> Option<Role> {
    let symbol = proc.symbol();
    let symbol = symbol.strip_suffix("@plt").unwrap_or(symbol);
    let own = named.get(symbol).or_else(|| named.get(proc.name()));
    let known = || {
        let known = Allocator::of(symbol)?;
        let is_mapping = matches!(
            known,
            Allocator::Mmap | Allocator::Munmap | Allocator::Mremap
        );
        (!is_mapping).then_some(Role::Known(known))
    };
    own.copied().or_else(known)
}

/// Finds the procedures that allocate and free.
pub fn find<'a>(program: &Program<'a>, named: &Named) -> Result<Vec<(Proc<'a>, Role)>> {
    let is_alone = program.objects().len() == 1;
    let procs = program.procs().filter(|proc| proc.first_block().is_some());
    // In a whole process stubs lead to procedures that are seen.
    let procs = procs.filter(|proc| is_alone || !proc.is_stub());
    let found: Vec<(Proc<'a>, Role)> = procs
        .filter_map(|proc| Some((proc, role(proc, named)?)))
        .collect();
    for name in named.keys() {
        let is_it = |(proc, _): &(Proc<'_>, Role)| proc.symbol() == name || proc.name() == name;
        if !found.iter().any(is_it) {
            return Err(format!("there is no procedure `{name}`").into());
        }
    }
    if found.is_empty() {
        let message = "the program calls no allocator by a name that is known; what libraries allocate is seen with \
                       `atom run` only, and the allocator of a static program without symbols only with --alloc";
        return Err(message.into());
    }
    Ok(found)
}

/// Adds the calls that follow the allocators.
pub fn add(
    program: &Program<'_>,
    paths: &mut CallPaths,
    states: States,
    allocators: &[(Proc<'_>, Role)],
) {
    for (proc, role) in allocators {
        enter(*proc, *role, paths, states);
    }
    leave(program, allocators, paths, states);
}

fn enter(proc: Proc<'_>, role: Role, paths: &mut CallPaths, states: States) {
    let States { open, buffer } = states;
    let number = paths.number(proc);
    let (sp, a, b, c) = (Reg::Rsp, Reg::Rdi, Reg::Rsi, Reg::Rdx);
    let rbp = Reg::Rbp;
    let args = (open, paths.state, buffer, number, sp, rbp, a, b, c);
    match role {
        Role::Frees | Role::Known(Allocator::Free) => {
            let args = (open, paths.state, buffer, number, sp, rbp, a);
            proc.add_call(Before, calls::free, args);
        }
        Role::Known(Allocator::Calloc) => proc.add_call(Before, calls::calloc, args),
        Role::Known(Allocator::Realloc) => proc.add_call(Before, calls::realloc, args),
        Role::Known(Allocator::ReallocArray) => proc.add_call(Before, calls::reallocarray, args),
        Role::Known(Allocator::PosixMemalign) => {
            proc.add_call(Before, calls::posix_memalign, args);
        }
        Role::Known(Allocator::Aligned) | Role::Sized(2) => {
            proc.add_call(Before, calls::second, args);
        }
        Role::Sized(3) => proc.add_call(Before, calls::third, args),
        _ => proc.add_call(Before, calls::malloc, args),
    }
    proc.add_call(Before, calls::late, (open, paths.state, buffer, sp, rbp));
}

/// Adds the calls where allocators return: at returns of their own, at returns of procedures that they jump to, and
/// behind calls of what leads to allocators that are not seen.
fn leave(
    program: &Program<'_>,
    allocators: &[(Proc<'_>, Role)],
    paths: &CallPaths,
    states: States,
) {
    let States { open, buffer } = states;
    let mut reached: HashSet<usize> = allocators.iter().map(|(proc, _)| proc.index()).collect();
    let mut new: Vec<(Proc<'_>, Role)> = allocators.to_vec();
    while let Some((proc, role)) = new.pop() {
        for block in proc.blocks().filter(|_| !proc.is_stub()) {
            let last = block.last_inst();
            if last.is_type(InstType::Ret) {
                let args = (open, paths.state, buffer, Reg::Rsp, Reg::Rax);
                last.add_call(Before, calls::leave, args);
                late(last, paths, states);
            } else if !last.is_type(InstType::Call) {
                let others = jump(program, last, role, paths, states);
                let others = others.into_iter().filter(|to| reached.insert(to.index()));
                new.extend(others.map(|to| (to, role)));
            }
        }
    }
    if program.objects().len() > 1 || !allocators.iter().any(|(proc, _)| proc.is_stub()) {
        return;
    }
    // The library returns behind the call of its stub, or of the procedure that jumped there.
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        let last = block.last_inst();
        let leads =
            |proc: Proc<'_>| reached.contains(&proc.index()) || ends_in_jump(proc, &reached);
        if last.is_type(InstType::Call) && last.called_proc().is_none_or(leads) {
            let args = (open, paths.state, buffer, Reg::Rsp, Reg::Rax);
            last.add_call(After, calls::after, args);
            let args = (open, paths.state, buffer, Reg::Rsp);
            last.add_call(After, calls::late_after, args);
        }
    }
}

/// Adds the call that does what [`calls::leave`] leaves.
fn late(last: Inst<'_>, paths: &CallPaths, states: States) {
    let States { open, buffer } = states;
    let args = (open, paths.state, buffer, Reg::Rsp, Reg::Rbp);
    last.add_call(Before, calls::late, args);
}

/// Takes the jump at the end of a block. Returns the procedures, or parts of procedures, to which it certainly leads; if
/// the place is not known, what was allocated is noted at the jump.
fn jump<'a>(
    program: &Program<'a>,
    last: Inst<'a>,
    role: Role,
    paths: &CallPaths,
    states: States,
) -> Vec<Proc<'a>> {
    let States { open, buffer } = states;
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
            None if role == Role::Known(Allocator::Calloc) => {
                let args = (open, paths.state, buffer, Reg::Rsp, Reg::Rdi);
                last.add_call(Before, calls::leave, args);
                late(last, paths, states);
            }
            None => last.add_call(Before, calls::lose, (open, Reg::Rsp)),
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
