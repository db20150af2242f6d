//! The start-up code: what runs before the program's first instruction.
//!
//! It moves the heap's start back to where it would be without the new
//! segments, relocates the writable part of the new segments and starts the
//! runtime. The kernel places the heap after the highest segment, with a
//! random offset that is kept exactly; `prctl(PR_SET_MM, PR_SET_MM_MAP)` puts
//! it back. All fields of that call but the heap's are what the kernel set for
//! the original image; they are known from the program headers and from the
//! strings on the process stack, so no file of /proc is needed. Where the call
//! is refused, the program runs all the same. The heap is not touched where the
//! new segments are below the image, as they do not displace it then, nor where
//! a loader other than glibc's may have used it already.
//!
//! The hook at the entry point also corrects the auxiliary vector: `AT_ENTRY`
//! names the original entry point, in a static program for `/proc/self/auxv`, too. After that, `AT_PHDR` and
//! `AT_PHNUM` of a static program get to name the program headers meant for libc (`libc_view`). The same headers are entered into
//! the ELF header in memory, where programs and some libcs read them (`__ehdr_start`).
//!
//! Rules of the ABI: at the entry point `rsp` points at argc and `rdx` may hold
//! a function for atexit, so every register is preserved; a preinit function is
//! called with (argc, argv, envp) like any C function.

use crate::x86::assembler::code_asm::*;
use crate::x86::assembler::{IcedError, MemoryOperand};
use crate::x86::{Code, Instruction, Register};

use object::elf::{PF_R, PF_W, PF_X, ProgramFlags};

use crate::PAGE;
use crate::error::{Error, Result};
use crate::image::ObjectKind;
use crate::layout::start_size;
use crate::unwind::write::{Rows, START_ROWS};

/// Facts for the start-up code. Addresses are link-time addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartFacts {
    /// Address of the start-up code.
    pub address: u64,
    /// True if the start-up code moves the heap; false if the heap is at its place or must not
    /// move.
    pub moves_heap: bool,
    /// Page-aligned end of the original image.
    pub image_end: u64,
    /// Page-aligned end of the image with the new segments.
    pub new_end: u64,
    /// Original executable range.
    pub code: (u64, u64),
    /// Original data range.
    pub data: (u64, u64),
    /// Start of the writable segment, to whose slots the load bias is added.
    pub rw: u64,
    /// Table of the slots: 32-bit offsets from `rw`.
    pub relocs: u64,
    /// Number of slots; 0 in a program that is not position independent.
    pub reloc_count: u32,
    /// A byte that is 0 until the start-up code has run; 0 if there is no writable segment.
    pub flag: u64,
    /// Eight bytes that hold the return address while the original `DT_FINI` runs.
    pub exit_return: u64,
    /// `ToolHeader::start`, if there is a tool.
    pub tool_start: Option<u64>,
    /// The `StartInfo`.
    pub tool_info: u64,
    /// `ToolHeader::finish`, if there is a tool.
    pub tool_finish: Option<u64>,
    /// Address of the program headers for libc; `None` if libc sees the headers of the file.
    pub libc_headers: Option<u64>,
    /// Number of program headers for libc.
    pub libc_header_count: u32,
    /// Address of the ELF header in memory, and the flags of its segment (`p_flags`); 0 if a static program
    /// does not map it.
    pub header: (u64, ProgramFlags),
    /// The original entry point.
    pub original_entry: u64,
    /// New address of the original entry point.
    pub entry: u64,
    /// New address of the original `DT_FINI`, if there was one.
    pub fini: Option<u64>,
    /// In a library, the new address of the original `DT_INIT`, if there was one. The outer `None` in a program.
    pub init: Option<Option<u64>>,
}

/// The start-up code and its entry points.
#[derive(Clone, Debug, Default)]
pub struct StartCode {
    /// The code, at `StartFacts::address`.
    pub code: Vec<u8>,
    /// Address for the program's entry point.
    pub entry: u64,
    /// Address for the first preinit function; in a library, for `DT_INIT`.
    pub preinit: u64,
    /// Address for `DT_FINI`.
    pub fini: u64,
    /// Address of a function that does nothing.
    pub nothing: u64,
    /// Rows of the unwind tables for the code.
    pub rows: Vec<u8>,
}

/// Registers that `init` pushes, as DWARF numbers: rbx, rbp, r12.
const SAVED_BY_INIT: [u8; 3] = [3, 6, 12];

