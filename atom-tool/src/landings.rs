//! For tools that follow calls: what is no procedure of its own, and where control comes back
//! other than by a return.

use crate::Place::{After, Before};
use crate::call::{ArgList, AsRoutine};
use crate::handle::{Block, Inst, Proc};
use crate::params::Params;
use crate::{EdgeKind, InstType};

/// Library functions that return once more, when `longjmp` or its like comes back to them.
const RETURN_AGAIN: [&str; 6] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "getcontext",
];

/// Where a procedure goes on after those that it called have been left at once.
#[derive(Clone, Copy, Debug)]
pub enum Landing<'a> {
    /// A handler of exceptions.
    Handler(Block<'a>),
    /// A call of `setjmp` or its like, behind which it goes on.
    Call(Inst<'a>),
}

impl Landing<'_> {
    /// Adds a call where control comes back.
    pub fn add_call<P: Params>(&self, routine: impl AsRoutine<P>, args: impl ArgList<P>) {
        match self {
            Self::Handler(block) => block.add_call(Before, routine, args),
            Self::Call(inst) => inst.add_call(After, routine, args),
        }
    }
}

impl<'a> Proc<'a> {
    /// True for the code through which calls of libraries go (`strlen@plt`): it has no time of
    /// its own. By name, or where stubs have none by what they begin with together: a push of what
    /// identifies the program, and a jump to the loader.
    pub fn is_stub(&self) -> bool {
        let insts = self.first_block().into_iter().flat_map(|b| b.insts());
        let bytes: Vec<&[u8]> = insts.take(3).map(|inst| inst.bytes()).collect();
        let is_first_stub = match bytes.as_slice() {
            [push, jump] => {
                push.starts_with(&[0xff, 0x35])
                    && (jump.starts_with(&[0xff, 0x25]) || jump.starts_with(&[0xf2, 0xff, 0x25]))
            }
            _ => false,
        };
        self.name().ends_with("@plt") || is_first_stub
    }

    /// Where control comes back to it by exceptions and `longjmp`.
    pub fn landings(&self) -> Vec<Landing<'a>> {
        let mut all = Vec::new();
        for block in self.blocks() {
            let lands = |from: crate::Edge| from.kind == EdgeKind::Unwind;
            if block.predecessors().into_iter().any(lands) {
                all.push(Landing::Handler(block));
            }
            let last = block.last_inst();
            let called = last.is_type(InstType::Call).then(|| last.called_name());
            if let Some(Ok(Some(name))) = called
                && RETURN_AGAIN.contains(&name)
            {
                all.push(Landing::Call(last));
            }
        }
        all
    }
}
