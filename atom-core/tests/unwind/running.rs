//! Programs whose code was moved, run: the system's unwinder and the languages'
//! personality routines are the judges of the tables.
//!
//! Moving is done here in the simplest way: each FDE's code is encoded again at
//! a new address with `nop`s strewn in, its old place starts with a jump to the
//! new one, and the rest of the old place is filled with `int3`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_core::unwind::write::{MovedRange, UnwindBlobs, build, check};
use atom_core::unwind::{CFA_AT_ENTRY, Fde};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock,
};
use object::{Object, ObjectSection};

use crate::corpus::{Program, Random};

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;

/// How code is moved.
#[derive(Clone, Copy)]
struct How {
    /// Old code is overwritten.
    strict: bool,
    /// The halves of each FDE's code are moved apart.
    torn: bool,
}

const PLAIN: How = How {
    strict: true,
    torn: false,
};
const TORN: How = How {
    strict: true,
    torn: true,
};
const LENIENT: How = How {
    strict: false,
    torn: false,
};

/// A directory of its own for each test, removed when done.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atom-unwind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/unwind/programs")
        .join(name)
}

pub fn compile(compiler: &str, arguments: &[&str], source: &Path, out: &Path) {
    let done = Command::new(compiler)
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(out)
        .output()
        .unwrap_or_else(|e| panic!("this test needs {compiler}: {e}; `.ci/run` installs it"));
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn run(program: &Path) -> Output {
    // Another test may be starting a process that has the file open for writing.
    for _ in 0..200 {
        match Command::new(program).output() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done.expect("it can be started"),
        }
    }
    panic!("{} stays busy", program.display());
}

/// Moves a program's code and compares what it does with the original.
/// Returns how much was moved.
fn moved_program_behaves(original: &Path, how: How, code: i32) -> usize {
    // The same name, since a program may print it.
    let folder = original.with_extension("moved");
    std::fs::create_dir_all(&folder).expect("a directory");
    let moved = folder.join(original.file_name().expect("a file"));
    let count = move_code(original, &moved, how);
    let (expected, found) = (run(original), run(&moved));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        text(&found.stdout),
        text(&expected.stdout),
        "{}",
        text(&found.stderr)
    );
    assert_eq!(text(&found.stderr), text(&expected.stderr));
    assert_eq!(found.status, expected.status);
    assert_eq!(
        expected.status.code(),
        Some(code),
        "{}",
        text(&found.stderr)
    );
    count
}

#[test]
fn cpp_by_gcc() {
    let folder = Folder::new("gcc");
    for (i, level) in ["-O2", "-O0", "-O3", "-Os"].into_iter().enumerate() {
        let program = folder.0.join(format!("gcc{i}"));
        let flags = [
            level,
            "-std=c++14",
            "-fno-jump-tables",
            "-fnon-call-exceptions",
            "-DNON_CALL_EXCEPTIONS",
            "-w",
        ];
        compile("g++", &flags, &source("exceptions.cc"), &program);
        assert!(moved_program_behaves(&program, PLAIN, 17) > 10);
        assert!(moved_program_behaves(&program, TORN, 17) > 10);
    }
}

#[test]
fn cpp_without_position_independence() {
    let folder = Folder::new("nopie");
    let program = folder.0.join("nopie");
    let mut flags = vec![
        "-O2",
        "-std=c++14",
        "-fno-jump-tables",
        "-fnon-call-exceptions",
        "-DNON_CALL_EXCEPTIONS",
        "-w",
        "-no-pie",
        "-fno-pie",
    ];
    compile("g++", &flags, &source("exceptions.cc"), &program);
    assert!(moved_program_behaves(&program, PLAIN, 17) > 10);
    assert!(moved_program_behaves(&program, TORN, 17) > 10);
    // The C library's assembly branches between procedures: leave the old text.
    flags.push("-static");
    let program = folder.0.join("static");
    compile("g++", &flags, &source("exceptions.cc"), &program);
    assert!(moved_program_behaves(&program, LENIENT, 17) > 1000);
}

#[test]
fn cpp_by_clang() {
    let folder = Folder::new("clang");
    for (i, level) in ["-O2", "-O0"].into_iter().enumerate() {
        let program = folder.0.join(format!("clang{i}"));
        let flags = [
            level,
            "-std=c++14",
            "-fno-jump-tables",
            "-w",
            "-fPIE",
            "-pie",
        ];
        compile("clang++", &flags, &source("exceptions.cc"), &program);
        assert!(moved_program_behaves(&program, PLAIN, 17) > 10);
        assert!(moved_program_behaves(&program, TORN, 17) > 10);
    }
}

#[test]
fn rust_panics() {
    let folder = Folder::new("rust");
    let program = folder.0.join("panics");
    let flags = ["--edition=2021", "-O", "-Cpanic=unwind"];
    compile("rustc", &flags, &source("panics.rs"), &program);
    assert!(moved_program_behaves(&program, PLAIN, 0) > 300);
    assert!(moved_program_behaves(&program, TORN, 0) > 300);
}

