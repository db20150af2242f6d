//! Every value that a call can pass, at every instruction, in the order of
//! execution. The tests compare them with the processor's state.
//!
//! `--output FILE` gets records of four words: kind and operand number,
//! program counter, two values. `--points FILE` is written by the instrument
//! routine: the addresses of all instrumented instructions, one to a line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Mutex;

use atom_tool::prelude::*;

/// Kinds of records; the test that reads them has the same list.
mod kind {
    pub const ADDRESS: u64 = 1;
    pub const SIZE: u64 = 2;
    pub const LOADED: u64 = 3;
    pub const STORED: u64 = 4;
    pub const LOADED_AFTER: u64 = 5;
    pub const STORED_AFTER: u64 = 6;
    pub const TARGET: u64 = 7;
    pub const NEXT: u64 = 8;
    pub const REGISTER: u64 = 9;
    pub const VECTOR: u64 = 10;
    pub const TAKEN: u64 = 11;
    pub const RETURNED: u64 = 12;
}

static FILE: Mutex<Option<BufWriter<File>>> = Mutex::new(None);

#[analysis]
fn open(output: Str) {
    match atom_tool::output::create(&output) {
        Ok(file) => *FILE.lock().expect("the program has one thread") = Some(file),
        Err(e) => eprintln!("trace: {e}"),
    }
}

#[analysis]
fn close() {
    if let Some(Err(e)) = FILE.lock().expect("one thread").as_mut().map(Write::flush) {
        eprintln!("trace: {e}");
    }
}

#[analysis]
fn note(kind: u64, pc: RegV, first: u64, second: u64) {
    let Ok(mut file) = FILE.lock() else { return };
    if let Some(file) = file.as_mut() {
        for word in [kind, pc.0, first, second] {
            // A full disk shows when the records are compared.
            let _ = file.write_all(&word.to_le_bytes());
        }
    }
}

/// Passes six registers at a time, because only six arguments are in registers.
#[analysis]
fn registers(kind: u64, pc: RegV, a: u64, b: u64, c: u64, d: u64) {
    note_pair(kind, pc, a, b);
    note_pair(kind + 1, pc, c, d);
}

fn note_pair(kind: u64, pc: RegV, first: u64, second: u64) {
    let Ok(mut file) = FILE.lock() else { return };
    if let Some(file) = file.as_mut() {
        for word in [kind << 8 | kind::REGISTER, pc.0, first, second] {
            let _ = file.write_all(&word.to_le_bytes());
        }
    }
}

fn add_values(inst: &Inst) {
    let word = |kind: u64, operand: u8| kind | u64::from(operand) << 8;
    for n in 0..8 {
        if !inst.offers(Before, EffAddrOf(n)) {
            break;
        }
        let kind = word(kind::ADDRESS, n);
        inst.add_call(Before, note, (kind, Reg::Pc, EffAddrOf(n), RepCount));
        if inst.offers(Before, AccessSizeOf(n)) {
            let kind = word(kind::SIZE, n);
            inst.add_call(Before, note, (kind, Reg::Pc, AccessSizeOf(n), 0));
        }
        for (place, kind) in [(Before, kind::LOADED), (After, kind::LOADED_AFTER)] {
            if inst.offers(place, LoadedValueOf(n)) {
                let args = (word(kind, n), Reg::Pc, LoadedValueOf(n), inst.pc());
                inst.add_call(place, note, args);
            }
        }
        for (place, kind) in [(Before, kind::STORED), (After, kind::STORED_AFTER)] {
            if inst.offers(place, StoredValueOf(n)) {
                let args = (word(kind, n), Reg::Pc, StoredValueOf(n), inst.pc());
                inst.add_call(place, note, args);
            }
        }
    }
    if inst.offers(Before, BranchTarget) {
        inst.add_call(Before, note, (kind::TARGET, Reg::Pc, BranchTarget, 0));
    }
    if inst.offers(Before, BrCondValue) {
        inst.add_call(Before, note, (kind::TAKEN, Reg::Pc, BrCondValue, 0));
    }
    if inst.offers(Before, ReturnValue) {
        inst.add_call(Before, note, (kind::RETURNED, Reg::Pc, ReturnValue, 0));
    }
    // After an instruction, the program counter is the address to which control goes.
    inst.add_call(After, note, (kind::NEXT, Reg::Pc, inst.pc(), 0));
}

fn add_registers(inst: &Inst) {
    use Reg::*;
    let fours = [
        [Rax, Rcx, Rdx, Rbx],
        [Rsp, Rbp, Rsi, Rdi],
        [R8, R9, R10, R11],
        [R12, R13, R14, R15],
    ];
    for (i, [a, b, c, d]) in fours.into_iter().enumerate() {
        inst.add_call(Before, registers, (2 * i as u64, Pc, a, b, c, d));
    }
    let vectors = [
        Xmm0, Xmm1, Xmm2, Xmm3, Xmm4, Xmm5, Xmm6, Xmm7, Xmm8, Xmm9, Xmm10, Xmm11, Xmm12, Xmm13,
        Xmm14, Xmm15, Xmm16, Xmm17, Xmm31,
    ];
    for xmm in vectors {
        if inst.offers(Before, xmm) {
            let kind = kind::VECTOR | (xmm as u64 - Xmm0 as u64) << 8;
            inst.add_call(Before, note, (kind, Pc, xmm, HighHalf(xmm)));
        }
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("trace.out");
    let points = options.value("--points")?.unwrap_or("trace.points");
    let with_registers = options.flag("--registers");
    options.finish()?;
    let mut list = BufWriter::new(File::create(points)?);
    program.add_call(Before, open, (output,));
    // atom calls `_fini`, so its stack is not at the original address.
    let procs = program.procs().filter(|p| p.name() != "_fini");
    for inst in procs.flat_map(|p| p.blocks()).flat_map(|b| b.insts()) {
        writeln!(list, "{}", inst.pc())?;
        add_values(&inst);
        if with_registers {
            add_registers(&inst);
        }
    }
    list.flush()?;
    program.add_call(After, close, ());
    Ok(())
}

// A tool for tests, which is not listed.
atom_tool::tool!(instrument, help = "");
