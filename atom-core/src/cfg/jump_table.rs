//! Jump tables.
//!
//! A position-independent switch adds a 32-bit entry to the table's address:
//! `lea base,[rip+table]; movsxd r,[base+index*4]; add r,base; jmp r`. Going
//! back from the jump gives the load, from the load's base register the table,
//! and the comparison before it the number of entries. Where the bound is not
//! found, entries are taken while they lead to plausible code and until the
//! next place that any code refers to: perhaps too many (an extra leader does
//! no harm), never too few. Under `-mcmodel=large` entries have 64 bits. A program that is not position independent has
//! tables of addresses instead: `jmp [table+index*8]`. Where the table is not found either, each address
//! that the procedure computes is tried: data does not lead into the procedure
//! by chance.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::data_refs::DataRefs;
use super::traverse::{Body, Ref, mark};
use crate::decode::{Run, decode_at, flow_of};
use crate::image::Image;

/// A table found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of the jump that uses it, if it is known.
    pub jump: Option<u64>,
    /// Address of the instruction that loads an entry for the jump.
    pub load: Option<u64>,
    /// Address of the first entry.
    pub table: u64,
    /// Size of an entry: 4 or 8 bytes.
    pub entry_size: u8,
    /// Entries are relative to the table; else they are addresses, of 8 bytes.
    pub is_relative: bool,
    /// Targets in order.
    pub targets: Vec<u64>,
    /// The code says that there are more, which cannot be: these are only the first.
    pub is_short: bool,
}

/// What judging an entry needs to know about the rest of the program.
pub struct Surroundings<'a> {
    /// Data addresses that the program's code refers to.
    pub(super) data_refs: &'a DataRefs,
    /// Whether an address can be code of another part of the same procedure;
    /// the flag says that there is certainly some code.
    pub other_part: &'a (dyn Fn(&Body, u64, bool) -> bool + Sync),
    /// Of a table whose size the code does not tell, take at most so many
    /// entries: the next table may not be known yet.
    pub unbounded_limit: usize,
}

/// The tables of one procedure.
#[derive(Default)]
pub struct Tables {
    /// The tables.
    pub found: Vec<Found>,
    /// They are all that there are, and their sizes are known: once control was followed to all
    /// their targets, only a change of the procedure can change them.
    pub are_complete: bool,
}

/// Tables of 32-bit entries relative to the table, for one procedure.
pub fn find(image: &Image, body: &Body, around: &Surroundings) -> Tables {
    let mut found = Vec::new();
    let mut complete = true;
    let mut bounded = true;
    for jump in &body.indirect_jumps {
        let Some(use_) = dissect(image, body, *jump) else {
            complete &= form_of(image, body, *jump) == JumpForm::Pointer;
            continue;
        };
        let table = use_.table.and_then(|table| {
            let size = Entries {
                size: use_.entry_size,
                are_relative: use_.is_relative,
            };
            let mut targets = Vec::new();
            if use_.bound.is_some() {
                let count = use_.bound.map(|bound| bound.count);
                targets = entries(image, body, around, table, size, count, true);
            }
            bounded &= !targets.is_empty();
            if targets.is_empty() && around.unbounded_limit > 0 {
                targets = entries(image, body, around, table, size, None, true);
            }
            let is_short = use_
                .bound
                .is_some_and(|b| b.is_exact && targets.len() < b.count as usize);
            (!targets.is_empty()).then_some((table, targets, is_short))
        });
        match table {
            Some((table, targets, is_short)) => {
                found.push(Found {
                    jump: Some(*jump),
                    load: Some(use_.load),
                    table,
                    entry_size: use_.entry_size,
                    is_relative: use_.is_relative,
                    targets,
                    is_short,
                });
            }
            None => complete = false,
        }
    }
    if complete || around.unbounded_limit == 0 {
        return Tables {
            found,
            are_complete: complete && bounded,
        };
    }
    let mut bases: Vec<u64> = body
        .refs
        .iter()
        .filter_map(|r| match r {
            Ref::Address(a) | Ref::Memory(a) if a % 4 == 0 => Some(*a),
            _ => None,
        })
        .filter(|a| !found.iter().any(|f| f.table == *a))
        .collect();
    bases.sort_unstable();
    bases.dedup();
    for table in bases {
        let narrow = Entries {
            size: 4,
            are_relative: true,
        };
        let targets = entries(image, body, around, table, narrow, None, false);
        if !targets.is_empty() {
            found.push(Found {
                jump: None,
                load: None,
                table,
                entry_size: 4,
                is_relative: true,
                targets,
                is_short: false,
            });
        }
    }
    Tables {
        found,
        are_complete: false,
    }
}

