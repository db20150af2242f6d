//! Queries about the program and its procedures.

use std::ffi::{c_char, c_int};

use atom_tool::{ProgramInfo, Reg, Status};

use super::handles::{give, nth, of_proc, primitives, program, stop, text, text_or_null, word};

#[unsafe(no_mangle)]
extern "C" fn GetProgramName() -> *const c_char {
    text(program().name())
}

#[unsafe(no_mangle)]
extern "C" fn GetProgramPath() -> *const c_char {
    text(program().path())
}

#[unsafe(no_mangle)]
extern "C" fn GetProgramInfo(what: u32) -> i64 {
    const ALL: [ProgramInfo; 10] = [
        ProgramInfo::TextStartAddress,
        ProgramInfo::TextSize,
        ProgramInfo::InitDataStartAddress,
        ProgramInfo::InitDataSize,
        ProgramInfo::UninitDataStartAddress,
        ProgramInfo::UninitDataSize,
        ProgramInfo::MayHaveThreads,
        ProgramInfo::ProcCount,
        ProgramInfo::BlockCount,
        ProgramInfo::InstCount,
    ];
    match ALL.get(what as usize) {
        Some(what) => program().info(*what) as i64,
        None => stop("GetProgramInfo", format!("there is no information {what}")),
    }
}

/// # Safety
/// `name` is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetNamedProc(name: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    of_proc(program().named_proc(unsafe { word(name, "GetNamedProc") }))
}

/// # Safety
/// `name` is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetNamedProcs(name: *const c_char, n: c_int) -> usize {
    // SAFETY: the caller's promise.
    let name = unsafe { word(name, "GetNamedProcs") };
    of_proc(nth(program().procs_named(name), n))
}

/// # Safety
/// `pattern` is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetMatchingProc(pattern: *const c_char, n: c_int) -> usize {
    const NAME: &str = "GetMatchingProc";
    // SAFETY: the caller's promise.
    let found = program().procs_matching(unsafe { word(pattern, NAME) });
    of_proc(nth(found.unwrap_or_else(|e| stop(NAME, e)), n))
}

/// The number of a register in C, `REG_NOTUSED` for none.
pub fn reg_number(reg: Option<Reg>) -> c_int {
    reg.map_or(-1, |reg| reg.number() as c_int)
}

/// A register that a procedure saves.
#[repr(C)]
pub struct SavedReg {
    reg: c_int,
    offset: c_int,
}

primitives! {
    fn ProcName(p: proc) -> *const c_char { text(p.name()) }
    fn ProcSymbol(p: proc) -> *const c_char { text(p.symbol()) }
    fn ProcFileName(p: proc) -> *const c_char { text_or_null(p.file()) }
    fn InstFileName(i: inst) -> *const c_char { text_or_null(i.line().map(|line| line.0)) }
    fn IsProcStub(p: proc) -> c_int { p.is_stub().into() }
    fn IsProcSelected(p: proc) -> c_int { p.is_selected().into() }
    fn IsBlockSelected(b: block) -> c_int { b.is_selected().into() }

    fn GetProcStatus(p: proc) -> c_int {
        match p.status() {
            Status::Full => 0,
            Status::Partial => 1,
            Status::Opaque => 2,
        }
    }

    fn GetProcInfo(p: proc, what: u32) -> i64 {
        // The numbers of `ProcInfoType`; registers are none without a frame, other numbers 0.
        let frame = p.frame();
        let of = |number: &dyn Fn(&atom_tool::Frame) -> i64| frame.as_ref().map_or(0, number);
        match what {
            0 => of(&|f| f.size() as i64),
            1 => of(&|f| f.int_mask().into()),
            2 => of(&|f| f.int_offset().unwrap_or(0).into()),
            3 => of(&|f| f.float_mask().into()),
            // There is no global pointer.
            4 | 5 => 0,
            6 => of(&|f| f.local_offset().into()),
            7 => reg_number(frame.and_then(|f| f.frame_reg())).into(),
            // The return address is on the stack.
            8 => -1,
            9 => of(&|f| f.return_offset().into()),
            10 => of(&|f| f.landing_size().into()),
            11 => of(&|f| f.is_dynamic().into()),
            12 => of(&|f| f.from_tables().into()),
            _ => stop(NAME, format!("there is no information {what}")),
        }
    }

    fn GetProcSavedReg(p: proc, n: c_int) gives SavedReg {
        let saved = |(reg, offset): (Reg, i32)| SavedReg {
            reg: reg_number(Some(reg)),
            offset,
        };
        let frame = p.frame();
        let all = frame.iter().flat_map(|f| f.saved_ints().chain(f.saved_floats()));
        nth(all.map(saved).collect(), n)
    }
}

/// One of the functions that an instruction comes from by inlining.
#[repr(C)]
pub struct SourceFrame {
    name: *const c_char,
    symbol: *const c_char,
    file: *const c_char,
    line: c_int,
    column: c_int,
}

/// # Safety
/// `to` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetSourceFrame(pc: u64, n: c_int, to: *mut SourceFrame) -> c_int {
    let item = nth(program().source_frames(pc), n).map(|frame| SourceFrame {
        name: text(frame.name),
        symbol: text(frame.symbol),
        file: text_or_null(frame.file),
        line: frame.line.unwrap_or(0) as c_int,
        column: frame.column.unwrap_or(0) as c_int,
    });
    // SAFETY: the caller's promise.
    unsafe { give(item, to, "GetSourceFrame") }
}

#[unsafe(no_mangle)]
extern "C" fn GetInstBinary(pc: u64) -> c_int {
    first_four(program().bytes_at(pc, 4))
}

/// The first four bytes as a number.
pub fn first_four(bytes: &[u8]) -> c_int {
    let mut word = [0; 4];
    let n = bytes.len().min(4);
    word[..n].copy_from_slice(&bytes[..n]);
    i32::from_le_bytes(word)
}

/// # Safety
/// `to` may be written with `n` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn GetBytes(pc: u64, n: c_int, to: *mut u8) -> c_int {
    let bytes = program().bytes_at(pc, usize::try_from(n).unwrap_or(0));
    // SAFETY: the caller's promise; `bytes` has at most n bytes.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    bytes.len() as c_int
}
