//! Procedures, basic blocks and instructions: small handles that are freely copied.

use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Range;

use atom_abi::host::{Class, InstType, NONE, Place, Scope};
use atom_abi::{StrRef, host::Host};

use crate::Result;
use crate::calls::params::Params;
use crate::calls::proto::NamedArg;
use crate::calls::typed::{ArgList, AsRoutine, Computed, OutcomeValue};
use crate::navigation::program::{Program, Session};

/// How well a procedure is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// All of its code is known.
    Full,
    /// It is instrumented, but some of its code may be missing from its blocks.
    Partial,
    /// It is not understood and stays as it is; it has no blocks and takes no calls.
    Opaque,
}

/// A handle that is made from a number.
pub(crate) trait FromId<'a> {
    fn from_id(session: &'a Session<'a>, id: u32) -> Self;
}

/// An iterator over procedures, blocks or instructions in address order.
#[derive(Clone)]
pub struct Handles<'a, T> {
    session: &'a Session<'a>,
    ids: Range<u32>,
    kind: PhantomData<T>,
}

impl<'a, T> Handles<'a, T> {
    pub(crate) fn new(session: &'a Session<'a>, first: u32, count: u32) -> Self {
        let ids = if count == 0 {
            0..0
        } else {
            first..first.saturating_add(count)
        };
        Self {
            session,
            ids,
            kind: PhantomData,
        }
    }
}

#[allow(private_bounds)]
impl<'a, T: FromId<'a>> Iterator for Handles<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.ids.next().map(|id| T::from_id(self.session, id))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ids.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<T> {
        self.ids.nth(n).map(|id| T::from_id(self.session, id))
    }
}

#[allow(private_bounds)]
impl<'a, T: FromId<'a>> DoubleEndedIterator for Handles<'a, T> {
    fn next_back(&mut self) -> Option<T> {
        self.ids.next_back().map(|id| T::from_id(self.session, id))
    }
}

impl<'a, T: FromId<'a>> ExactSizeIterator for Handles<'a, T> {}
impl<'a, T: FromId<'a>> FusedIterator for Handles<'a, T> {}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $scope:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<'a> {
            pub(crate) session: &'a Session<'a>,
            pub(crate) id: u32,
        }

        impl<'a> FromId<'a> for $name<'a> {
            fn from_id(session: &'a Session<'a>, id: u32) -> Self {
                Self { session, id }
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.id == other.id
            }
        }

        impl Eq for $name<'_> {}

        impl std::hash::Hash for $name<'_> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.id.hash(state);
            }
        }

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} {} at {:#x}", stringify!($name), self.id, self.pc())
            }
        }

        impl<'a> $name<'a> {
            fn host(&self) -> &'a Host {
                self.session.host
            }

            /// Its number, counted through the program from 0 in address order.
            pub fn index(&self) -> usize {
                self.id as usize
            }

            /// Adds a call. Several calls at one point are made in the order in which they were
            /// added.
            ///
            /// If an argument does not fit this point (such as `BrCondValue` where there is no
            /// conditional branch), `atom` ends with an error that names the place in the tool's source.
            #[track_caller]
            pub fn add_call<P: Params>(&self, place: Place, routine: impl AsRoutine<P>, args: impl ArgList<P>) {
                self.session.add_typed(Scope::$scope, self.id, place, routine, args);
            }

            /// True if a call at this place can pass this value or register.
            /// If it cannot, because the value is not known or has no meaning there, adding such a
            /// call is an error.
            pub fn offers(&self, place: Place, value: impl Computed) -> bool {
                self.session.offers(Scope::$scope, self.id, place, &value)
            }

            /// Adds a call of a routine by name; see [`Program::add_call_proto`].
            #[track_caller]
            pub fn add_call_named(&self, place: Place, name: &str, args: &[NamedArg<'_>]) -> Result {
                self.session.add_named(Scope::$scope, self.id, place, name, args)
            }
        }
    };
}