/// What the entries of a table are.
#[derive(Clone, Copy)]
struct Entries {
    /// Bytes: 4 or 8.
    size: u8,
    are_relative: bool,
}

impl Entries {
    /// Where an entry of the table leads to.
    fn target(self, table: u64, entry: &[u8]) -> u64 {
        let offset = match *entry {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(entry.try_into().expect("entries have 4 or 8 bytes")),
        };
        let base = if self.are_relative { table } else { 0 };
        base.wrapping_add_signed(offset)
    }
}

/// The targets that the entries at `table` lead to; `is_known` if a jump was
/// seen to use it. Empty if it cannot be a table.
fn entries(
    image: &Image,
    body: &Body,
    around: &Surroundings,
    table: u64,
    kind: Entries,
    bound: Option<u32>,
    is_known: bool,
) -> Vec<u64> {
    let size = usize::from(kind.size);
    let limit = match bound {
        Some(count) => table.saturating_add(size as u64 * u64::from(count)),
        None => around
            .data_refs
            .next_from(table.saturating_add(1))
            .unwrap_or(u64::MAX),
    };
    let mut targets = Vec::with_capacity(bound.map_or(8, |count| (count as usize).min(256)));
    // Entries before the first target that lead past the procedure's end.
    let mut dead = 0;
    for (i, entry) in image
        .rest_at(table)
        .unwrap_or_default()
        .chunks_exact(size)
        .enumerate()
    {
        if table + (size * (i + 1)) as u64 > limit || bound.is_none() && i >= around.unbounded_limit
        {
            break;
        }
        let target = kind.target(table, entry);
        // What the compiler knows not to happen (the end of a switch that names
        // every value) leads to an empty block, which may be the last: nothing of
        // this procedure is there. The entries behind count none the less.
        if is_known && target == body.end {
            match targets.last() {
                Some(any) => targets.push(*any),
                None => dead += 1,
            }
            continue;
        }
        let plausible = if body.contains(target) {
            is_plausible(image, body, target)
        } else {
            // A case may lie in another part of the procedure, which a
            // stripped program does not tell from a procedure of its own.
            // Without other evidence the first entry decides whose table it is.
            (is_known || !targets.is_empty()) && (around.other_part)(body, target, bound.is_some())
        };
        if plausible {
            targets.push(target);
        } else if bound.is_some() {
            // The bound or the table is not what it seems.
            return Vec::new();
        } else {
            break;
        }
    }
    if let Some(first) = targets.first().copied() {
        targets.splice(0..0, std::iter::repeat_n(first, dead));
    }
    targets
}

/// The parts of a jump through a relative table.
struct TableUse {
    load: u64,
    table: Option<u64>,
    entry_size: u8,
    is_relative: bool,
    bound: Option<Bound>,
}

/// How many entries a table has, by the code before the jump.
#[derive(Clone, Copy)]
struct Bound {
    count: u32,
    /// Each of them is used. The compiler may know that a masked index never has some values.
    is_exact: bool,
}

/// Instructions before `at`, nearest first, with their addresses.
fn before<'a>(
    image: &'a Image,
    body: &'a Body,
    at: usize,
) -> impl Iterator<Item = Instruction> + 'a {
    body.insts[..at].iter().rev().filter_map(move |inst| {
        let pc = image.base + u64::from(inst.offset);
        decode_at(image.bytes_at(pc, usize::from(inst.len))?, pc)
    })
}

fn index_of(image: &Image, body: &Body, pc: u64) -> Option<usize> {
    body.insts
        .binary_search_by_key(&((pc - image.base) as u32), |i| i.offset)
        .ok()
}

