//! Calls on the ways between blocks.
//!
//! A call before a block is made on every way into the block, a call after it on every way out.
//! A tool that follows control into a part of a procedure and out of it needs only the ways that
//! cross the part's border.

use atom_abi::host::{Place, Reg, Scope};
use atom_abi::query::EdgeKind;

use crate::calls::params::Params;
use crate::calls::typed::{ArgList, AsRoutine};
use crate::navigation::handle::Block;
use crate::{NamedArg, Result};

/// A way into a block or out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Way {
    /// Into the block, from outside its procedure. Fits blocks at which another
    /// procedure enters: the first one, and others that are called or jumped to.
    Entry,
    /// Out of the block, to the next instruction in the program: the block's last instruction does
    /// not jump, or is a call that has returned.
    Falling,
    /// Out of the block by its last instruction, a jump that is taken or a return.
    /// For an indirect jump this is all of its ways at once.
    Taken,
}

impl Way {
    /// The way out of a block that an edge of this kind takes. None for an exception, as no code
    /// can be added between a throw and its landing pad, and for [`EdgeKind::Table`], as the edges
    /// of an indirect jump share one way.
    pub fn of(kind: EdgeKind) -> Option<Self> {
        match kind {
            EdgeKind::Fall | EdgeKind::CallReturn => Some(Self::Falling),
            EdgeKind::Taken | EdgeKind::Tail | EdgeKind::Return | EdgeKind::Unknown => {
                Some(Self::Taken)
            }
            EdgeKind::Table | EdgeKind::Unwind => None,
        }
    }
}

impl Way {
    fn scope(self) -> Scope {
        match self {
            Self::Entry => Scope::Entry,
            Self::Falling => Scope::Falling,
            Self::Taken => Scope::Taken,
        }
    }
}

impl Block<'_> {
    /// True if control may go this way, so that a call can be added there.
    pub fn has_way(&self, way: Way) -> bool {
        let session = self.session;
        session.offers(way.scope(), self.id, Place::Before, &Reg::Rsp)
    }

    /// Adds a call that is made when control goes this way.
    ///
    /// At the block's end it comes after those added to the block and its last
    /// instruction; at an entry, after those added to the procedure and before
    /// those added to the block. If the block does not have this way, `atom` ends with an error.
    #[track_caller]
    pub fn add_call_on<P: Params>(
        &self,
        way: Way,
        routine: impl AsRoutine<P>,
        args: impl ArgList<P>,
    ) {
        let session = self.session;
        session.add_typed(way.scope(), self.id, Place::Before, routine, args);
    }

    /// Adds a call of a routine by name; see [`Program::add_call_proto`](crate::Program::add_call_proto).
    #[track_caller]
    pub fn add_call_named_on(&self, way: Way, name: &str, args: &[NamedArg<'_>]) -> Result {
        let session = self.session;
        session.add_named(way.scope(), self.id, Place::Before, name, args)
    }
}
