//! What `atom trace` makes of a trace is read here by the published layouts of the other programs, and compared with the
//! trace and with the program's instructions.

use std::path::Path;
use std::process::Command;

use atom_tests::atom;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use mem_trace::{EXECUTED, READ, Reference, WRITE};
use object::{Object as _, ObjectSegment as _};

/// An executed instruction, or one repetition of it.
struct Executed {
    pc: u64,
    bytes: Vec<u8>,
    flow: FlowControl,
    /// False for further repetitions.
    is_first: bool,
    reads: Vec<(u64, u64)>,
    writes: Vec<(u64, u64)>,
    /// Address of the next instruction.
    next: Option<u64>,
}

impl Executed {
    fn is_taken(&self) -> bool {
        let is_conditional = self.flow == FlowControl::ConditionalBranch;
        !is_conditional || self.next != Some(self.pc + self.bytes.len() as u64)
    }

    fn is_branch(&self) -> bool {
        use FlowControl::{Call, Exception, Interrupt, Next};
        let is_syscall = self.flow == Call && self.bytes == [0x0f, 0x05];
        !is_syscall && ![Next, Exception, Interrupt].contains(&self.flow)
    }
}

/// The instruction at an address of a program.
fn decode(program: &[u8], pc: u64, size: u64) -> (Instruction, Vec<u8>) {
    let file = object::File::parse(program).unwrap();
    let bytes = file.segments().find_map(|s| s.data_range(pc, size).ok()?);
    let bytes = bytes.unwrap().to_vec();
    let instruction = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
    (instruction, bytes)
}

/// The executed instructions of a trace, each repetition for itself.
fn executed(program: &Path, found: &[Reference]) -> Vec<Executed> {
    let program = std::fs::read(program).unwrap();
    let mut all: Vec<Executed> = Vec::new();
    let mut at = 0;
    while at < found.len() {
        let r = &found[at];
        assert_eq!(r.access, EXECUTED);
        let rest = &found[at + 1..];
        let len = rest.iter().take_while(|r| r.access != EXECUTED).count();
        let (instruction, bytes) = decode(&program, r.pc, r.size);
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let is_string = is_repeated && instruction.is_string_instruction();
        let is_memory = |n: &u32| instruction.op_kind(*n) != OpKind::Register;
        let operands = (0..instruction.op_count()).filter(is_memory).count();
        let each = if is_string { operands } else { len.max(1) };
        let repetitions: Vec<&[Reference]> = match len {
            0 => vec![&[]],
            _ => rest[..len].chunks(each).collect(),
        };
        for (i, references) in repetitions.into_iter().enumerate() {
            let with = |access: u8| {
                let some = references.iter().filter(|r| r.access & access != 0);
                some.map(|r| (r.address, r.size)).collect()
            };
            all.push(Executed {
                pc: r.pc,
                bytes: bytes.clone(),
                flow: instruction.flow_control(),
                is_first: i == 0,
                reads: with(READ),
                writes: with(WRITE),
                next: rest.get(len).map(|r| r.pc),
            });
        }
        at += 1 + len;
    }
    all
}

pub fn convert(trace: &Path, format: &str) -> Vec<u8> {
    let out = trace.with_extension(format);
    let mut command = Command::new(atom::command().unwrap());
    command
        .arg("trace")
        .arg(trace)
        .args(["--format", format, "-o"]);
    let made = command.arg(&out).output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    std::fs::read(&out).unwrap()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The addresses for which a record has places: different ones, at most `most`.
fn places(of: &[(u64, u64)], most: usize) -> Vec<u64> {
    let mut places = Vec::new();
    for (address, _) in of {
        if !places.contains(address) && places.len() < most {
            places.push(*address);
        }
    }
    places
}

/// The kind of a branch, as ChampSim finds it from the registers of a record.
fn champsim_kind(written: &[u8], read: &[u8]) -> FlowControl {
    const SP: u8 = 6;
    const FLAGS: u8 = 25;
    const IP: u8 = 26;
    let (writes_sp, writes_ip) = (written.contains(&SP), written.contains(&IP));
    let (sp, flags, ip) = (
        read.contains(&SP),
        read.contains(&FLAGS),
        read.contains(&IP),
    );
    let others = read.iter().any(|r| ![0, SP, FLAGS, IP].contains(r));
    match () {
        _ if !writes_ip => FlowControl::Next,
        _ if !sp && !flags && !others => FlowControl::UnconditionalBranch,
        _ if !sp && !ip && !flags && others => FlowControl::IndirectBranch,
        _ if !sp && ip && !writes_sp && (flags || others) => FlowControl::ConditionalBranch,
        _ if sp && ip && writes_sp && !flags && !others => FlowControl::Call,
        _ if sp && ip && writes_sp && !flags && others => FlowControl::IndirectCall,
        _ if sp && !ip && writes_sp => FlowControl::Return,
        _ => FlowControl::Exception,
    }
}

fn judge_champsim(label: &str, trace: &Path, executed: &[Executed]) {
    let records = convert(trace, "champsim");
    assert_eq!(records.len(), 64 * executed.len(), "{label}");
    for (record, inst) in records.chunks_exact(64).zip(executed) {
        let label = format!("{label}: {:#x}", inst.pc);
        assert_eq!(number(&record[..8]), inst.pc, "{label}");
        assert_eq!(record[8] != 0, inst.is_branch(), "{label}");
        if inst.is_branch() && inst.next.is_some() {
            assert_eq!(record[9] != 0, inst.is_taken(), "{label}");
        }
        let kind = champsim_kind(&record[10..12], &record[12..16]);
        let flow = if inst.is_branch() {
            inst.flow
        } else {
            FlowControl::Next
        };
        assert_eq!(kind, flow, "{label}");
        let addresses: Vec<u64> = record[16..].chunks_exact(8).map(number).collect();
        let is_used = |a: &u64| *a != 0;
        let writes: Vec<u64> = addresses[..2].iter().copied().filter(is_used).collect();
        let reads: Vec<u64> = addresses[2..].iter().copied().filter(is_used).collect();
        assert_eq!(writes, places(&inst.writes, 2), "{label}");
        assert_eq!(reads, places(&inst.reads, 4), "{label}");
    }
}

/// Entries of drmemtrace: type, size, value.
struct Entries<'e>(std::iter::Peekable<std::slice::ChunksExact<'e, u8>>);