/// The cold part of a procedure is not entered by a call, and its frame says so.
#[test]
fn cold_parts_are_told_from_procedures() {
    use object::ObjectSymbol;
    let folder = Folder::new("cold");
    let path = folder.0.join("cold");
    compile(
        "g++",
        &["-O2", "-std=c++14", "-w"],
        &source("exceptions.cc"),
        &path,
    );
    let program = Program::open(path.clone()).expect("a program");
    let table = program.table();
    let data = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let mut cold = 0;
    for symbol in file.symbols() {
        let name = symbol.name().unwrap_or_default();
        let Some(fde) = table.fdes.iter().find(|f| f.start == symbol.address()) else {
            continue;
        };
        if name.ends_with(".cold") {
            cold += usize::from(fde.cfa_at_start != CFA_AT_ENTRY);
        } else if symbol.kind() == object::SymbolKind::Text {
            assert_eq!(fde.cfa_at_start, CFA_AT_ENTRY, "{name}");
        }
    }
    assert!(cold > 2, "only {cold} cold parts");
}

/// Code of one FDE, or of a half of it, decoded.
struct Body {
    old: (u64, u64),
    instructions: Vec<Instruction>,
    /// It starts an FDE, and so may be entered from anywhere.
    entry: bool,
}

impl Body {
    /// Makes two of it, the later first.
    fn tear(self) -> Vec<Body> {
        let middle = self.instructions.len() / 2;
        let Some(next) = self.instructions.get(middle).map(Instruction::ip) else {
            return vec![self];
        };
        if next == self.old.0 {
            return vec![self];
        }
        let mut first = self.instructions[..middle].to_vec();
        let mut jump = Instruction::with_branch(Code::Jmp_rel32_64, next).expect("a branch");
        jump.set_ip(0);
        first.push(jump);
        let second = Body {
            old: (next, self.old.1),
            instructions: self.instructions[middle..].to_vec(),
            entry: false,
        };
        let first = Body {
            old: (self.old.0, next),
            instructions: first,
            entry: self.entry,
        };
        vec![second, first]
    }
}

/// The code of an FDE, if this simple mover can handle it.
fn body(program: &Program, fde: &Fde) -> Option<Body> {
    let bytes = program.memory().at(fde.start)?.get(..fde.size as usize)?;
    let decoder = Decoder::with_ip(64, bytes, fde.start, DecoderOptions::NONE);
    let instructions: Vec<Instruction> = decoder.into_iter().collect();
    let moves =
        |i: &Instruction| !i.is_invalid() && i.flow_control() != FlowControl::IndirectBranch;
    let whole = instructions.last()?.next_ip() == fde.end();
    (fde.size >= 5 && whole && instructions.iter().all(moves)).then_some(Body {
        old: (fde.start, fde.end()),
        instructions,
        entry: true,
    })
}

/// Writes a copy of the program with its code moved; returns how many FDEs were.
fn move_code(from: &Path, to: &Path, how: How) -> usize {
    let program = Program::open(from.to_owned()).expect("a program");
    let mut data = std::fs::read(from).expect("it was read before");
    let table = program.table();
    let text = section(&data, ".text");
    let mut bodies: Vec<Body> = Vec::new();
    for fde in &table.fdes {
        let signal = table.cies[fde.cie as usize].signal_frame;
        let free = bodies.last().is_none_or(|b| b.old.1 <= fde.start);
        if text.contains(&fde.start) && !signal && free && check(&table, fde).is_ok() {
            bodies.extend(body(&program, fde));
        }
    }
    if how.torn {
        bodies = bodies.into_iter().flat_map(Body::tear).collect();
    }
    let start = program.end.next_multiple_of(4096) + (64 << 20);
    let (code, mut ranges, map) = encode(&bodies, start);
    ranges.sort_by_key(|r| r.old_start);
    let place = start + code.len() as u64 + 5;
    let blobs = build(&table, &ranges, &|old| map.get(&old).copied(), place).expect("tables");
    assert_eq!(blobs.undescribed, []);
    if how.strict {
        for range in &ranges {
            let at = file_offset(&data, range.old_start);
            let size = (range.old_end - range.old_start) as usize;
            data[at..at + size].fill(0xcc);
        }
    }
    let mut count = 0;
    for body in bodies.iter().filter(|body| body.entry) {
        let at = file_offset(&data, body.old.0);
        let range = ranges.iter().find(|r| r.old_start == body.old.0);
        let new = range.expect("every body has a range").new_start;
        data[at] = 0xe9;
        let distance = new.wrapping_sub(body.old.0 + 5) as u32;
        data[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
        count += 1;
    }
    append(&mut data, start, &code, &blobs);
    std::fs::write(to, &data).expect("it can be written");
    let permissions = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, permissions).unwrap();
    count
}

