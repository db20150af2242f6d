//! The objects of a process.

use std::ffi::{c_char, c_int};

use super::handles::{
    block, inst, number, object, of_proc, proc, program, stop, text, text_or_null,
};

fn of_object(object: Option<atom_tool::Object>) -> usize {
    number(object.map(|object| object.index()))
}

/// The object at a distance from another one in the load order.
fn beside(handle: usize, distance: isize, primitive: &str) -> usize {
    let index = object(handle, primitive)
        .index()
        .checked_add_signed(distance);
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
extern "C" fn GetNextObj(handle: usize) -> usize {
    beside(handle, 1, "GetNextObj")
}

#[unsafe(no_mangle)]
extern "C" fn GetPrevObj(handle: usize) -> usize {
    beside(handle, -1, "GetPrevObj")
}

#[unsafe(no_mangle)]
extern "C" fn GetFirstObjProc(handle: usize) -> usize {
    of_proc(object(handle, "GetFirstObjProc").procs().next())
}

#[unsafe(no_mangle)]
extern "C" fn GetLastObjProc(handle: usize) -> usize {
    of_proc(object(handle, "GetLastObjProc").procs().next_back())
}

#[unsafe(no_mangle)]
extern "C" fn GetProcObj(handle: usize) -> usize {
    of_object(Some(proc(handle, "GetProcObj").object()))
}

#[unsafe(no_mangle)]
extern "C" fn GetBlockObj(handle: usize) -> usize {
    of_object(Some(block(handle, "GetBlockObj").object()))
}

#[unsafe(no_mangle)]
extern "C" fn GetInstObj(handle: usize) -> usize {
    of_object(Some(inst(handle, "GetInstObj").object()))
}

#[unsafe(no_mangle)]
extern "C" fn GetObjAt(pc: u64) -> usize {
    of_object(program().object_at(pc))
}

#[unsafe(no_mangle)]
extern "C" fn ObjName(handle: usize) -> *const c_char {
    text(object(handle, "ObjName").name())
}

#[unsafe(no_mangle)]
extern "C" fn ObjPath(handle: usize) -> *const c_char {
    text(object(handle, "ObjPath").path())
}

#[unsafe(no_mangle)]
extern "C" fn ObjSoname(handle: usize) -> *const c_char {
    text_or_null(object(handle, "ObjSoname").soname())
}

#[unsafe(no_mangle)]
extern "C" fn ObjBuildId(handle: usize) -> *const c_char {
    let id = object(handle, "ObjBuildId").build_id();
    let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
    text_or_null(id.map::<String, _>(digits).as_deref())
}

/// Numbers of `ObjInfoType`.
const START: u32 = 0;
const END: u32 = 1;
const INDEX: u32 = 2;
const IS_PROGRAM: u32 = 3;
const IS_INTERPRETER: u32 = 4;
const PROC_COUNT: u32 = 5;

#[unsafe(no_mangle)]
extern "C" fn GetObjInfo(handle: usize, what: u32) -> i64 {
    let object = object(handle, "GetObjInfo");
    match what {
        START => object.range().start as i64,
        END => object.range().end as i64,
        INDEX => object.index() as i64,
        IS_PROGRAM => object.is_program().into(),
        IS_INTERPRETER => object.is_interpreter().into(),
        PROC_COUNT => object.procs().len() as i64,
        _ => stop("GetObjInfo", format!("there is no information {what}")),
    }
}

#[unsafe(no_mangle)]
extern "C" fn PCName(pc: u64) -> *const c_char {
    text(&program().address_text(pc))
}

/// Later versions of ATOM read an object before it is instrumented, and write it then; here both are done anyway.
#[unsafe(no_mangle)]
extern "C" fn BuildObj(handle: usize) -> c_int {
    object(handle, "BuildObj");
    0
}

#[unsafe(no_mangle)]
extern "C" fn WriteObj(handle: usize) -> c_int {
    object(handle, "WriteObj");
    0
}
