//! Queries of the interface about the objects of a process. The rules of [`super::context`] hold here.

use atom_abi::host::{Context, NONE};
use atom_abi::query::{ObjectKind as KindNumber, ObjectRecord};

use super::context::{Numbered, bytes, process};
use super::session::Session;
use crate::ids::InstId;
use crate::image::ObjectKind;

pub(super) extern "C" fn object_count(context: *mut Context) -> u32 {
    process(context).sessions.len() as u32
}

pub(super) extern "C" fn object(
    context: *mut Context,
    object: u32,
    record: *mut ObjectRecord,
) -> bool {
    let Some(session) = process(context).sessions.get(object as usize) else {
        return false;
    };
    // SAFETY: by the interface, a place for the result.
    unsafe { record.write(session.object_record()) };
    true
}

pub(super) extern "C" fn object_range(
    context: *mut Context,
    object: u32,
    range: *mut [u64; 2],
) -> bool {
    let Some(session) = process(context).sessions.get(object as usize) else {
        return false;
    };
    // SAFETY: by the interface, a place for the result.
    unsafe {
        range.write([session.image.base, session.image.end].map(|a| session.numbers.address(a)))
    };
    true
}

pub(super) extern "C" fn bound_proc(context: *mut Context, inst: u32) -> u32 {
    let process = process(context);
    let found = InstId::known(context, inst)
        .and_then(|(session, inst)| process.bound(session.numbers.object as usize, inst));
    found.map_or(NONE, |(object, proc)| {
        process.sessions[object].numbers.proc + proc.0
    })
}

impl Session<'_> {
    fn object_record(&self) -> ObjectRecord {
        let image = self.image;
        let name = self.path.file_name().unwrap_or_default();
        let build_id = image.build_id().unwrap_or_default();
        ObjectRecord {
            name: self.intern(&name.to_string_lossy()),
            path: self.intern(&self.path.to_string_lossy()),
            soname: self.intern(image.soname().unwrap_or_default()),
            build_id: bytes(build_id),
            kind: match image.kind {
                ObjectKind::Interpreter => KindNumber::Interpreter,
                ObjectKind::SharedObject => KindNumber::Library,
                _ => KindNumber::Program,
            } as u32,
            first_proc: self.numbers.proc,
            proc_count: self.cfg.procs.len() as u32,
        }
    }
}
