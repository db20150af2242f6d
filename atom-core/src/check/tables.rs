//! A second reading of jump tables: no entry that the program may use leads to a target that the graph lacks.
//!
//! The number of entries comes from the comparison in front of the load, which is looked for along the addresses of
//! instructions, or from what is after the table: the next object to which anything refers. Neither uses what
//! discovery found, but the table's place.

use super::references::first_in;
use super::step::Complaint;
use crate::cfg::{Cfg, JumpTable, Succ};
use crate::ids::InstId;
use crate::image::Image;
use crate::x86::{ControlFlow, Instruction, Mnemonic, OpKind};

/// Number of instructions between the comparison and the load at most.
const BETWEEN: usize = 24;

/// Addresses of all relative tables, each with the address to which its entries are relative, in order.
pub fn places(cfg: &Cfg) -> Vec<(u64, u64)> {
    let relative = |table: &JumpTable| Some((table.table, table.relative_to?));
    let mut places: Vec<_> = cfg.jump_tables.iter().filter_map(relative).collect();
    places.sort_unstable();
    places
}

/// Judges one table. `places` are those of all tables, and `references` all addresses to which anything refers, in order.
pub fn judge(
    image: &Image,
    cfg: &Cfg,
    table: &JumpTable,
    (places, references): (&[(u64, u64)], &[u64]),
) -> Result<(), Complaint> {
    let reader = Reader { image, cfg, table };
    let known = u64::from(table.entries);
    if let Some(other) = reader.other_within(known, places) {
        return Err(format!(
            "the jump table at {:#x} has {known} entries, the last of them in the table at {other:#x}",
            table.table
        ));
    }
    let all = match reader.bound() {
        Some(count) => count.max(known),
        None => known + u64::from(reader.goes_on(known, references)),
    };
    for i in 0..all {
        let target = reader.target(i);
        if target.is_some_and(|t| !reader.is_known(t)) || i >= known {
            let to = target.map_or("nowhere".to_owned(), |t| format!("to {t:#x}"));
            return Err(format!(
                "entry {i} of the jump table at {:#x} leads {to}, and only {known} entries are known",
                table.table
            ));
        }
    }
    Ok(())
}

struct Reader<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    table: &'a JumpTable,
}

impl Reader<'_> {
    /// Where an entry leads; `None` if it lies outside of the file.
    fn target(&self, i: u64) -> Option<u64> {
        let size = u64::from(self.table.entry_size);
        let address = self.table.table.checked_add(i.checked_mul(size)?)?;
        let bytes = self.image.bytes_at(address, size as usize)?;
        let entry = match *bytes {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(bytes.try_into().ok()?),
        };
        Some(
            self.table
                .relative_to
                .unwrap_or(0)
                .wrapping_add_signed(entry),
        )
    }

    /// True for a target of the graph. What the compiler knows not to happen may lead to a procedure's end.
    fn is_known(&self, target: u64) -> bool {
        let proc = self
            .cfg
            .proc(self.cfg.block(self.cfg.block_of(self.table.jump)).proc);
        self.table.targets.binary_search(&target).is_ok() || target == proc.end
    }

    /// The table of another jump that begins in the first `known` entries, if its entries are relative to another address.
    fn other_within(&self, known: u64, places: &[(u64, u64)]) -> Option<u64> {
        let start = self.table.table;
        let end = start + u64::from(self.table.entry_size) * known;
        let first = places.partition_point(|place| place.0 <= start);
        let mut within = places[first..].iter().take_while(|place| place.0 < end);
        let is_other = |place: &&(u64, u64)| Some(place.1) != self.table.relative_to;
        within.find(is_other).map(|place| place.0)
    }

    /// True if what is after the last known entry is another one, as far as can be seen: it leads into the procedure, and
    /// nothing refers to its place.
    fn goes_on(&self, known: u64, references: &[u64]) -> bool {
        let size = u64::from(self.table.entry_size);
        let start = self.table.table;
        let end = start + size * known;
        let section = |address| self.image.section_at(address).map(|s| s.address);
        if first_in(references, start + 1, end + size).is_some() || section(start) != section(end) {
            return false;
        }
        let block = self.cfg.block(self.cfg.block_of(self.table.jump));
        let proc = self.cfg.proc(block.proc);
        (self.target(known)).is_some_and(|target| (proc.start..proc.end).contains(&target))
    }

    /// Number of entries by a comparison in front of the load.
    fn bound(&self) -> Option<u64> {
        let decode = |i: InstId| self.cfg.decode(self.image, i);
        let load = self.table.load.unwrap_or(self.table.jump);
        let instruction = decode(load);
        let is_scaled = instruction.memory_index_scale() == u32::from(self.table.entry_size);
        let mut index = instruction.memory_index().full_register();
        if !is_scaled || !index.is_gpr64() {
            return None;
        }
        let mut more = None;
        for number in (0..load.index()).rev().take(BETWEEN) {
            let id = InstId::from_index(number);
            if self.cfg.inst_end(id) != self.cfg.inst_pc(InstId::from_index(number + 1)) {
                return None;
            }
            let i = decode(id);
            match self.cfg.inst(id).flow {
                ControlFlow::FallThrough => {}
                ControlFlow::CondJump if more.is_none() => {
                    more = match i.mnemonic() {
                        Mnemonic::Ja => Some(1),
                        Mnemonic::Jae => Some(0),
                        _ => return None,
                    };
                    // Only the way that continues leads to the table.
                    let block = self.cfg.block_of(id);
                    let next = self.cfg.inst_end(id);
                    let falls =
                        |s: &Succ| matches!(s, Succ::Fall(b) if self.cfg.block_pc(*b) == next);
                    if !self.cfg.succs(block).iter().any(falls) {
                        return None;
                    }
                    continue;
                }
                _ => return None,
            }
            let register = |op: u32| match i.op_kind(op) {
                OpKind::Register => Some(i.op_register(op).full_register()),
                _ => None,
            };
            if i.mnemonic() == Mnemonic::Cmp {
                let is_index = i.op_count() == 2 && register(0) == Some(index);
                let n = constant(&i).filter(|_| is_index)?;
                return n.checked_add(more?);
            }
            // Whatever else changes flags in front of the branch is no comparison of the index.
            if more.is_some() && i.rflags_modified() != 0 {
                return None;
            }
            let writes_index = i.op_count() > 0 && register(0) == Some(index);
            match i.mnemonic() {
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd if writes_index => {
                    index = register(1)?;
                }
                Mnemonic::Push | Mnemonic::Test | Mnemonic::Nop => {}
                _ if writes_index => return None,
                _ => {}
            }
        }
        None
    }
}

/// The number with which an instruction compares.
fn constant(i: &Instruction) -> Option<u64> {
    let is_number = !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory);
    let n = is_number.then(|| i.immediate(1))?;
    // A comparison of 32 bits, of a number without sign.
    (n <= u64::from(u32::MAX >> 8)).then_some(n)
}
