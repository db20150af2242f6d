//! The objects of the process: the program, its interpreter (the dynamic loader) and its libraries.

use std::mem::MaybeUninit;
use std::ops::Range;

use atom_abi::host::{Host, NONE};
use atom_abi::query::{ObjectKind, ObjectRecord, SectionRecord};

use crate::navigation::handle::{Block, FromId, Handles, Inst, Proc};
use crate::navigation::program::each;
use crate::navigation::program::{Program, Session};
use atom_abi::OBJECT_SHIFT;

/// One file of the process, as the instrument routine sees it. A program that is instrumented alone is the
/// only object; in a whole process (`atom run`, `atom APP --libs`) object 0 is the program.
///
/// ```
/// use atom_tool::prelude::*;
///
/// /// The number of procedures of each library.
/// fn sizes<'a>(program: &Program<'a>) -> Vec<(&'a str, usize)> {
///     let libraries = program.objects().filter(|o| !o.is_program() && !o.is_interpreter());
///     libraries.map(|o| (o.name(), o.procs().len())).collect()
/// }
///
/// /// True if a call leads from one object to another.
/// fn crosses(call: Inst) -> bool {
///     call.called_proc().is_some_and(|callee| callee.object() != call.proc().object())
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Object<'a> {
    session: &'a Session<'a>,
    id: u32,
}

impl<'a> FromId<'a> for Object<'a> {
    fn from_id(session: &'a Session<'a>, id: u32) -> Self {
        Self { session, id }
    }
}

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Object<'_> {}

impl std::hash::Hash for Object<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object {} ({})", self.id, self.name())
    }
}

/// A section of an object that is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address in the object's file, with the object's number in the bits from 32 on.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The ELF specification's `sh_flags`.
    pub flags: u64,
    /// The ELF specification's `sh_type`.
    pub kind: u32,
}

impl<'a> Object<'a> {
    fn record(&self) -> ObjectRecord {
        let host: &Host = self.session.host;
        let mut record = MaybeUninit::uninit();
        let is_known = (host.object)(host.context, self.id, record.as_mut_ptr());
        assert!(is_known, "there is no object {}", self.id);
        // SAFETY: the host has written it.
        unsafe { record.assume_init() }
    }

    /// Its number: the program has number 0, the others follow in load order. Addresses of the process have
    /// it in the bits from 32 on.
    pub fn index(&self) -> usize {
        self.id as usize
    }

    /// The file name by which it is loaded, such as `libz.so.1`. Reports name it so.
    pub fn name(&self) -> &'a str {
        self.session.text(self.record().name)
    }

    /// The path by which it is loaded.
    pub fn path(&self) -> &'a str {
        self.session.text(self.record().path)
    }

    /// The name by which other objects name it as their library, if it has one.
    pub fn soname(&self) -> Option<&'a str> {
        let name = self.session.text(self.record().soname);
        (!name.is_empty()).then_some(name)
    }

    /// The bytes of its build-id, if the linker wrote one.
    pub fn build_id(&self) -> Option<&'a [u8]> {
        let id = self.record().build_id;
        // SAFETY: the host's view of its image lives as long as the session.
        let id = unsafe { std::slice::from_raw_parts(id.ptr, id.len) };
        (!id.is_empty()).then_some(id)
    }

    /// True for the program itself.
    pub fn is_program(&self) -> bool {
        self.record().kind == ObjectKind::Program as u32
    }

    /// True for the program interpreter, which is the dynamic loader.
    pub fn is_interpreter(&self) -> bool {
        self.record().kind == ObjectKind::Interpreter as u32
    }

    /// The addresses that it occupies, as its file says: from the start of its first loaded segment, rounded
    /// down to a page, to the end of the last one. As all addresses of the process they have its number in the
    /// bits from 32 on.
    pub fn range(&self) -> Range<u64> {
        let host: &Host = self.session.host;
        let mut range = [0; 2];
        let is_known = (host.object_range)(host.context, self.id, &mut range);
        assert!(is_known, "there is no object {}", self.id);
        range[0]..range[1]
    }

    /// Its sections that are loaded, in the order of the section header table; none if the table was removed.
    pub fn sections(&self) -> Vec<Section<'a>> {
        let host: &Host = self.session.host;
        let mut found = Vec::new();
        each(
            |arg, sink| (host.sections)(host.context, self.id, arg, sink),
            |s: &SectionRecord| {
                found.push(Section {
                    name: self.session.text(s.name),
                    address: s.address,
                    size: s.size,
                    flags: s.flags,
                    kind: s.kind,
                });
            },
        );
        found
    }

    /// Its procedures in address order.
    pub fn procs(&self) -> Handles<'a, Proc<'a>> {
        let record = self.record();
        Handles::new(self.session, record.first_proc, record.proc_count)
    }
}

impl<'a> Program<'a> {
    /// The objects of the process: the program, then the others in load order. A program that is
    /// instrumented alone is the only one.
    pub fn objects(&self) -> Handles<'a, Object<'a>> {
        let host = self.session.host;
        Handles::new(self.session, 0, (host.object_count)(host.context))
    }

    /// The object that an address belongs to, as its upper bits say.
    pub fn object_at(&self, address: u64) -> Option<Object<'a>> {
        match self.objects().len() {
            1 => self.objects().next(),
            _ => self.objects().nth((address >> OBJECT_SHIFT) as usize),
        }
    }

    /// An address as reports print it: `0x4d4890` in the program, `libc.so.6+0x2c7f0` in another object.
    pub fn address_text(&self, address: u64) -> String {
        match self.object_at(address).filter(|o| o.index() != 0) {
            Some(object) => {
                let in_file = address & ((1 << OBJECT_SHIFT) - 1);
                format!("{}+{in_file:#x}", object.name())
            }
            None => format!("{address:#x}"),
        }
    }
}

impl<'a> Proc<'a> {
    /// The object that contains it.
    pub fn object(&self) -> Object<'a> {
        let program = Program {
            session: self.session,
        };
        let found = program.object_at(self.pc());
        found.unwrap_or(Object::from_id(self.session, 0))
    }

    /// The procedure of another object to which a stub of the procedure linkage table certainly leads, in a
    /// whole process; see [`Inst::called_proc`].
    pub fn stub_target(&self) -> Option<Self> {
        let mut ends = self.blocks().map(|block| block.last_inst());
        ends.find_map(|inst| inst.bound_proc())
    }
}

impl<'a> Block<'a> {
    /// The object that contains it.
    pub fn object(&self) -> Object<'a> {
        self.proc().object()
    }
}

impl<'a> Inst<'a> {
    /// The object that contains it.
    pub fn object(&self) -> Object<'a> {
        self.proc().object()
    }

    /// The procedure of another object to which a call or jump certainly leads through an import.
    pub(crate) fn bound_proc(&self) -> Option<Proc<'a>> {
        let host = self.session.host;
        let id = (host.bound_proc)(host.context, self.id);
        (id != NONE).then_some(Proc {
            session: self.session,
            id,
        })
    }
}