handle!(
    /// A procedure.
    Proc, Proc);
handle!(
    /// A basic block: entered only at its first instruction, left only after its last.
    Block, Block);
handle!(
    /// An instruction.
    Inst, Inst);

impl<'a> Proc<'a> {
    fn program(&self) -> Program<'a> {
        Program {
            session: self.session,
        }
    }

    /// Its name for people: demangled, or `sub_ADDRESS` if it has none.
    pub fn name(&self) -> &'a str {
        self.session
            .text((self.host().proc_name)(self.host().context, self.id, true))
    }

    /// Its name as it is in the symbol table, or `sub_ADDRESS`.
    pub fn symbol(&self) -> &'a str {
        self.session
            .text((self.host().proc_name)(self.host().context, self.id, false))
    }

    /// Its source file, where there is debug information.
    pub fn file(&self) -> Option<&'a str> {
        let file = self
            .session
            .text((self.host().proc_file)(self.host().context, self.id));
        (!file.is_empty()).then_some(file)
    }

    /// Address of its first instruction.
    pub fn pc(&self) -> u64 {
        (self.host().proc_pc)(self.host().context, self.id)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        (self.host().proc_size)(self.host().context, self.id)
    }

    /// Has a routine run in place of the procedure: the tool changes the program.
    ///
    /// The routine runs when the procedure is entered, before all calls that are added to the procedure. If it calls
    /// [`Outcome::returns`](crate::Outcome::returns), control goes back to the caller with that result in `rax`, and no other
    /// call at the procedure's entry or in it is made. Else the procedure runs as it is. Arguments of the procedure are
    /// registers: `Reg::Rdi` is the first, `Reg::Rsp` leads to the return address. The procedure has to be a function of the
    /// System V ABI whose result, if the routine gives it, is an integer.
    ///
    /// It is an error if the procedure is opaque, part of another one, an IFUNC or Go's, or if another routine is in its
    /// place; ask [`Proc::can_be_replaced`].
    pub fn replace<P: Params>(&self, routine: impl AsRoutine<P>, args: impl ArgList<P>) {
        self.session
            .add_typed(Scope::Instead, self.id, Place::Before, routine, args);
    }

    /// As [`Proc::replace`], for a routine by name; see [`Program::add_call_proto`].
    pub fn replace_named(&self, name: &str, args: &[NamedArg<'_>]) -> Result {
        self.session
            .add_named(Scope::Instead, self.id, Place::Before, name, args)
    }

    /// True if a routine can run in place of the procedure.
    pub fn can_be_replaced(&self) -> bool {
        self.session
            .offers(Scope::Instead, self.id, Place::Before, &OutcomeValue)
    }

    /// False if calls on the procedure are not made, because the user chose others (`--only`,
    /// `--skip`). Adding such calls is no error.
    pub fn is_selected(&self) -> bool {
        (self.host().proc_is_selected)(self.host().context, self.id)
    }

    /// True if the procedure stays as it is: it has no blocks, and adding a call to it is an error.
    pub fn is_opaque(&self) -> bool {
        self.status() == Status::Opaque
    }

    /// How well the procedure is understood.
    pub fn status(&self) -> Status {
        match (self.host().proc_status)(self.host().context, self.id) {
            0 => Status::Full,
            1 => Status::Partial,
            _ => Status::Opaque,
        }
    }

    /// The next procedure.
    pub fn next(&self) -> Option<Self> {
        self.program().procs().nth(self.index() + 1)
    }

    /// The previous procedure.
    pub fn prev(&self) -> Option<Self> {
        Some(Self {
            session: self.session,
            id: self.id.checked_sub(1)?,
        })
    }

    /// Its basic blocks in address order; none if it is opaque.
    pub fn blocks(&self) -> Handles<'a, Block<'a>> {
        let host = self.host();
        let first = (host.proc_first_block)(host.context, self.id);
        let count = (host.proc_block_count)(host.context, self.id);
        Handles::new(self.session, first, if first == NONE { 0 } else { count })
    }

    /// Its first basic block.
    pub fn first_block(&self) -> Option<Block<'a>> {
        self.blocks().next()
    }

    /// Its last basic block.
    pub fn last_block(&self) -> Option<Block<'a>> {
        self.blocks().next_back()
    }
}

