//! Jump tables of the new text.
//!
//! The original table stays, with original addresses, so that other readers see its original
//! contents. A copy is placed in the new text, whose entries lead straight to moved code. The
//! instruction that loads an entry for the jump gets another displacement. Nothing else changes,
//! not even the register that holds the table's address. An entry of a copied relative table is
//! then the distance from the *original* table to the new target.
//!
//! A table is copied only where the load certainly reads this table. After the entries that
//! discovery found, further original entries are copied unchanged, so that an index beyond the
//! known entries goes where it goes in the original.

use crate::x86::assembler::Encoder;
use crate::x86::{Instruction, Mnemonic, OpKind, Register};

use crate::cfg::{Cfg, JumpTable};
use crate::ids::InstId;
use crate::image::Image;
use crate::plan::{Insertion, Position};

use super::MovedSet;

/// Number of entries copied unchanged after the entries that were found.
const SPARE: usize = 256;

/// A table to be copied.
#[derive(Clone, Debug)]
pub(crate) struct TableCopy {
    /// The instruction that loads from it.
    pub load: InstId,
    /// Index into [`Cfg::jump_tables`].
    pub table: usize,
    /// Size of the copy in bytes.
    pub size: u64,
    /// Address of the copy, once it is laid out.
    pub address: u64,
    /// Size of the load with a displacement of four bytes.
    pub load_size: u8,
}

/// The copy that an instruction loads from.
pub(crate) fn copy_at(copies: &[TableCopy], load: InstId) -> Option<&TableCopy> {
    let i = copies.binary_search_by_key(&load, |c| c.load).ok()?;
    Some(&copies[i])
}

/// The tables of moved code worth copying, by their loads. Analysis between a load and its
/// jump would see the new address in a register: such a table is not copied.
pub(crate) fn select(
    image: &Image,
    cfg: &Cfg,
    insertions: &[Insertion],
    moved: &MovedSet,
) -> Vec<TableCopy> {
    let is_seen = |load: InstId, jump: InstId| {
        let first =
            insertions.partition_point(|i| (i.inst, i.position) <= (load, Position::Before));
        load < jump && insertions.get(first).is_some_and(|i| i.inst <= jump)
    };
    let mut copies: Vec<TableCopy> = cfg
        .jump_tables
        .iter()
        .enumerate()
        .filter_map(|(i, t)| {
            let load = t.load?;
            if !moved.contains(cfg.block(cfg.block_of(load)).proc) {
                return None;
            }
            let instruction = cfg.decode(image, load);
            if load > t.jump || is_seen(load, t.jump) {
                return None;
            }
            is_certain(image, cfg, t, load, &instruction).then_some(())?;
            let available = image.rest_at(t.table)?.len();
            let entry = usize::from(t.entry_size);
            let size = (entry * (t.entries as usize + SPARE)).min(available / entry * entry);
            Some(TableCopy {
                load,
                table: i,
                size: size as u64,
                address: 0,
                load_size: with_displacement(&instruction, 0x6000_0000, instruction.ip())?.len()
                    as u8,
            })
        })
        .collect();
    copies.sort_unstable_by_key(|c| c.load);
    // A load that serves two tables serves neither.
    let shared: Vec<InstId> = copies
        .windows(2)
        .filter(|w| w[0].load == w[1].load)
        .map(|w| w[0].load)
        .collect();
    copies.retain(|c| !shared.contains(&c.load));
    copies
}

/// True if the operand names the table itself, or its base register was given
/// the table's address in the same block.
fn is_certain(
    image: &Image,
    cfg: &Cfg,
    t: &JumpTable,
    load: InstId,
    instruction: &Instruction,
) -> bool {
    if t.relative_to.is_none() {
        return !image.kind.is_position_independent()
            && instruction.memory_displacement64() == t.table;
    }
    let base = instruction.memory_base();
    if instruction.memory_index_scale() != 4 || instruction.memory_displacement64() != 0 {
        return false;
    }
    let block = cfg.block(cfg.block_of(load));
    let before = (block.first.0..load.0)
        .rev()
        .map(|i| cfg.decode(image, InstId(i)));
    let mut factory = crate::x86::InstructionInfoFactory::new();
    for i in before {
        let info = factory.info(&i);
        let writes = info.used_registers().iter().any(|u| {
            u.register().full_register() == base
                && !matches!(
                    u.access(),
                    crate::x86::OpAccess::Read | crate::x86::OpAccess::CondRead
                )
        });
        if writes {
            return i.mnemonic() == Mnemonic::Lea
                && i.op0_kind() == OpKind::Register
                && i.op0_register() == base
                && i.memory_base() == Register::RIP
                && i.memory_displacement64() == t.table;
        }
    }
    false
}

/// The instruction with `delta` added to its displacement, as bytes for `address`.
pub(crate) fn with_displacement(
    instruction: &Instruction,
    delta: u64,
    address: u64,
) -> Option<Vec<u8>> {
    let mut changed = *instruction;
    let displacement = instruction.memory_displacement64().wrapping_add(delta);
    i32::try_from(displacement as i64).ok()?;
    changed.set_memory_displacement64(displacement);
    changed.set_memory_displ_size(8);
    let mut encoder = Encoder::new(64);
    encoder.encode(&changed, address).ok()?;
    Some(encoder.take_buffer())
}
