//! Which procedure of another object a call leads to, where that is certain.
//!
//! The program interpreter binds an import at run time: it looks for a definition with the name and the
//! version of the reference in the program first, then in the libraries in load order, and takes the first.
//! Objects that are loaded later are never before them. A binding is certain here if
//!
//! - exactly one of all objects of the process defines the name with this version, so the order, and
//!   namespaces with another order (`dlmopen`), do not matter;
//! - this object is loaded with the program, so every other object finds it;
//! - the definition is a function and no `IFUNC`, whose resolver chooses at run time;
//! - the address is the start of a procedure.
//!
//! In a process to which libraries are added, *all objects* are those that were there when the object with the call was
//! instrumented, so that the answer stays the same.
//!
//! The call may lead through the procedure linkage table, or through a slot of the global offset table. The
//! rule for versions is glibc's; musl's loader knows none, so there the name must be defined only once.

use std::collections::HashMap;

use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};

use super::application::Application;
use super::session::Session;
use crate::cfg::ProcKind;
use crate::ids::{InstId, ProcId};
use crate::image::versions::{SymbolVersion, SymbolVersions};
use crate::image::{LoaderFamily, Reloc};
use crate::x86::{ControlFlow, direct_target};

/// A dynamic symbol: number of the object, and number in the object's table.
type Definition = (usize, u32);

/// The definitions and references of all objects.
pub(super) struct Bindings<'a> {
    /// The definitions of each name.
    by_name: HashMap<&'a str, Vec<Definition>>,
    /// Names that the program's own linkage table defines for other objects: the address of an imported
    /// function of a program at fixed addresses is its entry there.
    canonical: HashMap<&'a str, ()>,
    /// For each object the relocations of slots that hold addresses of functions.
    slots: Vec<HashMap<u64, Reloc>>,
    /// For each object the versions of its symbols; `None` where they cannot be read.
    versions: Vec<Option<SymbolVersions<'a>>>,
    /// For each object, whether it is loaded with the program.
    is_global: Vec<bool>,
    /// For each object, how many objects there were when it was instrumented.
    known: Vec<usize>,
    has_versions: bool,
}

impl<'a> Bindings<'a> {
    pub(super) fn new(objects: &[Application<'a>]) -> Self {
        let mut by_name: HashMap<&str, Vec<Definition>> = HashMap::new();
        let mut canonical = HashMap::new();
        for (number, object) in objects.iter().enumerate() {
            for (symbol, i) in object.image.dynamic_symbols.iter().zip(0..) {
                if !symbol.is_undefined {
                    let all = by_name.entry(&symbol.name).or_default();
                    all.push((number, i));
                } else if symbol.address != 0 {
                    canonical.insert(symbol.name.as_str(), ());
                }
            }
        }
        let is_slot = |r: &&Reloc| matches!(r.kind, R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT);
        let slots = objects.iter().map(|object| {
            let relocs = object.image.relocs.iter().filter(is_slot);
            relocs.map(|r| (r.address, *r)).collect()
        });
        let interpreter = objects[0].image.interpreter.as_ref();
        Self {
            by_name,
            canonical,
            slots: slots.collect(),
            versions: (objects.iter())
                .map(|object| SymbolVersions::read(object.image))
                .collect(),
            is_global: objects.iter().map(|object| object.is_global).collect(),
            known: objects.iter().map(|object| object.known).collect(),
            has_versions: interpreter.is_some_and(|i| i.family == LoaderFamily::Glibc),
        }
    }

    /// The definition to which a slot of an object is certainly bound.
    fn definition(&self, sessions: &[Session<'a>], object: usize, slot: u64) -> Option<Definition> {
        let reloc = self.slots[object].get(&slot)?;
        let symbols = &sessions[object].image.dynamic_symbols;
        let name = symbols.get(reloc.symbol as usize)?.name.as_str();
        if reloc.kind != R_X86_64_JUMP_SLOT && self.canonical.contains_key(name) {
            return None;
        }
        let needed = self.versions[object].as_ref()?.of(reloc.symbol)?;
        let mut found = None;
        let known = self.known[object];
        for definition in self.by_name.get(name)?.iter().filter(|d| d.0 < known) {
            if self.fits(needed, *definition)? && found.replace(*definition).is_some() {
                return None;
            }
        }
        let (object, symbol) = found.filter(|definition| self.is_global[definition.0])?;
        // A reference without a version does not find a definition that only its version tells.
        let is_hidden = self.versions[object].as_ref()?.of(symbol)?.is_hidden;
        let has_version = self.has_versions && needed.name.is_some();
        (has_version || !is_hidden).then_some((object, symbol))
    }

    /// True if the loader may take a definition for a reference with this version; `None` if the versions
    /// are not known.
    fn fits(&self, needed: SymbolVersion<'_>, (object, symbol): Definition) -> Option<bool> {
        let versions = self.versions[object].as_ref()?;
        let defined = versions.of(symbol)?;
        let any = !self.has_versions || needed.name.is_none();
        Some(if any {
            true
        } else {
            versions.is_empty() || defined.name == needed.name || defined.name.is_none()
        })
    }
}

impl Session<'_> {
    /// The slot through which a call or a jump goes, perhaps by a stub of the procedure linkage table.
    fn slot(&self, id: InstId) -> Option<u64> {
        let inst = self.cfg.inst(id);
        match inst.flow {
            ControlFlow::Call | ControlFlow::Jump | ControlFlow::CondJump => {
                let target = direct_target(&self.decode(id))?;
                let stub = self.cfg.proc(self.cfg.proc_at(target)?);
                if stub.kind != ProcKind::Plt || stub.start != target {
                    return None;
                }
                // After the jump is what the slot leads to before it is bound.
                let mut insts = stub.blocks().flat_map(|b| self.cfg.block(b).insts());
                insts.find_map(|i| self.slot_of_pointer(i))
            }
            _ => self.slot_of_pointer(id),
        }
    }

    /// The slot of an indirect call or jump.
    fn slot_of_pointer(&self, id: InstId) -> Option<u64> {
        let inst = self.cfg.inst(id);
        let is_indirect = matches!(
            inst.flow,
            ControlFlow::IndirectCall | ControlFlow::IndirectJump
        );
        (is_indirect && inst.rip_relative).then(|| self.decode(id).ip_rel_memory_address())
    }
}

/// The object and the procedure to which the call or jump `id` of an object certainly leads through an
/// import.
pub(super) fn bound<'a>(
    bindings: &Bindings<'a>,
    sessions: &[Session<'a>],
    object: usize,
    id: InstId,
) -> Option<(usize, ProcId)> {
    let slot = sessions[object].slot(id)?;
    let (object, symbol) = bindings.definition(sessions, object, slot)?;
    let session = &sessions[object];
    let symbol = &session.image.dynamic_symbols[symbol as usize];
    if !symbol.is_func || symbol.is_ifunc {
        return None;
    }
    let proc = session.cfg.proc_at(symbol.address)?;
    let is_start = session.cfg.proc(proc).start == symbol.address;
    is_start.then_some((object, proc))
}