impl<'a> Block<'a> {
    /// Address of its first instruction.
    pub fn pc(&self) -> u64 {
        (self.host().block_pc)(self.host().context, self.id)
    }

    /// The procedure that it belongs to.
    pub fn proc(&self) -> Proc<'a> {
        Proc {
            session: self.session,
            id: (self.host().block_proc)(self.host().context, self.id),
        }
    }

    /// Its instructions in address order, at least one.
    pub fn insts(&self) -> Handles<'a, Inst<'a>> {
        let host = self.host();
        let first = (host.block_first_inst)(host.context, self.id);
        Handles::new(
            self.session,
            first,
            (host.block_inst_count)(host.context, self.id),
        )
    }

    /// Its first instruction.
    pub fn first_inst(&self) -> Inst<'a> {
        Inst {
            session: self.session,
            id: (self.host().block_first_inst)(self.host().context, self.id),
        }
    }

    /// Its last instruction.
    pub fn last_inst(&self) -> Inst<'a> {
        let count = (self.host().block_inst_count)(self.host().context, self.id);
        let first = self.first_inst();
        Inst {
            session: self.session,
            id: first.id + count.max(1) - 1,
        }
    }

    /// The next block of the same procedure.
    pub fn next(&self) -> Option<Self> {
        let id = self.id + 1;
        self.proc().blocks().ids.contains(&id).then_some(Self {
            session: self.session,
            id,
        })
    }

    /// The previous block of the same procedure.
    pub fn prev(&self) -> Option<Self> {
        let id = self.id.checked_sub(1)?;
        self.proc().blocks().ids.contains(&id).then_some(Self {
            session: self.session,
            id,
        })
    }
}

impl<'a> Inst<'a> {
    /// Its address.
    pub fn pc(&self) -> u64 {
        (self.host().inst_pc)(self.host().context, self.id)
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        (self.host().inst_len)(self.host().context, self.id) as usize
    }

