//! The objects of a process.

use std::ffi::{c_char, c_int};

use super::handles::{number, of_proc, primitives, program, stop, text, text_or_null};

fn of_object(object: Option<atom_tool::Object>) -> usize {
    number(object.map(|object| object.index()))
}

/// The object at a distance from another one in the load order.
fn beside(object: atom_tool::Object, distance: isize) -> usize {
    let index = object.index().checked_add_signed(distance);
    of_object(index.and_then(|index| program().objects().nth(index)))
}

#[unsafe(no_mangle)]
extern "C" fn GetFirstObj() -> usize {
    of_object(program().objects().next())
}

#[unsafe(no_mangle)]
extern "C" fn GetLastObj() -> usize {
    of_object(program().objects().next_back())
}

#[unsafe(no_mangle)]
extern "C" fn GetObjAt(pc: u64) -> usize {
    of_object(program().object_at(pc))
}

/// Numbers of `ObjInfoType`.
const START: u32 = 0;
const END: u32 = 1;
const INDEX: u32 = 2;
const IS_PROGRAM: u32 = 3;
const IS_INTERPRETER: u32 = 4;
const PROC_COUNT: u32 = 5;

#[unsafe(no_mangle)]
extern "C" fn PCName(pc: u64) -> *const c_char {
    text(&program().address_text(pc))
}

primitives! {
    fn GetNextObj(o: object) -> usize { beside(o, 1) }
    fn GetPrevObj(o: object) -> usize { beside(o, -1) }
    fn GetFirstObjProc(o: object) -> usize { of_proc(o.procs().next()) }
    fn GetLastObjProc(o: object) -> usize { of_proc(o.procs().next_back()) }
    fn GetProcObj(p: proc) -> usize { of_object(Some(p.object())) }
    fn GetBlockObj(b: block) -> usize { of_object(Some(b.object())) }
    fn GetInstObj(i: inst) -> usize { of_object(Some(i.object())) }
    fn ObjName(o: object) -> *const c_char { text(o.name()) }
    fn ObjPath(o: object) -> *const c_char { text(o.path()) }
    fn ObjSoname(o: object) -> *const c_char { text_or_null(o.soname()) }

    fn ObjBuildId(o: object) -> *const c_char {
        let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        text_or_null(o.build_id().map::<String, _>(digits).as_deref())
    }

    fn GetObjInfo(o: object, what: u32) -> i64 {
        match what {
            START => o.range().start as i64,
            END => o.range().end as i64,
            INDEX => o.index() as i64,
            IS_PROGRAM => o.is_program().into(),
            IS_INTERPRETER => o.is_interpreter().into(),
            PROC_COUNT => o.procs().len() as i64,
            _ => stop(NAME, format!("there is no information {what}")),
        }
    }

    // Later versions of ATOM read an object before it is instrumented, and write it then; here both are done anyway.
    fn BuildObj(_o: object) -> c_int { 0 }
    fn WriteObj(_o: object) -> c_int { 0 }
}