fn writes(instruction: &Instruction, register: Register) -> bool {
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        )
}

fn dissect(image: &Image, body: &Body, jump: u64) -> Option<TableUse> {
    let at = index_of(image, body, jump)?;
    let instruction = decode_at(image.bytes_at(jump, usize::from(body.insts[at].len))?, jump)?;
    if is_absolute_entry(&instruction) {
        return Some(TableUse {
            load: jump,
            table: Some(instruction.memory_displacement64()),
            entry_size: 8,
            is_relative: false,
            bound: bound_before(image, body, at, &instruction),
        });
    }
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    // The sum: add target, other.
    let target = instruction.op0_register().full_register();
    let mut terms = None;
    let mut load = None;
    for i in before(image, body, at).take(16) {
        if flow_of(&i).ends_flow() {
            break;
        }
        match terms {
            None => {
                if writes(&i, target) {
                    if i.mnemonic() == Mnemonic::Mov && is_absolute_entry(&i) {
                        let load_at = index_of(image, body, i.ip())?;
                        return Some(TableUse {
                            load: i.ip(),
                            table: Some(i.memory_displacement64()),
                            entry_size: 8,
                            is_relative: false,
                            bound: bound_before(image, body, load_at, &i),
                        });
                    }
                    terms = Some(sum_terms(&i)?);
                }
            }
            Some(pair) => {
                if !pair.iter().any(|r| writes(&i, *r)) {
                    continue;
                }
                let narrow = match i.mnemonic() {
                    Mnemonic::Movsxd => true,
                    Mnemonic::Mov => i.op_count() == 2 && i.op0_register().size() == 4,
                    _ => false,
                };
                if narrow && i.op1_kind() == OpKind::Memory || loads_wide_entry(&i) {
                    load = Some(i);
                    break;
                }
                // The table's address, or an extension of the entry in place.
                let is_base = i.mnemonic() == Mnemonic::Lea && i.memory_base() == Register::RIP;
                if !is_base && i.mnemonic() != Mnemonic::Cdqe {
                    return None;
                }
            }
        }
    }
    let load = load?;
    let load_at = index_of(image, body, load.ip())?;
    let registers = [load.memory_base(), load.memory_index()];
    // With a scaled index the base is the table; else either may be.
    let entry_size = if loads_wide_entry(&load) { 8 } else { 4 };
    let scaled = load.memory_index_scale() == u32::from(entry_size);
    let candidates = if scaled {
        &registers[..1]
    } else {
        &registers[..]
    };
    let table = candidates
        .iter()
        .filter(|r| **r != Register::None)
        .find_map(|r| lea_of(image, body, load_at, r.full_register()));
    // What is added must be the table's address too, not a label's.
    let loaded = load.op0_register().full_register();
    let base = terms?.into_iter().find(|r| *r != loaded)?;
    let table = table.filter(|table| {
        base == load.memory_base() || lea_of(image, body, at, base) == Some(*table)
    });
    Some(TableUse {
        load: load.ip(),
        table,
        entry_size,
        is_relative: true,
        bound: bound_before(image, body, load_at, &load),
    })
}

/// The address that the nearest `lea register, [rip + ...]` before `at` gives.
fn lea_of(image: &Image, body: &Body, at: usize, register: Register) -> Option<u64> {
    before(image, body, at)
        .find(|i| {
            i.mnemonic() == Mnemonic::Lea && i.memory_base() == Register::RIP && writes(i, register)
        })
        .map(|i| i.memory_displacement64())
}

/// True for an operand `[table + index*8]`, as in a program that is not
/// position independent.
fn is_absolute_entry(i: &Instruction) -> bool {
    let op = i.op_count().saturating_sub(1);
    i.op_count() > 0
        && i.op_kind(op) == OpKind::Memory
        && i.memory_base() == Register::None
        && i.memory_index() != Register::None
        && i.memory_index_scale() == 8
        && i.segment_prefix() == Register::None
}

