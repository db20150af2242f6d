//! Jump tables.
//!
//! A position-independent switch adds a 32-bit entry to the table's address:
//! `lea base,[rip+table]; movsxd r,[base+index*4]; add r,base; jmp r`. Going
//! back from the jump gives the load, the load's base register gives the table,
//! and the comparison before it gives the number of entries. If the bound is not
//! found, entries are taken while they lead to plausible code and up to the
//! next byte to which any code refers: perhaps too many (an extra leader does
//! no harm), never too few. The mask of an index is no more than an upper bound: the compiler leaves out
//! entries at the end for values that it knows the index never to have, and another table follows.
//!
//! Entries may also be relative to a label of the code (`cfg/jump_base.rs`).
//!
//! Under `-mcmodel=large` entries have 64 bits. A program that is not position independent has
//! tables of addresses instead: `jmp [table+index*8]`. If the table is not found either, each address
//! that the procedure computes is tried, since data does not lead into the procedure
//! by chance.

use super::addresses::Addresses;
use super::examined::{Bound, Dependencies, JumpUses, TableUse};
use super::jump_code::{JumpForm, dissect, form_of};
use super::reaching::Reaching;
use super::traverse::{Body, Ref, mark};
use crate::image::Image;
use crate::x86::{Instruction, Run, flow_of};

/// A jump table that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    /// Address of the jump that uses the table, if it is known.
    pub jump: Option<u64>,
    /// Address of the instruction that loads an entry for the jump.
    pub load: Option<u64>,
    /// Address of the first entry.
    pub table: u64,
    /// Size of an entry in bytes: 4 or 8.
    pub entry_size: u8,
    /// Address that is added to an entry: of the table or of a label. `None` if entries are addresses of 8 bytes.
    pub relative_to: Option<u64>,
    /// Targets, in the order of the entries.
    pub targets: Vec<u64>,
    /// True if there may be more entries: the code before the jump, or the table of indices, tells a larger number than could
    /// be read, or the next entry leads into the procedure, to what is not taken for code.
    pub is_short: bool,
}

/// Facts about the rest of the program, by which entries are judged.
pub struct Surroundings<'a> {
    /// Data addresses to which the program's code refers.
    pub(super) data_refs: &'a Addresses,
    /// Data addresses to which code refers that control has not reached yet, as far as they can be guessed. Empty at the
    /// end, when all code is known.
    pub(super) guessed_refs: &'a Addresses,
    /// Tells whether an address can be code of another part of the same procedure. The flag
    /// tells that there is certainly some code at the address.
    pub(super) other_part: &'a (dyn Fn(&Body, u64, bool) -> Elsewhere + Sync),
    /// Number of entries taken at most of a table whose size the code does not tell, as
    /// the next table may not be known yet.
    pub unbounded_limit: usize,
}

/// Whether an address outside of a procedure can be code of another part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// An instruction is known there.
    Code,
    /// There may be code.
    Perhaps,
    /// No.
    Not,
}

/// The tables of one procedure.
#[derive(Default)]
pub struct Tables {
    /// The tables that were found.
    pub found: Vec<FoundTable>,
    /// True if these are all tables of the procedure, and their sizes are known. Once control was
    /// followed to all their targets, only a change of the procedure can change the tables.
    pub are_complete: bool,
    /// What they depend on.
    pub(super) depends: Dependencies,
}

/// How the jumps of a procedure use tables: reads the code before each indirect jump.
pub(super) fn uses_of(image: &Image, body: &Body) -> JumpUses {
    let reaching = Reaching::new(image, body);
    let mut others_are_pointers = true;
    let mut use_of = |jump: &u64| {
        let found = dissect(image, body, *jump, &reaching);
        others_are_pointers &= found.is_some() || form_of(image, body, *jump) == JumpForm::Pointer;
        Some((*jump, found?))
    };
    let uses = body.indirect_jumps.iter().filter_map(&mut use_of).collect();
    JumpUses {
        uses,
        others_are_pointers,
    }
}

