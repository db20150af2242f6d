//! The points at which the allocator is entered and left.

use atom_tool::allocations::{self, Point, Role};
use atom_tool::notes::NoteBuffer;
use atom_tool::paths::CallPaths;
use atom_tool::prelude::*;
use atom_tool::{Allocator, ThreadData};

use crate::calls::{self, Open};

/// The states that the calls need.
#[derive(Clone, Copy)]
pub struct States {
    pub open: ThreadData<Open>,
    pub buffer: ThreadData<NoteBuffer>,
}

/// Adds the calls that follow the allocators.
pub fn add<'a>(
    program: &Program<'a>,
    paths: &mut CallPaths,
    states: States,
    allocators: &[(Proc<'a>, Role)],
) {
    let States { open, buffer } = states;
    let state = paths.state;
    allocations::points(program, allocators, &mut |point| match point {
        Point::Enter(proc, role) => enter(proc, role, paths, states),
        Point::Leave(inst, block) => {
            inst.add_call(Before, calls::leave, (open, state, buffer, Reg::Rsp, block));
            let args = (open, state, buffer, Reg::Rsp, Reg::Rbp);
            inst.add_call(Before, calls::late, args);
        }
        Point::Left(inst) => {
            let args = (open, state, buffer, Reg::Rsp, Reg::Rax);
            inst.add_call(After, calls::after, args);
            inst.add_call(After, calls::late_after, (open, state, buffer, Reg::Rsp));
        }
        Point::Lose(inst) => inst.add_call(Before, calls::lose, (open, Reg::Rsp)),
        Point::Landed(landing) => landing.add_call(calls::landed, (open, Reg::Rsp)),
    });
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