/// True for `mov r64,[base + index]`, which may load an entry of 64 bits of a relative table.
fn loads_wide_entry(i: &Instruction) -> bool {
    i.mnemonic() == Mnemonic::Mov
        && i.op1_kind() == OpKind::Memory
        && i.op0_register().size() == 8
        && i.memory_base() != Register::None
        && i.memory_index() != Register::None
        && matches!(i.memory_index_scale(), 1 | 8)
        && i.memory_displacement64() == 0
        && i.segment_prefix() == Register::None
}

/// The two registers that an instruction adds: `add a, b` or `lea r, [a+b]`.
fn sum_terms(i: &Instruction) -> Option<[Register; 2]> {
    match i.mnemonic() {
        Mnemonic::Add if i.op1_kind() == OpKind::Register => Some([
            i.op0_register().full_register(),
            i.op1_register().full_register(),
        ]),
        Mnemonic::Lea
            if i.memory_displacement64() == 0
                && i.memory_index_scale() == 1
                && i.memory_base() != Register::None
                && i.memory_index() != Register::None =>
        {
            Some([i.memory_base(), i.memory_index()])
        }
        _ => None,
    }
}

/// The number of entries by the comparison that guards the jump:
/// `cmp index, n; ja default` leaves n + 1.
///
/// Only a comparison of the very index counts: going back from the load, the
/// index may be copied, extended or loaded on the way, and is followed.
fn bound_before(image: &Image, body: &Body, at: usize, load: &Instruction) -> Option<Bound> {
    let exact = |count: u64| {
        let count = u32::try_from(count).ok().filter(|n| *n <= 1 << 20)?;
        Some(Bound {
            count,
            is_exact: true,
        })
    };
    let mut index = load.memory_index().full_register();
    let mut memory = None;
    let mut above = None;
    let mut compared = None;
    for i in before(image, body, at).take(16) {
        match i.mnemonic() {
            Mnemonic::Ja => above = Some(1),
            Mnemonic::Jae => above = Some(0),
            Mnemonic::Cmp if above.is_some() => {
                let is_index = match i.op0_kind() {
                    OpKind::Register => i.op0_register().full_register() == index,
                    OpKind::Memory => memory == Some(place(&i)),
                    _ => false,
                };
                let is_immediate = !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory);
                let n = (is_index && is_immediate).then(|| i.immediate(1))?;
                let count = n.checked_add(above?)?;
                return exact(count);
            }
            // A copy of the index is stored, then what is left of it compared.
            Mnemonic::Sub if above.is_some() && compared.is_none() => {
                let is_immediate = !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory);
                if i.op0_kind() == OpKind::Register && is_immediate {
                    compared = Some((i.op0_register().full_register(), i.immediate(1)));
                }
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory && compared.is_some() => {
                let (register, n) = compared?;
                if memory == Some(place(&i)) && i.op1_register().full_register() == register {
                    let count = n.checked_add(above?)?;
                    return exact(count);
                }
            }
            _ if flow_of(&i).ends_block() => return None,
            // and index, 2^k - 1
            Mnemonic::And if writes(&i, index) => {
                let is_immediate = !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory);
                let mask = is_immediate.then(|| i.immediate(1))?;
                let count = u32::try_from(mask.checked_add(1)?).ok()?;
                return (count.is_power_of_two() && count <= 256).then_some(Bound {
                    count,
                    is_exact: false,
                });
            }
            _ if writes(&i, index) => match (i.mnemonic(), i.op_count()) {
                (Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd, 2) => match i.op1_kind() {
                    OpKind::Register => index = i.op1_register().full_register(),
                    OpKind::Memory => {
                        memory = Some(place(&i));
                        index = Register::None;
                    }
                    _ => return None,
                },
                // lea rdx,[rax*4] before an unscaled load
                (Mnemonic::Lea, 2) if i.memory_base() == Register::None => {
                    index = i.memory_index().full_register();
                }
                _ => return None,
            },
            _ => {}
        }
    }
    None
}

fn place(i: &Instruction) -> (Register, Register, u64) {
    (i.memory_base(), i.memory_index(), i.memory_displacement64())
}

/// True if code could start at an address of the procedure: either it does,
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
        if !run.next_into(&mut instruction) {
            return false;
        }
        if flow_of(&instruction).ends_flow() {
            return true;
        }
        pc = instruction.next_ip();
    }
    true
}