/// Finds the tables of one procedure.
pub(super) fn find(image: &Image, body: &Body, jumps: &JumpUses, around: &Surroundings) -> Tables {
    let mut found = Vec::new();
    let mut complete = jumps.others_are_pointers;
    let mut bounded = true;
    let mut depends = Dependencies::default();
    for (jump, use_) in &jumps.uses {
        let (table, is_bounded) = used(image, body, (*jump, use_), around, &mut depends);
        complete &= table.is_some();
        bounded &= is_bounded;
        found.extend(table);
    }
    if complete || around.unbounded_limit == 0 {
        depends.is_limited |= !complete;
        return Tables {
            found,
            are_complete: complete && bounded,
            depends,
        };
    }
    for table in other_bases(body, &found) {
        let candidate = Candidate {
            table,
            entry_size: 4,
            relative_to: Some(table),
            bound: None,
            is_known: false,
        };
        let Targets { targets, .. } = candidate.targets(image, body, around, &mut depends);
        if !targets.is_empty() {
            found.push(FoundTable {
                jump: None,
                load: None,
                table,
                entry_size: 4,
                relative_to: Some(table),
                targets,
                is_short: false,
            });
        }
    }
    Tables {
        found,
        are_complete: false,
        depends,
    }
}

/// The table that a jump uses, if it can be read now. The flag tells that its size is known.
fn used(
    image: &Image,
    body: &Body,
    (jump, use_): (u64, &TableUse),
    around: &Surroundings,
    depends: &mut Dependencies,
) -> (Option<FoundTable>, bool) {
    let Some(table) = use_.table else {
        return (None, true);
    };
    let exact = match use_.bound {
        Some(Bound::Exact(count)) => Some(count),
        _ => None,
    };
    let candidate = Candidate {
        table,
        entry_size: use_.entry_size,
        relative_to: use_.relative_to,
        bound: use_.bound,
        is_known: true,
    };
    let mut read = Targets::default();
    if exact.is_some() {
        read = candidate.targets(image, body, around, depends);
    }
    let is_bounded = !read.targets.is_empty();
    depends.is_limited |= !is_bounded && around.unbounded_limit == 0;
    if !is_bounded && around.unbounded_limit > 0 {
        let candidate = Candidate {
            bound: use_.bound.filter(|_| exact.is_none()),
            ..candidate
        };
        read = candidate.targets(image, body, around, depends);
    }
    let Targets { targets, is_short } = read;
    let is_short = is_short
        || exact.is_some_and(|count| targets.len() < count as usize)
        || use_
            .bytes
            .is_some_and(|bytes| targets.len() <= largest_index(image, around.data_refs, bytes));
    let found = (!targets.is_empty()).then_some(FoundTable {
        jump: Some(jump),
        load: Some(use_.load),
        table,
        entry_size: use_.entry_size,
        relative_to: use_.relative_to,
        targets,
        is_short,
    });
    (found, is_bounded)
}

/// Addresses in the code at which a table may start that no jump was seen to use.
fn other_bases(body: &Body, found: &[FoundTable]) -> Vec<u64> {
    let addresses = body.refs.iter().filter_map(|r| match r {
        Ref::Address(a) | Ref::Table(a) | Ref::Memory(a) if a % 4 == 0 => Some(*a),
        _ => None,
    });
    let mut bases: Vec<u64> = addresses
        .filter(|a| !found.iter().any(|f| f.table == *a))
        .collect();
    bases.sort_unstable();
    bases.dedup();
    bases
}

/// The largest index in a table of bytes, which ends at the next byte to which code refers.
fn largest_index(image: &Image, data_refs: &Addresses, bytes: u64) -> usize {
    let all = image.rest_at(bytes).unwrap_or_default();
    let next = data_refs.next_from(bytes.saturating_add(1));
    let size = next.map_or(usize::MAX, |next| (next - bytes) as usize);
    let read = &all[..all.len().min(size).min(256)];
    read.iter().copied().max().map_or(usize::MAX, usize::from)
}

/// What was read of a table.
#[derive(Default)]
struct Targets {
    /// The targets, in the order of the entries.
    targets: Vec<u64>,
    /// True if the next entry leads into the procedure as well, but to what cannot be code beside the code that is known.
    is_short: bool,
}

/// What may be a table.
#[derive(Clone, Copy)]
struct Candidate {
    /// Address of the first entry.
    table: u64,
    /// Bytes of an entry: 4 or 8.
    entry_size: u8,
    /// Address that is added to an entry, if entries are no addresses.
    relative_to: Option<u64>,
    /// Number of entries, if the code tells something of it.
    bound: Option<Bound>,
    /// A jump was seen to use the table.
    is_known: bool,
}

