//! Batches: references of a block whose addresses are known at one point.
//!
//! The address of a reference is a constant more than a *source*: a sum of registers, or the place of the program's
//! data. As long as no register of a source changes, the source has the same value at each instruction, so references before
//! and after a point are known by the values that the sources have there. A batch has consecutive references with
//! few sources, and a point at which all of these have their values. Instructions of the batch that are executed
//! before the point have no change of the sources' registers between them and the point, or the other way round.
//!
//! rsp is followed through pushes, pops and additions of constants.

use std::collections::HashMap;
use std::ops::Range;

use atom_abi::host::Reg;

use super::groups::stack_change;
use crate::navigation::handle::{Block, Inst};
use crate::navigation::operands::MemoryAccess;
use crate::navigation::references::{References, Times};

/// Largest number of sources of a batch: with them, a routine's arguments fit registers.
pub const MOST_SOURCES: usize = 4;
/// Largest number of items of a batch.
const MOST_ITEMS: usize = 100;

/// Where a value is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A sum of registers: base, and index with its scale.
    Registers(Option<Reg>, Option<(Reg, u8)>),
    /// An address of the program's file.
    Image(u64),
    /// The address of an operand of the instruction at the point.
    Operand(u8),
}

/// Something that a block does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An instruction is executed.
    Executed {
        /// Address of the instruction.
        pc: u64,
        /// Its length in bytes.
        size: u64,
    },
    /// A reference to memory.
    Reference {
        /// Address of the instruction.
        pc: u64,
        /// Number of its source.
        source: u8,
        /// Distance in bytes from the source's value.
        offset: i64,
        /// Size in bytes.
        size: u64,
        /// Memory is read.
        reads: bool,
        /// Memory is written.
        writes: bool,
    },
}

/// Items that are noted together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Number of the instruction in its block before which the values are noted.
    pub point: usize,
    /// Where the values are had there.
    pub sources: Vec<Source>,
    /// The items in order.
    pub items: Vec<Item>,
}

/// A part of a block.
pub enum Piece {
    /// A batch.
    Batch(Batch),
    /// The repeated references of an instruction, given by its number in the block.
    Repeated(usize),
}

/// A register from the change that gave it its value: the register, and the number of the first instruction that sees
/// the value.
type Version = (Reg, usize);

/// What a value depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Registers(Option<Version>, Option<(Version, u8)>),
    Image,
    /// Number of the instruction, and the operand.
    Operand(usize, u8),
}

/// A reference with its source.
struct Found {
    key: Key,
    /// Distance from the source. For rsp it counts from the value at the start of rsp's version.
    at: i64,
    size: u64,
    reads: bool,
    writes: bool,
}

/// What is known of a block before batches are made.
struct Facts {
    /// For each instruction its references, found.
    found: Vec<Vec<Found>>,
    /// For each instruction the distance of rsp from the start of its version.
    stack: Vec<i64>,
    /// For each version the last instruction whose address needs it: up to there the register certainly keeps
    /// the program's value.
    last_use: HashMap<Version, usize>,
}

/// A batch to which references are still added.
struct Open {
    keys: Vec<(Key, i64)>,
    /// The first and the last instruction at which all sources have their values.
    window: (usize, usize),
    /// Items, with distances as in [`Found::at`].
    items: Vec<Item>,
}

/// Makes the pieces of a block.
struct Maker<'f> {
    facts: &'f Facts,
    open: Option<Open>,
    /// The first instruction at which a point may be.
    barrier: usize,
    /// Instructions that no batch has yet, with their numbers.
    waiting: Vec<(usize, Item)>,
    pieces: Vec<Piece>,
}