    /// The earlier name of [`Inst::size`], for tools that use it.
    #[allow(clippy::len_without_is_empty)]
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.size()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        let bytes = (self.host().inst_bytes)(self.host().context, self.id);
        // SAFETY: the host's view of its image lives as long as the session.
        unsafe { std::slice::from_raw_parts(bytes.ptr, bytes.len) }
    }

    /// The instruction as text: `mov rax,[rdi+8]`.
    pub fn text(&self) -> &'a str {
        self.session
            .text((self.host().inst_text)(self.host().context, self.id))
    }

    /// Its mnemonic in lower case, without prefixes: `xadd` of `lock xadd [rdi],eax`.
    pub fn mnemonic(&self) -> &'a str {
        self.session
            .text((self.host().inst_mnemonic)(self.host().context, self.id))
    }

    /// True for `syscall`. Its bytes are looked at first, since the mnemonic is made as text.
    pub(crate) fn is_syscall(&self) -> bool {
        matches!(self.bytes(), [.., 0x0f, 0x05]) && self.mnemonic() == "syscall"
    }

    /// The instruction set extensions that it needs, by the names of their CPUID bits, with `+` between
    /// them: `SSE2`, `AVX512F+AVX512VL`. Instructions of the processors before these bits have `INTEL8086`,
    /// `INTEL386` and so on, those that came with 64-bit mode `X64`.
    pub fn isa(&self) -> &'a str {
        self.session
            .text((self.host().inst_isa)(self.host().context, self.id))
    }

    /// The basic block that it belongs to.
    pub fn block(&self) -> Block<'a> {
        Block {
            session: self.session,
            id: (self.host().inst_block)(self.host().context, self.id),
        }
    }

    /// The procedure that it belongs to.
    pub fn proc(&self) -> Proc<'a> {
        self.block().proc()
    }

    /// The next instruction of the same block.
    pub fn next(&self) -> Option<Self> {
        let id = self.id + 1;
        self.block().insts().ids.contains(&id).then_some(Self {
            session: self.session,
            id,
        })
    }

    /// The previous instruction of the same block.
    pub fn prev(&self) -> Option<Self> {
        let id = self.id.checked_sub(1)?;
        self.block().insts().ids.contains(&id).then_some(Self {
            session: self.session,
            id,
        })
    }

    /// True if the instruction is of this type; it may be of several.
    pub fn is_type(&self, kind: InstType) -> bool {
        (self.host().inst_types)(self.host().context, self.id) & kind as u32 != 0
    }

    /// The instruction's class; each instruction has exactly one.
    pub fn class(&self) -> Class {
        const CLASSES: [Class; 18] = [
            Class::Null,
            Class::Load,
            Class::Fload,
            Class::Store,
            Class::Fstore,
            Class::Ibranch,
            Class::Fbranch,
            Class::Subroutine,
            Class::Iarithmetic,
            Class::Imultiplyl,
            Class::Imultiplyq,
            Class::Ilogical,
            Class::Ishift,
            Class::Icondmove,
            Class::Icompare,
            Class::Fpop,
            Class::Fdivs,
            Class::Fdivd,
        ];
        let class = (self.host().inst_class)(self.host().context, self.id) as usize;
        CLASSES.get(class).copied().unwrap_or(Class::Null)
    }

    /// Address of the target of a direct branch or call.
    pub fn target_pc(&self) -> Option<u64> {
        let target = (self.host().inst_target)(self.host().context, self.id);
        (target != 0).then_some(target)
    }

    /// Target of a direct branch or call, if the target is a known instruction.
    pub fn target(&self) -> Option<Self> {
        let id = (self.host().inst_at)(self.host().context, self.target_pc()?);
        (id != NONE).then_some(Self {
            session: self.session,
            id,
        })
    }

    /// The procedure that a call calls, where that is certain.
    ///
    /// This is the target of a direct call. In a whole process, a call of an imported function leads to the
    /// procedure in the other object, through the procedure linkage table or the global offset table, if
    /// exactly one object defines the function, that object is loaded with the program, and the function is
    /// no `IFUNC` (whose code is chosen when the process starts). Any other call of a stub of the procedure
    /// linkage table leads to the stub.
    pub fn called_proc(&self) -> Option<Proc<'a>> {
        if !self.is_type(InstType::Call) {
            return None;
        }
        self.bound_proc().or_else(|| self.directly_called_proc())
    }

    /// The procedure that a direct call calls, which may be a stub of the procedure linkage table.
    pub(crate) fn directly_called_proc(&self) -> Option<Proc<'a>> {
        if !self.is_type(InstType::Call) {
            return None;
        }
        Program {
            session: self.session,
        }
        .proc_at(self.target_pc()?)
    }

    /// The procedure that this instruction leads to from outside: by a call (see [`Inst::called_proc`]), or
    /// by a jump from another procedure to its first instruction (a tail call). The jump of a stub of the
    /// procedure linkage table leads to the imported procedure, with the conditions of `called_proc`.
    pub fn entered_proc(&self) -> Option<Proc<'a>> {
        let imported = || self.called_proc().or_else(|| self.bound_proc());
        imported().or_else(|| {
            let target = self.target()?;
            let callee = target.proc();
            (callee != self.proc() && target.pc() == callee.pc()).then_some(callee)
        })
    }

    /// Source file and line, where there is debug information.
    pub fn line(&self) -> Option<(&'a str, u32)> {
        let mut file = StrRef::new("");
        let line = (self.host().inst_line)(self.host().context, self.id, &mut file);
        (line != 0).then(|| (self.session.text(file), line))
    }
}
