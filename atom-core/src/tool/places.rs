//! Queries of the interface about data: data symbols, variables of
//! the source, imports that are called. The rules of [`super::context`] hold here.

use std::collections::HashSet;
use std::ffi::c_void;

use atom_abi::StrRef;
use atom_abi::host::{Context, Reg};
use atom_abi::query::{SectionRecord, Sink, SymbolRecord, VariablePlace, VariableRecord};

use super::context::{Numbered, process, queries, text};
use super::names::demangle;
use super::session::Session;
use crate::ids::InstId;
use crate::image::Section;
use crate::image::variables::{Place, Variable, variables as variables_of};
use crate::x86::{ControlFlow, direct_target};

pub(super) extern "C" fn data_symbols(
    context: *mut Context,
    arg: *mut c_void,
    sink: Sink<SymbolRecord>,
) {
    for session in &process(context).sessions {
        let image = session.image;
        let mut seen = HashSet::new();
        let all = image.symbols.iter().chain(&image.dynamic_symbols);
        for symbol in all.filter(|s| s.is_object && !s.is_undefined && s.address != 0) {
            if !seen.insert((&symbol.name, symbol.address)) {
                continue;
            }
            // A symbol version does not belong to the name in the source.
            let name = symbol.name.split('@').next().unwrap_or_default();
            let record = SymbolRecord {
                name: session.intern(name),
                plain_name: session.intern(&demangle(name)),
                address: session.numbers.address(symbol.address),
                size: symbol.size,
            };
            sink(arg, &record);
        }
    }
}

pub(super) extern "C" fn sections(
    context: *mut Context,
    object: u32,
    arg: *mut c_void,
    sink: Sink<SectionRecord>,
) {
    let Some(session) = process(context).sessions.get(object as usize) else {
        return;
    };
    let is_loaded = |s: &&Section| s.is_loaded();
    for section in session.image.sections.iter().filter(is_loaded) {
        let record = SectionRecord {
            name: session.intern(&section.name),
            address: session.numbers.address(section.address),
            size: section.size,
            flags: section.flags.0,
            kind: section.kind.0,
            unused: 0,
        };
        sink(arg, &record);
    }
}

pub(super) extern "C" fn variables(
    context: *mut Context,
    path: StrRef,
    arg: *mut c_void,
    sink: Sink<VariableRecord>,
) {
    for session in &process(context).sessions {
        for variable in variables_of(session.image, text(path)) {
            let (place, at) = session.place_of(&variable);
            let record = VariableRecord {
                function: session.intern(&variable.function),
                function_address: session.numbers.address(variable.function_address),
                place: place as u32,
                line: variable.line,
                at: match place {
                    VariablePlace::Static => session.numbers.address(at),
                    _ => at,
                },
                size: variable.size,
                unit: session.intern(&variable.unit),
            };
            sink(arg, &record);
        }
    }
}

queries! {
    fn entered_import(s, inst: InstId) -> StrRef, StrRef::new(""); { StrRef::new(s.entered_import(inst).unwrap_or("")) }
}

impl Session<'_> {
    /// Location of a variable: its kind, and its address or its offset from the virtual frame
    /// pointer. A location relative to a register needs the procedure's frame to be known.
    fn place_of(&self, variable: &Variable) -> (VariablePlace, u64) {
        let frame = || {
            let proc = self.cfg.proc_at(variable.function_address)?;
            self.frame(proc)
        };
        let moving = (VariablePlace::Moving, 0);
        match variable.place {
            Place::Static(at) => (VariablePlace::Static, at),
            Place::Frame(at) => (VariablePlace::Frame, at as u64),
            Place::ThreadLocal => (VariablePlace::ThreadLocal, 0),
            Place::Moving => moving,
            Place::Bits => (VariablePlace::Bits, 0),
            Place::Rbp(at) => match frame() {
                // After `push rbp; mov rbp, rsp` rbp is two words below the virtual frame pointer.
                Some(f) if f.frame_reg == Reg::Rbp as u32 && f.int_offsets[5] == -16 => {
                    (VariablePlace::Frame, (at - 16) as u64)
                }
                _ => moving,
            },
            Place::Rsp(at) => match frame() {
                Some(f) if !f.is_dynamic && f.frame_reg == Reg::Rsp as u32 => {
                    (VariablePlace::Frame, at.wrapping_sub(f.size as i64) as u64)
                }
                _ => moving,
            },
        }
    }

    /// The import to which a call or a jump leads.
    fn entered_import(&self, id: InstId) -> Option<&str> {
        let inst = self.cfg.inst(id);
        match inst.flow {
            ControlFlow::Call | ControlFlow::Jump => {
                let target = direct_target(&self.decode(id))?;
                let proc = self.cfg.proc_at(target)?;
                let name = self.proc_symbol(proc).strip_suffix("@plt")?;
                (self.cfg.proc(proc).start == target).then_some(name)
            }
            ControlFlow::IndirectCall | ControlFlow::IndirectJump if inst.rip_relative => {
                self.imports().name(self.decode(id).ip_rel_memory_address())
            }
            _ => None,
        }
    }
}