const SYS_MPROTECT: u32 = 10;
const SYS_BRK: u32 = 12;
const SYS_PRCTL: u32 = 157;
const PR_SET_MM: u32 = 35;
const PR_SET_MM_MAP: u32 = 14;
/// Size of `struct prctl_mm_map`.
const MAP_SIZE: i32 = 104;
/// Largest distance in bytes of the heap's start from the image's end: 1 GiB of randomisation, and
/// a reserve.
const MAX_HEAP_OFFSET: i32 = 0x4800_0000;

/// Assembles the start-up code.
pub fn assemble(facts: &StartFacts) -> Result<StartCode> {
    // Only programs have this start-up code.
    let space = start_size(ObjectKind::StaticExecutable);
    assemble_inner(facts)
        .map_err(|e| Error::new("writing the start-up code", e.to_string()))
        .and_then(|code| {
            if code.code.len() as u64 > space || code.rows.len() > START_ROWS {
                return Err(Error::new(
                    "writing the start-up code",
                    "it is larger than its place",
                ));
            }
            Ok(code)
        })
}

fn assemble_inner(facts: &StartFacts) -> std::result::Result<StartCode, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut entry = a.create_label();
    let mut preinit = a.create_label();
    let mut fini = a.create_label();
    let mut init = a.create_label();
    let mut heap = a.create_label();

    a.set_label(&mut entry)?;
    begin_program(&mut a, init, facts)?;

    // (argc, argv, envp): argv is after argc on the process stack.
    a.set_label(&mut preinit)?;
    match facts.init {
        None => {
            a.lea(rdi, rsi - 8)?;
            a.jmp(init)?;
        }
        Some(theirs) => begin_library(&mut a, init, theirs)?,
    }

    a.set_label(&mut fini)?;
    finish(&mut a, facts)?;

    // rdi: the process stack at argc.
    a.set_label(&mut init)?;
    let mut done = a.create_label();
    for r in [rbx, rbp, r12] {
        a.push(r)?;
    }
    a.mov(rbp, rsp)?;
    a.mov(r12, rdi)?;
    a.cld()?;
    if facts.flag != 0 {
        address_of(&mut a, Register::RCX, facts.flag)?;
        a.cmp(byte_ptr(rcx), 0)?;
        a.jne(done)?;
        a.mov(byte_ptr(rcx), 1)?;
    }
    if facts.moves_heap {
        a.call(heap)?;
    }
    if facts.reloc_count != 0 {
        relocate(&mut a, facts)?;
    }
    if let Some(start) = facts.tool_start {
        a.and(rsp, -16)?;
        address_of(&mut a, Register::RDI, facts.tool_info)?;
        a.mov(rsi, r12)?;
        a.call(start)?;
    }
    a.set_label(&mut done)?;
    a.mov(rsp, rbp)?;
    for r in [r12, rbp, rbx] {
        a.pop(r)?;
    }
    a.ret()?;

    let mut nothing = a.create_label();
    a.set_label(&mut nothing)?;
    a.ret()?;

    if facts.moves_heap {
        a.set_label(&mut heap)?;
        restore_heap(&mut a, facts)?;
    }

    let result = a.assemble_options(
        facts.address,
        crate::x86::assembler::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS,
    )?;
    let mut functions = vec![
        result.label_ip(&preinit)?,
        result.label_ip(&fini)?,
        result.label_ip(&init)?,
        result.label_ip(&nothing)?,
    ];
    if facts.moves_heap {
        functions.push(result.label_ip(&heap)?);
    }
    let mut start = StartCode {
        entry: result.label_ip(&entry)?,
        preinit: functions[0],
        fini: functions[1],
        nothing: functions[3],
        code: result.inner.code_buffer,
        rows: Vec::new(),
    };
    start.rows = rows(facts, &start.code, &functions).bytes().to_vec();
    Ok(start)
}