impl Candidate {
    /// Address to which an entry leads.
    fn target(&self, entry: &[u8]) -> u64 {
        let offset = match *entry {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(entry.try_into().expect("entries have 4 or 8 bytes")),
        };
        self.relative_to.unwrap_or(0).wrapping_add_signed(offset)
    }

    /// The targets to which the entries lead. None if there can be no table. Adds to what that depends on.
    fn targets(
        &self,
        image: &Image,
        body: &Body,
        around: &Surroundings,
        depends: &mut Dependencies,
    ) -> Targets {
        let size = usize::from(self.entry_size);
        let table = self.table;
        let after = |count: u32| table.saturating_add(size as u64 * u64::from(count));
        let next_ref = || {
            let refs = [around.data_refs, around.guessed_refs];
            let next = (refs.iter()).filter_map(|refs| refs.next_from(table.saturating_add(1)));
            next.min().unwrap_or(u64::MAX)
        };
        let (limit, exact) = match self.bound {
            Some(Bound::Exact(count)) => (after(count), Some(count)),
            Some(Bound::AtMost(count)) => (after(count).min(next_ref()), None),
            None => (next_ref(), None),
        };
        let mut targets = Vec::with_capacity(exact.map_or(8, |count| (count as usize).min(256)));
        // Number of entries before the first target that lead past the procedure's end.
        let mut dead = 0;
        let mut is_short = false;
        let entries = image.rest_at(table).unwrap_or_default().chunks_exact(size);
        for (i, entry) in entries.enumerate() {
            if table + (size * (i + 1)) as u64 > limit {
                break;
            }
            if exact.is_none() && i >= around.unbounded_limit {
                depends.is_limited = true;
                break;
            }
            let target = self.target(entry);
            // A case that the compiler knows not to happen (the end of a switch that names every
            // value) leads to an empty block. If that block is the last, its address is the
            // procedure's end. The entries after such an entry count none the less.
            if self.is_known && target == body.end {
                match targets.last() {
                    Some(any) => targets.push(*any),
                    None => dead += 1,
                }
                continue;
            }
            let is_plausible = if body.contains(target) {
                is_plausible(image, body, target)
            } else {
                // A case may be in another part of the procedure. In a stripped program such a
                // part looks like a procedure of its own. Without other evidence the first entry
                // decides which procedure the table belongs to.
                (self.is_known || !targets.is_empty()) && {
                    let part = (around.other_part)(body, target, self.bound.is_some());
                    if part != Elsewhere::Code {
                        depends.outside.push(target);
                    }
                    part != Elsewhere::Not
                }
            };
            if is_plausible {
                targets.push(target);
            } else if exact.is_some() {
                // The bound or the table is not what it seems.
                return Targets::default();
            } else {
                is_short = body.contains(target);
                break;
            }
        }
        if exact.is_none() && !targets.is_empty() {
            let size = (size * (dead + targets.len())) as u64;
            depends.uncut.push((table + 1, table + size - 1));
        }
        if let Some(first) = targets.first().copied() {
            targets.splice(0..0, std::iter::repeat_n(first, dead));
        }
        Targets { targets, is_short }
    }
}

/// True if code could start at an address of the procedure: a known instruction starts there,
/// or the bytes there decode until control ends or meets known code.
pub fn is_plausible(image: &Image, body: &Body, address: u64) -> bool {
    let marks = body.mark_at(address);
    if marks & mark::START != 0 {
        return true;
    }
    if marks & mark::INSIDE != 0 {
        return false;
    }
    let mut pc = address;
    let rest = image.rest_at(pc).unwrap_or(&[]);
    let size = rest.len().min((body.end - pc) as usize);
    let mut run = Run::new(&rest[..size], pc);
    let mut instruction = Instruction::default();
    for _ in 0..200 {
        if !body.contains(pc) {
            return pc == body.end;
        }
        let marks = body.mark_at(pc);
        if marks & mark::START != 0 {
            return true;
        }
        if marks & mark::INSIDE != 0 {
            return false;
        }
        if !run.next_into(&mut instruction) || body.has_data(pc, instruction.len()) {
            return false;
        }
        if flow_of(&instruction).ends_flow() {
            return true;
        }
        pc = instruction.next_ip();
    }
    true
}