/// The pieces of a block in order, given its instructions with their references. With `all`, batches have executed
/// instructions, too.
pub fn pieces(insts: &[(Inst<'_>, Option<References>)], all: bool) -> Vec<Piece> {
    let facts = facts(insts);
    let mut maker = Maker {
        facts: &facts,
        open: None,
        barrier: 0,
        waiting: Vec::new(),
        pieces: Vec::new(),
    };
    for (number, (inst, references)) in insts.iter().enumerate() {
        let (pc, size) = (inst.pc(), inst.size() as u64);
        if all {
            maker.waiting.push((number, Item::Executed { pc, size }));
        }
        let is_once = |r: &References| r.times == Times::Once;
        match references {
            Some(references) if !is_once(references) => {
                maker.close();
                maker.pieces.push(Piece::Repeated(number));
                maker.barrier = number + 1;
            }
            _ => {
                for found in &facts.found[number] {
                    maker.add(pc, found);
                }
            }
        }
        if enters_kernel(inst) {
            maker.close();
            maker.barrier = number + 1;
        }
    }
    maker.close();
    maker.pieces
}

/// Whether an instruction enters the kernel, which may end the process or make a new one.
pub fn enters_kernel(inst: &Inst<'_>) -> bool {
    // Their bytes, since a mnemonic is made as text: `syscall`, `sysenter`, `int` with its number.
    let may_be_one = matches!(inst.bytes(), [.., 0x0f, 0x05 | 0x34] | [.., 0xcd, _]);
    may_be_one && ["syscall", "sysenter", "int"].contains(&inst.mnemonic())
}

fn facts(insts: &[(Inst<'_>, Option<References>)]) -> Facts {
    let mut facts = Facts {
        found: Vec::new(),
        stack: Vec::new(),
        last_use: HashMap::new(),
    };
    let mut since: HashMap<Reg, usize> = HashMap::new();
    let mut rsp = 0;
    let object = insts.first().map(|(inst, _)| inst.object().range());
    let object = object.unwrap_or_default();
    for (number, (inst, references)) in insts.iter().enumerate() {
        facts.stack.push(rsp);
        let version = |reg: Reg| (reg, since.get(&reg).copied().unwrap_or(0));
        let once = references.as_ref().filter(|r| r.times == Times::Once);
        let accesses = once.map(|_| inst.memory()).unwrap_or_default();
        let operands = once.map_or(&[][..], |r| &r.operands);
        let found = operands.iter().map(|&operand| {
            let access = accesses.get(usize::from(operand));
            let (key, at) = access
                .and_then(|access| source(access, rsp, &object, version))
                .unwrap_or((Key::Operand(number, operand), 0));
            Found {
                key,
                at,
                size: access.map_or(1, |access| u64::from(access.size).max(1)),
                reads: access.is_none_or(|access| access.access.reads()),
                writes: access.is_some_and(|access| access.access.writes()),
            }
        });
        let found: Vec<Found> = found.collect();
        for version in found.iter().flat_map(|found| versions(found.key)) {
            facts.last_use.insert(version, number);
        }
        facts.found.push(found);
        let updated = inst.reg_usage().updated;
        for reg in GENERAL.into_iter().filter(|reg| updated.contains(*reg)) {
            match (reg == Reg::Rsp).then(|| stack_change(inst)).flatten() {
                Some(change) => rsp += change,
                None => {
                    since.insert(reg, number + 1);
                    if reg == Reg::Rsp {
                        rsp = 0;
                    }
                }
            }
        }
    }
    facts
}

const GENERAL: [Reg; 16] = [
    Reg::Rax,
    Reg::Rcx,
    Reg::Rdx,
    Reg::Rbx,
    Reg::Rsp,
    Reg::Rbp,
    Reg::Rsi,
    Reg::Rdi,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

fn versions(key: Key) -> impl Iterator<Item = Version> {
    let (base, index) = match key {
        Key::Registers(base, index) => (base, index.map(|(index, _)| index)),
        _ => (None, None),
    };
    base.into_iter().chain(index)
}

/// The source of an access, and the distance from it; `None` if it is known at the instruction only.
fn source(
    access: &MemoryAccess,
    rsp: i64,
    object: &Range<u64>,
    version: impl Fn(Reg) -> Version,
) -> Option<(Key, i64)> {
    let is_plain = access.segment.is_none()
        && access.count == 1
        && access.bit_offset.is_none()
        && !access.has_8_bit_index()
        && !access.has_32_bit_address();
    if !is_plain {
        return None;
    }
    if let Some(address) = access.address {
        let is_relative = access.base == Some(Reg::Pc);
        let is_known = object.contains(&address);
        return (is_relative && is_known).then_some((Key::Image, address as i64));
    }
    let is_general = |reg: &Reg| GENERAL.contains(reg);
    let all = [access.base, access.index];
    if !all.iter().flatten().all(is_general) {
        return None;
    }
    let index = access.index.map(|reg| (version(reg), access.scale as u8));
    let key = Key::Registers(access.base.map(&version), index);
    let moved = if access.base == Some(Reg::Rsp) {
        rsp
    } else {
        0
    };
    Some((key, access.displacement + moved))
}

impl Maker<'_> {
    /// The window of a source.
    fn window(&self, key: Key) -> (usize, usize) {
        match key {
            Key::Operand(number, _) => (number, number),
            Key::Image => (0, usize::MAX),
            Key::Registers(..) => {
                let last = |version: Version| self.facts.last_use.get(&version).copied();
                let first = versions(key).map(|(_, since)| since).max();
                let last = versions(key).map(|v| last(v).unwrap_or(v.1)).min();
                (first.unwrap_or(0), last.unwrap_or(usize::MAX))
            }
        }
    }

    /// Adds a reference to the open batch, or to a new one if it does not fit.
    fn add(&mut self, pc: u64, found: &Found) {
        let (first, last) = self.window(found.key);
        let fits = self.open.as_ref().is_some_and(|open| {
            let is_old = open.keys.iter().any(|(key, _)| *key == found.key);
            let waiting = self.waiting.len();
            (is_old || open.keys.len() < MOST_SOURCES)
                && open.window.0.max(first) <= open.window.1.min(last)
                && open.items.len() + waiting < MOST_ITEMS
        });
        if !fits {
            // Instructions that wait belong to the new batch.
            let waiting = std::mem::take(&mut self.waiting);
            self.close();
            self.waiting = waiting;
        }
        let barrier = self.barrier;
        let open = self.open.get_or_insert_with(|| Open::new(barrier));
        open.items
            .extend(self.waiting.drain(..).map(|(_, item)| item));
        open.window = (open.window.0.max(first), open.window.1.min(last));
        let known = open.keys.iter().position(|(key, _)| *key == found.key);
        let source = known.unwrap_or_else(|| {
            open.keys.push((found.key, found.at));
            open.keys.len() - 1
        });
        open.items.push(Item::Reference {
            pc,
            source: source as u8,
            offset: found.at,
            size: found.size,
            reads: found.reads,
            writes: found.writes,
        });
    }

    /// Ends the open batch; it takes the instructions that wait.
    fn close(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        if self.open.is_none()
            && let Some((number, item)) = waiting.next()
        {
            let mut open = Open::new(self.barrier.max(number));
            open.items.push(item);
            self.open = Some(open);
        }
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.items.extend(waiting.map(|(_, item)| item));
        let point = open.window.0;
        // The next batch is noted after this one.
        self.barrier = self.barrier.max(point);
        let moved = |key: &Key| match key {
            Key::Registers(Some((Reg::Rsp, _)), _) => self.facts.stack[point],
            _ => 0,
        };
        // Distances count from the sources' values at the point.
        for item in &mut open.items {
            if let Item::Reference { source, offset, .. } = item {
                let (key, first) = &open.keys[usize::from(*source)];
                *offset -= match key {
                    Key::Image => *first,
                    key => moved(key),
                };
            }
        }
        let source = |(key, first): &(Key, i64)| match *key {
            Key::Registers(base, index) => {
                let index = index.map(|((reg, _), scale)| (reg, scale));
                Source::Registers(base.map(|(reg, _)| reg), index)
            }
            Key::Image => Source::Image(*first as u64),
            Key::Operand(_, operand) => Source::Operand(operand),
        };
        self.pieces.push(Piece::Batch(Batch {
            point,
            sources: open.keys.iter().map(source).collect(),
            items: open.items,
        }));
    }
}

impl Open {
    fn new(first: usize) -> Self {
        Self {
            keys: Vec::new(),
            window: (first, usize::MAX),
            items: Vec::new(),
        }
    }
}

/// The instructions of a block with their references.
pub fn insts<'a>(block: &Block<'a>) -> Vec<(Inst<'a>, Option<References>)> {
    block
        .insts()
        .map(|inst| (inst, inst.references()))
        .collect()
}