/// The code at the entry point. It starts the runtime, then continues at the original's entry point.
fn begin_program(
    a: &mut CodeAssembler,
    init: CodeLabel,
    facts: &StartFacts,
) -> std::result::Result<(), IcedError> {
    let saved = [
        rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
    ];
    for r in saved {
        a.push(r)?;
    }
    if let Some(address) = facts.libc_headers.filter(|_| facts.header.0 != 0) {
        correct_header(a, facts, address)?;
    }
    a.lea(rdi, rsp + 8 * saved.len() as i32)?;
    correct_vector(a, &[(AT_ENTRY, facts.original_entry)], None)?;
    a.call(init)?;
    if let Some(address) = facts.libc_headers {
        a.lea(rdi, rsp + 8 * saved.len() as i32)?;
        let headers = (AT_PHDR, address);
        correct_vector(a, &[headers], Some(facts.libc_header_count))?;
    }
    for r in saved.iter().rev() {
        a.pop(*r)?;
    }
    a.jmp(facts.entry)
}

/// The function at `DT_INIT` of a library. It starts the runtime, then continues at the original's function
/// `theirs`, if there is one, with the arguments of both.
fn begin_library(
    a: &mut CodeAssembler,
    init: CodeLabel,
    theirs: Option<u64>,
) -> std::result::Result<(), IcedError> {
    let arguments = [rdi, rsi, rdx];
    for r in arguments {
        a.push(r)?;
    }
    a.lea(rdi, rsi - 8)?;
    a.call(init)?;
    for r in arguments.iter().rev() {
        a.pop(*r)?;
    }
    match theirs {
        None => a.ret(),
        Some(theirs) => a.jmp(theirs),
    }
}

/// The function at `DT_FINI`. It calls the original's function, at the stack pointer that it has in
/// the original, then the tool's.
fn finish(a: &mut CodeAssembler, facts: &StartFacts) -> std::result::Result<(), IcedError> {
    if let (Some(fini), None) = (facts.fini, facts.tool_finish) {
        a.jmp(fini)?;
    } else if let Some(fini) = facts.fini {
        let slot = MemoryOperand::with_base_displ(Register::RIP, facts.exit_return as i64);
        a.add_instruction(Instruction::with1(Code::Pop_rm64, slot)?)?;
        a.call(fini)?;
        a.add_instruction(Instruction::with1(Code::Push_rm64, slot)?)?;
    }
    a.sub(rsp, 8)?;
    if let Some(finish) = facts.tool_finish {
        a.call(finish)?;
    }
    a.add(rsp, 8)?;
    a.ret()?;
    Ok(())
}

/// The rows of the unwind tables, by following the stack pointer through the code. `functions` are
/// the starts of called functions. The entry point is not called and comes before them.
fn rows(facts: &StartFacts, code: &[u8], functions: &[u64]) -> Rows {
    use crate::x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
    let mut rows = Rows::new(facts.address);
    rows.outermost(facts.address);
    // Values pushed since the function's start: DWARF numbers of registers, `None` for other
    // values.
    let mut depth = 0i64;
    let mut pushed = Vec::new();
    let mut framed = false;
    for instruction in &mut Decoder::with_ip(64, code, facts.address, DecoderOptions::NONE) {
        let at = instruction.ip();
        if functions.contains(&at) {
            (depth, framed) = (0, false);
            pushed.clear();
            rows.below(at, 0);
            for register in SAVED_BY_INIT {
                rows.same(register);
            }
            if at == functions[0] {
                rows.return_below_cfa();
            }
        }
        let next = instruction.next_ip();
        let is_rsp = |op| {
            instruction.op_kind(op) == OpKind::Register
                && instruction.op_register(op) == Register::RSP
        };
        let old = depth;
        match instruction.mnemonic() {
            Mnemonic::Push => {
                depth += 8;
                pushed.push(instruction.op_register(0));
            }
            Mnemonic::Pop => depth -= 8,
            Mnemonic::Sub if is_rsp(0) => depth += instruction.immediate(1) as i64,
            Mnemonic::Add if is_rsp(0) => depth -= instruction.immediate(1) as i64,
            Mnemonic::Mov if is_rsp(1) && instruction.op0_register() == Register::RBP => {
                framed = true;
                rows.base(next, &SAVED_BY_INIT);
            }
            Mnemonic::Mov if is_rsp(0) => {
                framed = false;
                depth = 8 * pushed.len() as i64;
                rows.below(next, depth);
            }
            _ => {}
        }
        if depth != old && !framed {
            rows.below(next, depth);
        }
        // While the original DT_FINI runs, its return address is elsewhere. Unwinders
        // come here from the call's end, and count from there.
        if depth < 0 && old >= 0 {
            const CALL: u64 = 5;
            rows.return_at(next, facts.exit_return.wrapping_sub(next + CALL) as i64);
        } else if depth >= 0 && old < 0 {
            rows.return_below_cfa();
        }
    }
    rows
}

