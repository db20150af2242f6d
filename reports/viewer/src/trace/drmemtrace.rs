//! Entries of DynamoRIO's drmemtrace: a file of a thread, uncompressed, in version 5 of the format.
//!
//! An entry has 12 bytes: type, size, address or value. The types are those of `trace_type_t` and `trace_marker_type_t` in
//! `clients/drcachesim/common/trace_entry.h`. The file has the instructions' encodings, so readers need no modules.

use std::io::Write;

use iced_x86::{Code, FlowControl, Instruction};
use mem_trace::{READ, WRITE};

use super::stream::{self, Step};
use super::{Failure, Input};

/// Types of entries.
mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const INSTR: u16 = 10;
    pub const DIRECT_JUMP: u16 = 11;
    pub const INDIRECT_JUMP: u16 = 12;
    pub const DIRECT_CALL: u16 = 14;
    pub const INDIRECT_CALL: u16 = 15;
    pub const RETURN: u16 = 16;
    pub const THREAD: u16 = 22;
    pub const THREAD_EXIT: u16 = 23;
    pub const PID: u16 = 24;
    pub const HEADER: u16 = 25;
    pub const FOOTER: u16 = 26;
    pub const MARKER: u16 = 28;
    pub const NO_FETCH: u16 = 29;
    pub const SYSENTER: u16 = 31;
    pub const ENCODING: u16 = 47;
    pub const TAKEN_JUMP: u16 = 48;
    pub const UNTAKEN_JUMP: u16 = 49;
}

/// Kinds of markers.
mod marker {
    pub const TIMESTAMP: u16 = 2;
    pub const CPU: u16 = 3;
    pub const FILE_TYPE: u16 = 9;
    pub const LINE_SIZE: u16 = 10;
    pub const VERSION: u16 = 12;
    pub const PAGE_SIZE: u16 = 18;
    pub const BRANCH_TARGET: u16 = 29;
}

/// Version of the format: branches say where they lead.
const VERSION: u64 = 5;
/// Kind of the file: recorded on x86-64, with encodings.
const FILE_TYPE: u64 = 0x40 | 0x200;
/// The trace does not know the numbers of process and processor, nor times.
const PROCESS: u64 = 1;

/// What the entries have of an instruction, whenever it is executed.
struct Fixed {
    /// Its kind; of a conditional branch that it is taken.
    kind: u16,
    bytes: Vec<u8>,
    /// Number of references of each repetition.
    repeated: usize,
}

/// Writes the entries of a thread.
pub fn write(reader: &mut Input, thread: u64, to: &mut impl Write) -> Result<(), Failure> {
    let mut has_begun = false;
    let fixed = |i: &Instruction, bytes: &[u8]| Fixed {
        kind: kind(i),
        bytes: bytes.to_vec(),
        repeated: stream::repeated(i),
    };
    stream::each(reader, thread, fixed, |step| {
        if !std::mem::replace(&mut has_begun, true) {
            begin(to, thread)?;
        }
        instruction(to, &step)
    })?;
    entry(to, kind::THREAD_EXIT, 0, thread)?;
    entry(to, kind::FOOTER, 0, 0)
}

fn begin(to: &mut impl Write, thread: u64) -> Result<(), Failure> {
    entry(to, kind::HEADER, 0, VERSION)?;
    entry(to, kind::MARKER, marker::VERSION, VERSION)?;
    entry(to, kind::MARKER, marker::FILE_TYPE, FILE_TYPE)?;
    entry(to, kind::THREAD, 0, thread)?;
    entry(to, kind::PID, 0, PROCESS)?;
    entry(to, kind::MARKER, marker::LINE_SIZE, 64)?;
    entry(to, kind::MARKER, marker::PAGE_SIZE, 4096)?;
    entry(to, kind::MARKER, marker::TIMESTAMP, 1)?;
    entry(to, kind::MARKER, marker::CPU, 0)
}

fn instruction(to: &mut impl Write, step: &Step<'_, Fixed>) -> Result<(), Failure> {
    let fixed = step.code;
    let size = fixed.bytes.len() as u16;
    if step.given == 0 {
        fetch(to, step)?;
    }
    for (i, r) in (step.given..).zip(step.references) {
        if fixed.repeated != 0 && i != 0 && i % fixed.repeated == 0 {
            entry(to, kind::NO_FETCH, size, step.pc)?;
        }
        let len = u16::try_from(r.size).unwrap_or(u16::MAX);
        if r.access & READ != 0 {
            entry(to, kind::READ, len, r.address)?;
        }
        if r.access & WRITE != 0 {
            entry(to, kind::WRITE, len, r.address)?;
        }
    }
    Ok(())
}

/// The entries of an instruction without its references.
fn fetch(to: &mut impl Write, step: &Step<'_, Fixed>) -> Result<(), Failure> {
    let fixed = step.code;
    let kind = match fixed.kind {
        kind::TAKEN_JUMP if !step.is_taken => kind::UNTAKEN_JUMP,
        kind => kind,
    };
    for part in fixed.bytes.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        entry(
            to,
            kind::ENCODING,
            part.len() as u16,
            u64::from_le_bytes(bytes),
        )?;
    }
    if [kind::INDIRECT_JUMP, kind::INDIRECT_CALL, kind::RETURN].contains(&kind) {
        entry(to, kind::MARKER, marker::BRANCH_TARGET, step.next)?;
    }
    entry(to, kind, fixed.bytes.len() as u16, step.pc)
}

fn entry(to: &mut impl Write, kind: u16, size: u16, value: u64) -> Result<(), Failure> {
    let mut bytes = [0; 12];
    bytes[..2].copy_from_slice(&kind.to_le_bytes());
    bytes[2..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_le_bytes());
    Ok(to.write_all(&bytes)?)
}

fn kind(instruction: &Instruction) -> u16 {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => kind::DIRECT_JUMP,
        FlowControl::IndirectBranch => kind::INDIRECT_JUMP,
        FlowControl::ConditionalBranch => kind::TAKEN_JUMP,
        FlowControl::Return => kind::RETURN,
        _ if instruction.code() == Code::Sysenter => kind::SYSENTER,
        FlowControl::Call if instruction.is_call_near() => kind::DIRECT_CALL,
        FlowControl::IndirectCall => kind::INDIRECT_CALL,
        _ => kind::INSTR,
    }
}
