//! From the program to its procedures, blocks and instructions: in order, by name, pattern, number and address.

use atom_abi::StrRef;
use atom_abi::host::{NONE, ProgramInfo};

use crate::Result;
use crate::navigation::handle::{Block, Handles, Inst, Proc};
use crate::navigation::program::{Program, each};

impl<'a> Program<'a> {
    /// All procedures in address order.
    pub fn procs(&self) -> Handles<'a, Proc<'a>> {
        Handles::new(self.session, 0, self.info(ProgramInfo::ProcCount) as u32)
    }

    /// The first procedure.
    pub fn first_proc(&self) -> Option<Proc<'a>> {
        self.procs().next()
    }

    /// The last procedure.
    pub fn last_proc(&self) -> Option<Proc<'a>> {
        self.procs().next_back()
    }

    /// The procedure of that name, as in the symbol table or demangled.
    pub fn named_proc(&self, name: &str) -> Option<Proc<'a>> {
        let host = self.host();
        let id = (host.named_proc)(host.context, StrRef::new(name));
        (id != NONE).then_some(Proc {
            session: self.session,
            id,
        })
    }

    /// All procedures of that name; C programs may have several.
    pub fn procs_named(&self, name: &str) -> Vec<Proc<'a>> {
        let host = self.host();
        let mut found = Vec::new();
        let name = StrRef::new(name);
        each(
            |arg, sink| (host.named_procs)(host.context, name, arg, sink),
            |id: &u32| {
                found.push(Proc {
                    session: self.session,
                    id: *id,
                })
            },
        );
        found
    }

    /// The procedures that a pattern of the user names, as `--only` takes it: a name (`main`,
    /// `std::*`), a source file (`file:*.c`), addresses (`0x1000-0x2000`).
    ///
    /// # Errors
    /// If the pattern has an error, or no procedure fits it.
    pub fn procs_matching(&self, pattern: &str) -> Result<Vec<Proc<'a>>> {
        let host = self.host();
        let (mut found, mut wrong) = (Vec::new(), None);
        let pattern = StrRef::new(pattern);
        let session = self.session;
        each(
            |arg, sink| {
                each(
                    |wrong_arg, wrong_sink| {
                        let ask = host.matching_procs;
                        ask(host.context, pattern, arg, sink, wrong_arg, wrong_sink);
                    },
                    |message: &StrRef| wrong = Some(session.text(*message).to_owned()),
                );
            },
            |id: &u32| found.push(Proc { session, id: *id }),
        );
        match wrong {
            Some(message) => Err(message.into()),
            None => Ok(found),
        }
    }

    /// The procedure with this [`index`](Proc::index).
    pub fn proc(&self, index: usize) -> Option<Proc<'a>> {
        self.procs().nth(index)
    }

    /// The block with this [`index`](Block::index).
    pub fn block(&self, index: usize) -> Option<Block<'a>> {
        Handles::new(self.session, 0, self.block_count() as u32).nth(index)
    }

    /// The instruction with this [`index`](Inst::index).
    pub fn inst(&self, index: usize) -> Option<Inst<'a>> {
        Handles::new(self.session, 0, self.inst_count() as u32).nth(index)
    }

    /// The procedure that contains an address.
    pub fn proc_at(&self, address: u64) -> Option<Proc<'a>> {
        let host = self.host();
        let id = (host.proc_at)(host.context, address);
        (id != NONE).then_some(Proc {
            session: self.session,
            id,
        })
    }

    /// The instruction that starts at an address.
    pub fn inst_at(&self, address: u64) -> Option<Inst<'a>> {
        let host = self.host();
        let id = (host.inst_at)(host.context, address);
        (id != NONE).then_some(Inst {
            session: self.session,
            id,
        })
    }
}