/// Tags of the auxiliary vector.
const AT_PHDR: i32 = 3;
const AT_PHNUM: i32 = 5;
const AT_ENTRY: i32 = 9;

/// rdi: the process stack at argc. The auxiliary vector is after the
/// environment: pairs of a tag and a value, the last with tag 0. Entries with the tags of `corrections` get the run-time
/// addresses, `AT_PHNUM` gets `header_count`.
fn correct_vector(
    a: &mut CodeAssembler,
    corrections: &[(i32, u64)],
    header_count: Option<u32>,
) -> std::result::Result<(), IcedError> {
    let mut environment = a.create_label();
    let mut pairs = a.create_label();
    let mut end = a.create_label();
    a.mov(rax, qword_ptr(rdi))?;
    a.lea(rsi, qword_ptr(rdi + rax * 8 + 16))?;
    a.set_label(&mut environment)?;
    a.add(rsi, 8)?;
    a.cmp(qword_ptr(rsi - 8), 0)?;
    a.jne(environment)?;
    a.set_label(&mut pairs)?;
    a.mov(rax, qword_ptr(rsi))?;
    a.add(rsi, 16)?;
    a.test(rax, rax)?;
    a.je(end)?;
    for (tag, address) in corrections.iter().copied() {
        let mut other = a.create_label();
        a.cmp(rax, tag)?;
        a.jne(other)?;
        address_of(a, Register::RCX, address)?;
        a.mov(qword_ptr(rsi - 8), rcx)?;
        a.set_label(&mut other)?;
    }
    if let Some(count) = header_count {
        a.cmp(rax, AT_PHNUM)?;
        a.jne(pairs)?;
        a.mov(qword_ptr(rsi - 8), count as i32)?;
    }
    a.jmp(pairs)?;
    a.set_label(&mut end)?;
    Ok(())
}

/// Lets the ELF header in memory tell the program headers for libc, which are at `address`. Its page is made writable for that. Where
/// the kernel refuses, the header keeps telling the file's.
fn correct_header(
    a: &mut CodeAssembler,
    facts: &StartFacts,
    address: u64,
) -> std::result::Result<(), IcedError> {
    const E_PHOFF: i32 = 32;
    const E_PHNUM: i32 = 56;
    const PROT_READ: u32 = 1;
    const PROT_WRITE: u32 = 2;
    const PROT_EXEC: u32 = 4;
    let (header, flags) = facts.header;
    let kept = [(PF_R, PROT_READ), (PF_W, PROT_WRITE), (PF_X, PROT_EXEC)];
    let kept = kept.iter().filter(|(flag, _)| flags.contains(*flag));
    let kept: u32 = kept.map(|(_, protection)| protection).sum();
    let mut end = a.create_label();
    address_of(a, Register::RDI, header)?;
    a.mov(esi, PAGE as u32)?;
    a.mov(edx, PROT_READ | PROT_WRITE)?;
    a.mov(eax, SYS_MPROTECT)?;
    a.syscall()?;
    a.test(eax, eax)?;
    a.jne(end)?;
    a.mov(rax, address.wrapping_sub(header))?;
    a.mov(qword_ptr(rdi + E_PHOFF), rax)?;
    a.mov(word_ptr(rdi + E_PHNUM), facts.libc_header_count as i32)?;
    a.mov(edx, kept)?;
    a.mov(eax, SYS_MPROTECT)?;
    a.syscall()?;
    a.set_label(&mut end)
}

/// `lea register, [rip + ...]`: the run-time address of `target`.
pub(super) fn address_of(
    a: &mut CodeAssembler,
    register: Register,
    target: u64,
) -> std::result::Result<(), IcedError> {
    let operand = MemoryOperand::with_base_displ(Register::RIP, target as i64);
    a.add_instruction(Instruction::with2(Code::Lea_r64_m, register, operand)?)
}

/// Adds the load bias to every slot of the table.
fn relocate(a: &mut CodeAssembler, facts: &StartFacts) -> std::result::Result<(), IcedError> {
    let mut next = a.create_label();
    address_of(a, Register::RBX, facts.rw)?;
    a.mov(rcx, facts.rw)?;
    a.mov(rdx, rbx)?;
    a.sub(rdx, rcx)?;
    address_of(a, Register::RSI, facts.relocs)?;
    a.mov(ecx, facts.reloc_count)?;
    a.set_label(&mut next)?;
    a.mov(eax, dword_ptr(rsi))?;
    a.add(qword_ptr(rbx + rax), rdx)?;
    a.add(rsi, 4)?;
    a.dec(ecx)?;
    a.jne(next)?;
    Ok(())
}

