//! The start-up code of a process whose objects are all instrumented.
//!
//! It is at the entry point of the rewritten program interpreter, where the kernel starts the
//! process. It maps the area that the objects share, starts the runtime, and continues at the
//! interpreter's own entry point. ABI: at the entry point `rsp` points at argc; no other register holds
//! anything, but all are kept.

use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;

use atom_abi::StartInfo;

use crate::error::{Error, Result};
use crate::image::ObjectKind;
use crate::layout::{Area, start_size};
use crate::x86::Register;
use crate::x86::assembler::code_asm::*;
use crate::x86::assembler::{BlockEncoderOptions, IcedError};

use super::area::file_offset;
use super::start::{StartCode, address_of};

const DOING: &str = "writing the start-up code";

const PROT_READ_EXECUTE: u32 = (libc::PROT_READ | libc::PROT_EXEC) as u32;
const PROT_READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
/// Does not replace a map that is there already. Kernels before 4.17 do not know it and take the
/// address for a hint; then the answer is another address.
const MAP_FLAGS: u32 = (libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE) as u32;
/// Exit code if the area cannot be mapped: the code of a shell for what cannot be executed.
const EXIT_CODE: u32 = 126;

/// Facts for the start-up code.
pub(super) struct ProcessStart<'a> {
    /// Address of the start-up code in the interpreter's file.
    pub address: u64,
    /// The area.
    pub area: &'a Area,
    /// New address of the interpreter's entry point.
    pub entry: u64,
    /// The functions that make the calls at the program's start and end exist.
    pub has: (bool, bool),
}

/// Assembles the start-up code.
pub(super) fn assemble(facts: &ProcessStart<'_>) -> Result<StartCode> {
    let fail = |reason: String| Error::new(DOING, reason).file(&facts.area.file);
    // The path and the message follow the code, which has the same size wherever they are.
    let assemble =
        |path, message| assemble_inner(facts, path, message).map_err(|e| fail(e.to_string()));
    let size = assemble(facts.address, (facts.address, 0))?.0.len() as u64;
    let path = facts.area.file.as_os_str().as_bytes();
    let message = format!(
        "atom: the shared part of this instrumented program cannot be mapped: {}\n",
        facts.area.file.display()
    );
    let path_address = facts.address + size;
    let message_address = path_address + path.len() as u64 + 1;
    let (mut code, nothing) = assemble(path_address, (message_address, message.len() as u32))?;
    if code.len() as u64 != size {
        return Err(fail(
            "its size depends on addresses (a defect of atom)".into(),
        ));
    }
    code.extend_from_slice(path);
    code.push(0);
    code.extend_from_slice(message.as_bytes());
    if code.len() as u64 > start_size(ObjectKind::Interpreter) {
        return Err(fail("the path of the cache's folder is too long".into())
            .advice("set XDG_CACHE_HOME to a folder with a shorter path"));
    }
    Ok(StartCode {
        code,
        entry: facts.address,
        nothing,
        ..StartCode::default()
    })
}

/// The code, and the address of a function that does nothing. `path` is the address of the area's path,
/// `message` the address and the length of what is printed if the area cannot be mapped.
fn assemble_inner(
    facts: &ProcessStart<'_>,
    path: u64,
    message: (u64, u32),
) -> std::result::Result<(Vec<u8>, u64), IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut nothing = a.create_label();
    let mut failed = a.create_label();
    let saved = [
        rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
    ];
    for r in saved {
        a.push(r)?;
    }
    a.lea(r12, rsp + 8 * saved.len() as i32)?;
    let area = facts.area;
    a.mov(eax, libc::SYS_open as u32)?;
    address_of(&mut a, Register::RDI, path)?;
    a.mov(esi, (libc::O_RDONLY | libc::O_CLOEXEC) as u32)?;
    a.syscall()?;
    a.test(eax, eax)?;
    a.js(failed)?;
    a.mov(r13, rax)?;
    let offset = file_offset(area);
    let maps = [
        (area.start, area.rw - area.start, PROT_READ_EXECUTE, 0),
        (area.rw, area.end - area.rw, PROT_READ_WRITE, offset),
    ];
    for (start, size, protection, offset) in maps.into_iter().filter(|m| m.1 != 0) {
        a.mov(eax, libc::SYS_mmap as u32)?;
        a.mov(edi, start as u32)?;
        a.mov(esi, size as u32)?;
        a.mov(edx, protection)?;
        a.mov(r10d, MAP_FLAGS)?;
        a.mov(r8, r13)?;
        a.mov(r9d, offset as u32)?;
        a.syscall()?;
        a.cmp(rax, start as i32)?;
        a.jne(failed)?;
    }
    a.mov(eax, libc::SYS_close as u32)?;
    a.mov(rdi, r13)?;
    a.syscall()?;
    // The two functions are in this object.
    address_of(&mut a, Register::RBX, facts.address)?;
    a.mov(rcx, facts.address)?;
    a.sub(rbx, rcx)?;
    let slots = [
        (facts.has.0, offset_of!(StartInfo, program_before)),
        (facts.has.1, offset_of!(StartInfo, program_after)),
    ];
    for (exists, slot) in slots {
        let slot = (area.info + slot as u64) as i32;
        if exists {
            a.add(qword_ptr(slot), rbx)?;
        } else {
            a.lea(rcx, ptr(nothing))?;
            a.mov(qword_ptr(slot), rcx)?;
        }
    }
    a.mov(rbp, rsp)?;
    a.and(rsp, -16)?;
    a.mov(edi, area.info as u32)?;
    a.mov(rsi, r12)?;
    a.mov(eax, area.runtime as u32)?;
    a.call(rax)?;
    a.mov(rsp, rbp)?;
    for r in saved.iter().rev() {
        a.pop(*r)?;
    }
    a.jmp(facts.entry)?;

    a.set_label(&mut failed)?;
    a.mov(eax, libc::SYS_write as u32)?;
    a.mov(edi, 2)?;
    address_of(&mut a, Register::RSI, message.0)?;
    a.mov(edx, message.1)?;
    a.syscall()?;
    a.mov(eax, libc::SYS_exit_group as u32)?;
    a.mov(edi, EXIT_CODE)?;
    a.syscall()?;
    a.set_label(&mut nothing)?;
    a.ret()?;

    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = a.assemble_options(facts.address, options)?;
    let nothing = result.label_ip(&nothing)?;
    Ok((result.inner.code_buffer, nothing))
}