/// Encodes bodies one after the other; also tells where each instruction went.
fn encode(bodies: &[Body], start: u64) -> (Vec<u8>, Vec<MovedRange>, HashMap<u64, u64>) {
    let mut random = Random(77);
    let mut strewn = Vec::new();
    for body in bodies {
        let mut list = Vec::new();
        for instruction in &body.instructions {
            for _ in 0..random.below(3) {
                // No address of its own, so that no branch leads to it.
                let mut nop = Instruction::with(Code::Nopd);
                nop.set_ip(0);
                list.push(nop);
            }
            list.push(*instruction);
        }
        strewn.push(list);
    }
    let mut at = start;
    let blocks: Vec<_> = bodies
        .iter()
        .zip(&strewn)
        .map(|(body, list)| {
            let block = InstructionBlock::new(list, at);
            at = (at + 3 * (body.old.1 - body.old.0) + 4 * list.len() as u64).next_multiple_of(16);
            block
        })
        .collect();
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let encoded = BlockEncoder::encode_slice(64, &blocks, options).expect("it can be encoded");
    let mut code = vec![0xcc; (at - start) as usize];
    let mut ranges = Vec::new();
    let mut map = HashMap::new();
    for ((body, list), block) in bodies.iter().zip(&strewn).zip(encoded) {
        let offset = (block.rip - start) as usize;
        code[offset..offset + block.code_buffer.len()].copy_from_slice(&block.code_buffer);
        let mut first = None;
        for (instruction, &at) in list.iter().zip(&block.new_instruction_offsets) {
            let at = *first.get_or_insert(block.rip + u64::from(at));
            if instruction.ip() != 0 {
                map.insert(instruction.ip(), at);
                first = None;
            }
        }
        ranges.push(MovedRange {
            old_start: body.old.0,
            old_end: body.old.1,
            new_start: block.rip,
            new_end: block.rip + block.code_buffer.len() as u64,
        });
    }
    (code, ranges, map)
}

fn section(data: &[u8], name: &str) -> std::ops::Range<u64> {
    let file = object::File::parse(data).expect("it is a program");
    let section = file.section_by_name(name).expect("it has text");
    section.address()..section.address() + section.size()
}

/// Offsets of the program headers in the file.
fn headers(data: &[u8]) -> impl Iterator<Item = usize> {
    let start = word(data, 0x20) as usize;
    let count = usize::from(u16::from_le_bytes([data[0x38], data[0x39]]));
    (0..count).map(move |i| start + 56 * i)
}

fn word(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

fn kind(data: &[u8], header: usize) -> u32 {
    u32::from_le_bytes(data[header..header + 4].try_into().unwrap())
}

fn file_offset(data: &[u8], address: u64) -> usize {
    let holds = |h: &usize| {
        let start = word(data, h + 16);
        kind(data, *h) == PT_LOAD && (start..start + word(data, h + 32)).contains(&address)
    };
    let header = headers(data).find(holds).expect("code is loaded");
    (address - word(data, header + 16) + word(data, header + 8)) as usize
}

/// Appends a segment with the code and the tables, in place of a note.
fn append(data: &mut Vec<u8>, start: u64, code: &[u8], blobs: &UnwindBlobs) {
    let base = data.len().next_multiple_of(4096);
    data.resize(base, 0);
    data.extend_from_slice(code);
    let mut index = None;
    for blob in [&blobs.except_table, &blobs.eh_frame, &blobs.eh_frame_hdr] {
        data.resize(base + (blob.address - start) as usize, 0);
        index = Some((data.len(), blob));
        data.extend_from_slice(&blob.bytes);
    }
    let size = (data.len() - base) as u64;
    let (index_offset, index) = index.expect("there are three tables");
    let index_size = index.bytes.len() as u64;
    let find = |wanted| -> Vec<usize> {
        let all = headers(data);
        all.filter(|&h| kind(data, h) == wanted).collect()
    };
    let (notes, old_index) = (find(PT_NOTE), find(PT_GNU_EH_FRAME));
    let note = notes[0];
    // A static program may have no index: its start-up code registers `.eh_frame`
    // itself. What is not found there is looked up in an index all the same.
    let eh_frame = old_index.first().unwrap_or_else(|| &notes[1]);
    fill(
        data,
        note,
        PT_LOAD,
        5,
        [base as u64, start, start, size, size, 4096],
    );
    let place = [
        index_offset as u64,
        index.address,
        index.address,
        index_size,
        index_size,
        4,
    ];
    fill(data, *eh_frame, PT_GNU_EH_FRAME, 4, place);
}

fn fill(data: &mut [u8], header: usize, kind: u32, flags: u32, rest: [u64; 6]) {
    data[header..header + 4].copy_from_slice(&kind.to_le_bytes());
    data[header + 4..header + 8].copy_from_slice(&flags.to_le_bytes());
    for (i, value) in rest.into_iter().enumerate() {
        data[header + 8 + 8 * i..header + 16 + 8 * i].copy_from_slice(&value.to_le_bytes());
    }
}