/// r12: the process stack at argc.
fn restore_heap(a: &mut CodeAssembler, facts: &StartFacts) -> std::result::Result<(), IcedError> {
    let mut skip = a.create_label();
    a.mov(eax, SYS_BRK)?;
    a.xor(edi, edi)?;
    a.syscall()?;
    // Only a heap that the kernel placed after the new segments is moved.
    address_of(a, Register::RCX, facts.new_end)?;
    a.sub(rax, rcx)?;
    a.jb(skip)?;
    a.cmp(rax, MAX_HEAP_OFFSET)?;
    a.ja(skip)?;
    address_of(a, Register::RCX, facts.image_end)?;
    a.add(rax, rcx)?;
    a.mov(r8, qword_ptr(r12))?;
    a.test(r8, r8)?;
    a.je(skip)?;
    a.sub(rsp, MAP_SIZE)?;
    for (slot, address) in [facts.code.0, facts.code.1, facts.data.0, facts.data.1]
        .into_iter()
        .enumerate()
    {
        address_of(a, Register::RCX, address)?;
        a.mov(qword_ptr(rsp + 8 * slot as i32), rcx)?;
    }
    // start_brk, brk, start_stack
    a.mov(qword_ptr(rsp + 32), rax)?;
    a.mov(qword_ptr(rsp + 40), rax)?;
    a.mov(qword_ptr(rsp + 48), r12)?;
    // The strings of arguments and environment follow each other.
    a.lea(rsi, qword_ptr(r12 + 8))?;
    for slot in [56, 72] {
        let mut strings = a.create_label();
        let mut last = a.create_label();
        let mut chars = a.create_label();
        let mut empty = a.create_label();
        a.mov(rdi, qword_ptr(rsi))?;
        a.test(rdi, rdi)?;
        a.jne(strings)?;
        // No environment: an empty range after the arguments.
        a.mov(rdi, qword_ptr(rsp + 64))?;
        a.mov(qword_ptr(rsp + slot), rdi)?;
        a.jmp(empty)?;
        a.set_label(&mut strings)?;
        a.mov(qword_ptr(rsp + slot), rdi)?;
        a.set_label(&mut last)?;
        a.mov(rdi, qword_ptr(rsi))?;
        a.add(rsi, 8)?;
        a.cmp(qword_ptr(rsi), 0)?;
        a.jne(last)?;
        a.set_label(&mut chars)?;
        a.inc(rdi)?;
        a.cmp(byte_ptr(rdi - 1), 0)?;
        a.jne(chars)?;
        a.set_label(&mut empty)?;
        a.mov(qword_ptr(rsp + slot + 8), rdi)?;
        a.add(rsi, 8)?;
    }
    if facts.libc_headers.is_none() {
        // The kernel keeps its auxiliary vector.
        a.mov(qword_ptr(rsp + 88), 0)?;
        a.mov(dword_ptr(rsp + 96), 0)?;
    } else {
        // The vector on the stack is the original's by now, as `/proc/self/auxv` shows it then.
        let mut pairs = a.create_label();
        a.mov(qword_ptr(rsp + 88), rsi)?;
        a.mov(rdi, rsi)?;
        a.set_label(&mut pairs)?;
        a.add(rdi, 16)?;
        a.cmp(qword_ptr(rdi - 16), 0)?;
        a.jne(pairs)?;
        a.sub(rdi, rsi)?;
        a.mov(dword_ptr(rsp + 96), edi)?;
    }
    // No executable: the kernel keeps it.
    a.mov(dword_ptr(rsp + 100), -1)?;
    a.mov(eax, SYS_PRCTL)?;
    a.mov(edi, PR_SET_MM)?;
    a.mov(esi, PR_SET_MM_MAP)?;
    a.mov(rdx, rsp)?;
    a.mov(r10d, MAP_SIZE)?;
    a.xor(r8d, r8d)?;
    a.syscall()?;
    a.add(rsp, MAP_SIZE)?;
    a.set_label(&mut skip)?;
    a.ret()?;
    Ok(())
}