/// How an indirect jump gets its target, as far as the code just before it tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpForm {
    /// Adds a loaded entry to an address: a relative table.
    RelativeTable,
    /// Computes the target without loading it.
    Computed,
    /// Anything else: a pointer from memory or a register.
    Pointer,
}

/// Looks back from an indirect jump over the instructions before it.
pub fn form_of(image: &Image, body: &Body, jump: u64) -> JumpForm {
    use iced_x86::{Mnemonic, OpKind, Register};
    let Ok(at) = body
        .insts
        .binary_search_by_key(&((jump - image.base) as u32), |i| i.offset)
    else {
        return JumpForm::Pointer;
    };
    let decode = |i: usize| {
        let inst = body.insts[i];
        let pc = image.base + u64::from(inst.offset);
        decode_at(image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]), pc)
    };
    let Some(jump) = decode(at) else {
        return JumpForm::Pointer;
    };
    if jump.op0_kind() != OpKind::Register {
        return JumpForm::Pointer;
    }
    let mut register = jump.op0_register().full_register();
    let mut added = false;
    for i in (at.saturating_sub(12)..at).rev() {
        let Some(instruction) = decode(i) else { break };
        if flow_of(&instruction).ends_block() {
            break;
        }
        if instruction.op_count() == 0
            || instruction.op0_kind() != OpKind::Register
            || instruction.op0_register().full_register() != register
        {
            // `add rax, rdx` where rdx was loaded: follow the load too.
            continue;
        }
        match instruction.mnemonic() {
            Mnemonic::Add => {
                added = true;
                if instruction.op1_kind() == OpKind::Memory {
                    // A load address added to a stored offset: a pointer in two parts.
                    return JumpForm::Pointer;
                }
                // Either operand may be the loaded entry; the other is the base.
                if instruction.op1_kind() == OpKind::Register {
                    let other = instruction.op1_register().full_register();
                    if loads_entry(&decode, i, at, other) {
                        return JumpForm::RelativeTable;
                    }
                }
            }
            Mnemonic::Movsxd | Mnemonic::Cdqe => {
                if instruction.op_count() > 1 && instruction.op1_kind() == OpKind::Register {
                    register = instruction.op1_register().full_register();
                    continue;
                }
                return if added {
                    JumpForm::RelativeTable
                } else {
                    JumpForm::Pointer
                };
            }
            Mnemonic::Mov => {
                if instruction.op1_kind() == OpKind::Memory {
                    let is_entry =
                        instruction.op0_register().size() == 4 || loads_wide_entry(&instruction);
                    return if added && is_entry {
                        JumpForm::RelativeTable
                    } else {
                        JumpForm::Pointer
                    };
                }
                if instruction.op1_kind() == OpKind::Register {
                    register = instruction.op1_register().full_register();
                    continue;
                }
                return JumpForm::Pointer;
            }
            Mnemonic::Lea => {
                let plain = instruction.memory_base() == Register::RIP;
                let is_sum = sum_terms(&instruction)
                    .is_some_and(|terms| terms.iter().any(|r| loads_entry(&decode, i, at, *r)));
                if is_sum {
                    return JumpForm::RelativeTable;
                }
                return if added || !plain {
                    JumpForm::Computed
                } else {
                    JumpForm::Pointer
                };
            }
            Mnemonic::Pop => return JumpForm::Pointer,
            _ => {}
        }
    }
    if added {
        JumpForm::RelativeTable
    } else {
        JumpForm::Pointer
    }
}

fn loads_entry(
    decode: &dyn Fn(usize) -> Option<iced_x86::Instruction>,
    before: usize,
    at: usize,
    register: iced_x86::Register,
) -> bool {
    (at.saturating_sub(14)..before).rev().any(|i| {
        decode(i).is_some_and(|d| {
            d.op_count() > 1
                && d.op0_kind() == OpKind::Register
                && d.op0_register().full_register() == register
                && d.op1_kind() == OpKind::Memory
                && (d.mnemonic() == Mnemonic::Movsxd
                    || d.mnemonic() == Mnemonic::Mov && d.op0_register().size() == 4)
        })
    })
}
