//! Facts for tools that follow calls: which code is no procedure of its own, and where control
//! comes back other than by a return.

use crate::Place::{After, Before};
use crate::calls::params::Params;
use crate::calls::typed::{ArgList, AsRoutine};
use crate::navigation::handle::{Block, Inst, Proc};
use crate::{EdgeKind, InstType};

/// Library functions that return once more when `longjmp` or a similar function goes back to them.
const RETURN_AGAIN: [&str; 6] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "getcontext",
];

/// A place where a procedure continues after procedures that it called were left without returning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing<'a> {
    /// A landing pad of exceptions.
    Handler(Block<'a>),
    /// A call of `setjmp` or a similar function; the procedure continues after it.
    Call(Inst<'a>),
}

impl Landing<'_> {
    /// Adds a call where control comes back.
    #[track_caller]
    pub fn add_call<P: Params>(&self, routine: impl AsRoutine<P>, args: impl ArgList<P>) {
        match self {
            Self::Handler(block) => block.add_call(Before, routine, args),
            Self::Call(inst) => inst.add_call(After, routine, args),
        }
    }
}

impl<'a> Proc<'a> {
    /// True for stubs of the procedure linkage table (`strlen@plt`), through which calls of
    /// libraries go. They are found by their names. Where stubs have no names, the table is known by
    /// its first instructions, which push a value that identifies the program and jump to the loader.
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

    /// The places where control comes back to the procedure by exceptions and `longjmp`.
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
