//! The program's own text: which addresses count, and what is there.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Error, Result};
use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

/// The outcome rule of a conditional branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address of the next instruction in the file.
    pub next: u64,
    /// Address of the target in the file.
    pub target: u64,
}

/// What the stepper needs to know about an instruction.
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub insn: Instruction,
    pub rep: bool,
    pub pushf: bool,
    pub branch: Option<Branch>,
}

/// An executable segment.
struct Segment {
    address: u64,
    bytes: Vec<u8>,
    size: u64,
}

/// The executable segments of a program, with decoded instructions kept.
pub struct Text {
    segments: Vec<Segment>,
    /// Entry point as the file states it.
    pub entry: u64,
    cache: HashMap<u64, Info>,
}

impl Text {
    /// Reads the executable segments of the ELF file at `path`.
    pub fn read(path: &Path) -> Result<Text> {
        let fail = |reason: String| Error::new("reading the program's text", reason).file(path);
        let data = std::fs::read(path).map_err(|e| fail(e.to_string()))?;
        let header =
            elf::FileHeader64::<Endianness>::parse(&*data).map_err(|e| fail(e.to_string()))?;
        let endian = header.endian().map_err(|e| fail(e.to_string()))?;
        let mut segments = Vec::new();
        for ph in header
            .program_headers(endian, &*data)
            .map_err(|e| fail(e.to_string()))?
        {
            if ph.p_type(endian) == elf::PT_LOAD && ph.p_flags(endian).contains(elf::PF_X) {
                let bytes = ph
                    .data(endian, &*data)
                    .map_err(|()| fail("a segment reaches beyond the file".into()))?;
                segments.push(Segment {
                    address: ph.p_vaddr(endian),
                    bytes: bytes.to_vec(),
                    size: ph.p_memsz(endian),
                });
            }
        }
        if segments.is_empty() {
            return Err(fail("it has no executable segment".into()));
        }
        Ok(Text {
            segments,
            entry: header.e_entry(endian),
            cache: HashMap::new(),
        })
    }

    /// Whether the address (in the file) is in an executable segment.
    pub fn contains(&self, address: u64) -> bool {
        self.segments
            .iter()
            .any(|s| address.wrapping_sub(s.address) < s.size)
    }

    /// Address at run time and size in bytes of each executable segment, for a load bias.
    pub(super) fn ranges_at(&self, bias: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let at = move |s: &Segment| (s.address.wrapping_add(bias), s.size);
        self.segments.iter().map(at)
    }

    /// The instruction at an address of the text.
    pub(super) fn info(&mut self, address: u64) -> Info {
        if let Some(info) = self.cache.get(&address) {
            return *info;
        }
        let info = describe(self.decode(address));
        self.cache.insert(address, info);
        info
    }

    /// Decodes the instruction at an address; an invalid one if there is none.
    pub fn decode(&self, address: u64) -> Instruction {
        let bytes = self
            .segments
            .iter()
            .find(|s| address.wrapping_sub(s.address) < s.size)
            .and_then(|s| s.bytes.get((address - s.address) as usize..))
            .unwrap_or(&[]);
        Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
    }
}

fn describe(insn: Instruction) -> Info {
    let conditional = insn.condition_code() != ConditionCode::None && is_near_branch(&insn)
        || insn.is_loop()
        || insn.is_loopcc()
        || insn.is_jcx_short();
    Info {
        insn,
        rep: (insn.has_rep_prefix() || insn.has_repne_prefix()) && insn.is_string_instruction(),
        pushf: matches!(insn.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq),
        branch: conditional.then(|| Branch {
            next: insn.next_ip(),
            target: insn.near_branch_target(),
        }),
    }
}

fn is_near_branch(insn: &Instruction) -> bool {
    insn.op_count() == 1 && insn.op0_kind() == OpKind::NearBranch64
}

/// Whether a conditional branch will be taken, from flags and rcx.
///
/// Only needed where target and next instruction are the same address; any
/// other branch shows its outcome by where control goes.
pub(super) fn will_take(insn: &Instruction, flags: u64, rcx: u64) -> bool {
    let bit = |n: u32| flags >> n & 1 != 0;
    let (cf, pf, zf, sf, of) = (bit(0), bit(2), bit(6), bit(7), bit(11));
    match insn.mnemonic() {
        Mnemonic::Jrcxz => return rcx == 0,
        Mnemonic::Jecxz => return rcx as u32 == 0,
        Mnemonic::Loop => return rcx != 1,
        Mnemonic::Loope => return rcx != 1 && zf,
        Mnemonic::Loopne => return rcx != 1 && !zf,
        _ => {}
    }
    match insn.condition_code() {
        ConditionCode::None => true,
        ConditionCode::o => of,
        ConditionCode::no => !of,
        ConditionCode::b => cf,
        ConditionCode::ae => !cf,
        ConditionCode::e => zf,
        ConditionCode::ne => !zf,
        ConditionCode::be => cf || zf,
        ConditionCode::a => !(cf || zf),
        ConditionCode::s => sf,
        ConditionCode::ns => !sf,
        ConditionCode::p => pf,
        ConditionCode::np => !pf,
        ConditionCode::l => sf != of,
        ConditionCode::ge => sf == of,
        ConditionCode::le => zf || sf != of,
        ConditionCode::g => !zf && sf == of,
    }
}