impl Entries<'_> {
    fn next(&mut self) -> (u16, u16, u64) {
        let e = self.0.next().expect("an entry");
        let short = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
        (short(0), short(2), number(&e[4..]))
    }

    fn next_kind(&mut self) -> Option<u16> {
        let e = self.0.peek()?;
        Some(u16::from_le_bytes([e[0], e[1]]))
    }
}

/// Types of entries; their numbers count the enumeration in `trace_entry.h`.
const ENCODING: u16 = 47;
const MARKER: u16 = 28;

fn judge_drmemtrace(label: &str, trace: &Path, executed: &[Executed]) {
    let file = convert(trace, "drmemtrace");
    assert_eq!(file.len() % 12, 0, "{label}");
    let mut entries = Entries(file.chunks_exact(12).peekable());
    // Header, markers of version and of the kind of file, thread, process.
    assert_eq!(entries.next(), (25, 0, 5), "{label}");
    assert_eq!(entries.next(), (MARKER, 12, 5), "{label}");
    assert_eq!(entries.next(), (MARKER, 9, 0x240), "{label}");
    assert_eq!((entries.next().0, entries.next().0), (22, 24), "{label}");
    while entries.next_kind() == Some(MARKER) {
        entries.next();
    }
    for inst in executed {
        let label = format!("{label}: {:#x}", inst.pc);
        let mut encoding: Vec<u8> = Vec::new();
        while entries.next_kind() == Some(ENCODING) {
            let (_, size, value) = entries.next();
            encoding.extend_from_slice(&value.to_le_bytes()[..usize::from(size)]);
        }
        let is_indirect = [
            FlowControl::IndirectBranch,
            FlowControl::IndirectCall,
            FlowControl::Return,
        ]
        .contains(&inst.flow);
        if is_indirect {
            let target = (MARKER, 29, inst.next.unwrap_or(0));
            assert_eq!(entries.next(), target, "{label}");
        }
        if inst.is_first {
            assert_eq!(encoding, inst.bytes, "{label}");
        }
        let kind = match inst.flow {
            _ if !inst.is_first => 29,
            _ if !inst.is_branch() => 10,
            FlowControl::UnconditionalBranch => 11,
            FlowControl::IndirectBranch => 12,
            FlowControl::Call => 14,
            FlowControl::IndirectCall => 15,
            FlowControl::Return => 16,
            FlowControl::ConditionalBranch if inst.next.is_some() && inst.is_taken() => 48,
            _ => 49,
        };
        let size = inst.bytes.len() as u16;
        assert_eq!(entries.next(), (kind, size, inst.pc), "{label}");
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        while let Some(kind @ (0 | 1)) = entries.next_kind() {
            let (_, size, address) = entries.next();
            let to = if kind == 0 { &mut reads } else { &mut writes };
            to.push((address, u64::from(size)));
        }
        assert_eq!((&reads, &writes), (&inst.reads, &inst.writes), "{label}");
    }
    assert_eq!((entries.next().0, entries.next().0), (23, 26), "{label}");
    assert_eq!(entries.next_kind(), None, "{label}");
}

/// Judges the formats of simulators for a trace with instructions, which was read as `found`.
pub fn judge(label: &str, program: &Path, trace: &Path, found: &[Reference]) {
    let executed = executed(program, found);
    judge_champsim(label, trace, &executed);
    judge_drmemtrace(label, trace, &executed);
}
