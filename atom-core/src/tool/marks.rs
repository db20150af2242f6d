//! Marks that a program carries in its code, by which windows begin and end.
//!
//! - The markers of `ato.h`: a note in the section `.note.ato` for each, whose description is the address of a `nop` (8
//!   bytes), the line (4 bytes), and the name with a null after it. Types 1, 2, 6 and 7 begin a section, 3 and 4 end it.
//! - The markers of Intel's tools (SSC, IACA), which simulators know as well: `mov ebx, NUMBER`, then a `nop` with the
//!   prefixes 64 and 67. The number is the mark's name.
//! - The magic instruction of Sniper and others, `xchg bx, bx`: the mark `magic`. After a load of 1 into rax it is a begin, after
//!   a load of 2 an end.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::NoteIterator;

use crate::cfg::Cfg;
use crate::ids::{InstId, ProcId};
use crate::image::{Image, debug_section};

/// The notes' section and owner.
const SECTION: &str = ".note.ato";
const OWNER: &[u8] = b"ato";

/// Types of notes that begin a section of the program, and that end one.
const BEGINS: [u32; 4] = [1, 2, 6, 7];
const ENDS: [u32; 2] = [3, 4];

/// `fs addr32 nop`.
const NUMBERED: [u8; 3] = [0x64, 0x67, 0x90];
/// Opcode of `mov ebx, imm32`.
const MOV_EBX: u8 = 0xbb;
/// `xchg bx, bx`.
const MAGIC: [u8; 3] = [0x66, 0x87, 0xdb];

/// The name of marks by [`MAGIC`].
const MAGIC_NAME: &str = "magic";

/// Sniper's commands in rax for the begin and the end of what is to be simulated.
const MAGIC_COMMANDS: [u32; 2] = [1, 2];
/// `mov eax, imm32` and `mov rax, imm32`.
const MOV_RAX: [&[u8]; 2] = [&[0xb8], &[0x48, 0xc7, 0xc0]];

/// The constant that the instruction before a magic one loads into rax.
fn command(before: &[u8]) -> Option<u32> {
    let value = MOV_RAX.iter().find_map(|mov| before.strip_prefix(*mov))?;
    Some(u32::from_le_bytes(value.try_into().ok()?))
}

/// Which end of a window is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Begin,
    End,
}

/// The addresses of an object's marks of this name. Only those of `ato.h` and of Sniper say which end they are.
pub(super) fn find(image: &Image, cfg: &Cfg, name: &str, end: End) -> Vec<u64> {
    let mut found = of_notes(image, name, end);
    let number = match name.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => name.parse().ok(),
    };
    if let Some(number) = number {
        found.extend(of_code(image, cfg, &|before, inst| {
            let value = before.strip_prefix(&[MOV_EBX]);
            inst == NUMBERED && value.is_some_and(|value| value == number.to_le_bytes())
        }));
    } else if name == MAGIC_NAME {
        let own = MAGIC_COMMANDS[usize::from(end == End::End)];
        found.extend(of_code(image, cfg, &|before, inst| {
            inst == MAGIC && command(before).is_none_or(|command| command == own)
        }));
    }
    found
}

/// Marks by notes.
fn of_notes(image: &Image, name: &str, end: End) -> Vec<u64> {
    let types = match end {
        End::Begin => &BEGINS[..],
        End::End => &ENDS,
    };
    let bytes = debug_section::contents(image, SECTION).unwrap_or_default();
    let notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, &bytes);
    let notes = notes.into_iter().flatten().map_while(Result::ok);
    let of_us =
        notes.filter(|note| note.name() == OWNER && types.contains(&note.n_type(LittleEndian).0));
    let address = |description: &[u8]| {
        let (address, rest) = description.split_first_chunk::<8>()?;
        let own = rest.get(4..)?.split(|b| *b == 0).next()?;
        (own == name.as_bytes()).then_some(u64::from_le_bytes(*address))
    };
    of_us.filter_map(|note| address(note.desc())).collect()
}

/// The addresses of instructions that a test accepts, by the bytes of the one before and their own.
fn of_code(image: &Image, cfg: &Cfg, accepts: &dyn Fn(&[u8], &[u8]) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    for proc in (0..cfg.procs.len()).map(ProcId::from_index) {
        let mut before: &[u8] = &[];
        for inst in cfg.proc_insts(proc).map(InstId::from_index) {
            let pc = cfg.inst_pc(inst);
            let len = usize::from(cfg.inst(inst).len);
            let bytes = image.bytes_at(pc, len).unwrap_or_default();
            if len == NUMBERED.len() && accepts(before, bytes) {
                found.push(pc);
            }
            before = bytes;
        }
    }
    found
}
