//! The code of one procedure, found by following control from its entries.
//!
//! Only bytes that control can reach are taken for code, so data between
//! instructions does no harm. Instructions may overlap (by a jump over a `lock`
//! prefix): each start is an instruction of its own.

use super::examined::{Examined, Traps};
use super::uses::{Use, use_of};
use crate::image::{Image, ImageDecoder};
use crate::x86::{ControlFlow, Inst, Instruction, direct_target, flow_of, is_rip_relative};

/// Bits for what is known of a byte of a procedure.
pub mod mark {
    /// An instruction starts at the byte.
    pub const START: u8 = 1;
    /// The byte is inside of an instruction, not its first byte.
    pub const INSIDE: u8 = 2;
    /// A basic block starts at the byte.
    pub const LEADER: u8 = 4;
    /// Control comes to the byte by an original address.
    pub const INDIRECT: u8 = 8;
    /// Control comes to the byte from another procedure.
    pub const ENTRY: u8 = 16;
    /// A landing pad starts at the byte.
    pub const LANDING: u8 = 32;
    /// The byte is read as data, or belongs to an object that a symbol names.
    pub const DATA: u8 = 64;
    /// Of an address that is to be processed: nothing proves that there is code.
    pub const DOUBTFUL: u8 = 128;
    /// Of an address that is to be processed: there is certainly code. Each such address becomes a leader.
    pub const CERTAIN: u8 = LEADER;
}

/// A reference from the code of a procedure to somewhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ref {
    /// Direct call.
    Call(u64),
    /// Direct jump or fall-through out of the procedure's range.
    Jump(u64),
    /// Conditional jump out of the procedure's range.
    CondJump(u64),
    /// An address that is computed or loaded as a constant.
    Address(u64),
    /// An address of the text that is computed and serves as the base of loads, perhaps with an index.
    Table(u64),
    /// An address of the text that is computed and to which control certainly goes.
    Code(u64),
    /// The address of memory that is read or written.
    Memory(u64),
}

/// The code of one procedure.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// First address.
    pub start: u64,
    /// One past the last address that may belong to the procedure.
    pub end: u64,
    /// [`mark`] bits for each byte from `start`.
    pub marks: Vec<u8>,
    /// Instructions found so far; sorted by [`Body::finish`].
    pub insts: Vec<Inst>,
    /// References to addresses outside of the procedure, and to data.
    pub refs: Vec<Ref>,
    /// Number of its references that have been processed.
    pub seen_refs: usize,
    /// Targets of calls inside of the procedure, without the procedure's start and without
    /// calls of the next instruction.
    pub local_calls: Vec<u64>,
    /// Addresses of indirect jumps.
    pub indirect_jumps: Vec<u64>,
    /// True if it has a return or an indirect jump.
    pub has_exit: bool,
    /// Its traps with possible code after them, as of an earlier round.
    pub traps: Traps,
    /// Number of changes of the marks and instructions so far.
    pub changes: u32,
    /// What was found in its jump tables.
    pub examined: Examined,
    /// The value of `changes` when addresses were refused as code last, and the addresses refused since then.
    refused: (u32, Vec<u64>),
    /// The first bytes that control reaches and that cannot be decoded as code: address and reason.
    pub obstacle: Option<(u64, String)>,
    /// During a [`Trial`], each changed mark: its distance from the start, and the bits before.
    journal: Option<Vec<(u32, u8)>>,
}

/// Which instructions those of a trial must not overlap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Those from before the trial.
    Earlier,
    /// Those from before the trial, and one another.
    All,
}

/// What a body was before a trial: control is followed from addresses that may be no code. The body is that again after
/// [`Body::undo`].
struct Trial {
    insts: usize,
    refs: usize,
    local_calls: usize,
    indirect_jumps: usize,
    has_exit: bool,
    had_obstacle: bool,
    changes: u32,
}

/// True if an operand relative to the instruction pointer, if there is one, and a direct branch lead into the program or
/// near it. Code refers to its own program, so what leads far away shows that the bytes are no code. Address 0 stands for
/// a weak symbol that is not defined.
pub(super) fn reaches_image(image: &Image, instruction: &crate::x86::Instruction) -> bool {
    const SLACK: u64 = 0x1_0000;
    let target = match direct_target(instruction) {
        Some(target) => target,
        None if is_rip_relative(instruction) => instruction.memory_displacement64(),
        None => return true,
    };
    target == 0
        || target.wrapping_sub(image.base.wrapping_sub(SLACK)) < image.end - image.base + 2 * SLACK
}

impl Body {
    /// A computed address as a reference: what code does with it matters only in the text.
    fn computed(&self, image: &Image, instruction: &Instruction, address: u64) -> Ref {
        let is_text =
            image.is_code(address) && (image.section_at(address)).is_none_or(|s| s.has_code());
        if !is_text {
            return Ref::Address(address);
        }
        match use_of(image, instruction) {
            Use::Data => Ref::Table(address),
            Use::Code => Ref::Code(address),
            // A procedure that jumps to a computed address stays in place, so no pad depends on it.
            Use::NearCode if self.contains(address) => Ref::Code(address),
            Use::NearCode | Use::Unknown => Ref::Address(address),
        }
    }

    /// An empty body over a range.
    pub fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            marks: vec![0; (end - start) as usize],
            ..Self::default()
        }
    }

    /// True if the address is in the range.
    pub fn contains(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    /// The marks at an address of the range.
    pub fn mark_at(&self, address: u64) -> u8 {
        self.marks[(address - self.start) as usize]
    }

    /// True if the address is a leader with these [`mark`] bits already.
    pub fn is_leader_with(&self, address: u64, bits: u8) -> bool {
        let bits = bits | mark::LEADER;
        self.mark_at(address) & bits == bits
    }

    /// Adds marks at an address of the range.
    pub fn add_mark(&mut self, address: u64, bits: u8) {
        let at = (address - self.start) as usize;
        self.changes += u32::from(self.marks[at] & bits != bits);
        self.set_bits(at, bits);
    }

    /// Sets bits of the mark at a distance from the start.
    fn set_bits(&mut self, at: usize, bits: u8) {
        let mark = &mut self.marks[at];
        if *mark & bits != bits
            && let Some(journal) = &mut self.journal
        {
            journal.push((at as u32, *mark));
        }
        *mark |= bits;
    }

    /// Does some work as a trial: it is undone if its instructions are none, or overlap data or the `others`. True if it is
    /// kept.
    pub(super) fn attempt(
        &mut self,
        base: u64,
        others: Others,
        work: impl FnOnce(&mut Self),
    ) -> bool {
        let before = self.begin();
        work(self);
        let is_wrong = self.contradicts(&before, base, others);
        if is_wrong {
            self.undo(&before);
        }
        self.journal = None;
        !is_wrong
    }

    /// The references that exploring an address would find. The body stays what it is.
    pub(super) fn refs_from(&mut self, image: &Image, address: u64) -> Vec<Ref> {
        let before = self.begin();
        self.explore(image, address);
        self.undo(&before)
    }

    /// Begins a trial: what is explored and marked from now on can be undone.
    fn begin(&mut self) -> Trial {
        self.journal = Some(Vec::new());
        Trial {
            insts: self.insts.len(),
            refs: self.refs.len(),
            local_calls: self.local_calls.len(),
            indirect_jumps: self.indirect_jumps.len(),
            has_exit: self.has_exit,
            had_obstacle: self.obstacle.is_some(),
            changes: self.changes,
        }
    }

    /// Ends a trial: the body is what it was before. Returns the references that the trial found.
    fn undo(&mut self, before: &Trial) -> Vec<Ref> {
        for (at, bits) in self.journal.take().into_iter().flatten().rev() {
            self.marks[at as usize] = bits;
        }
        self.insts.truncate(before.insts);
        self.local_calls.truncate(before.local_calls);
        self.indirect_jumps.truncate(before.indirect_jumps);
        self.has_exit = before.has_exit;
        if !before.had_obstacle {
            self.obstacle = None;
        }
        self.changes = before.changes;
        self.refs.split_off(before.refs)
    }

    /// Notes that the bytes at an address cannot be code, unless the body changes.
    pub fn refuse(&mut self, address: u64) {
        if self.refused.0 != self.changes {
            self.refused = (self.changes, Vec::new());
        }
        self.refused.1.push(address);
    }

    /// True if the bytes at an address cannot be code.
    pub fn has_refused(&self, address: u64) -> bool {
        self.refused.0 == self.changes && self.refused.1.contains(&address)
    }

    /// Removes marks at an address of the range.
    pub fn remove_mark(&mut self, address: u64, bits: u8) {
        self.marks[(address - self.start) as usize] &= !bits;
        self.changes += 1;
    }

    /// Follows control from `address`, and marks the address as a leader.
    pub fn explore(&mut self, image: &Image, address: u64) {
        if self.insts.capacity() == 0 {
            // Estimates for a procedure of this size.
            self.insts.reserve((self.marks.len() / 3).min(4096));
            self.refs.reserve((self.marks.len() / 12).min(1024));
        }
        let base = image.base;
        let mut decoder = ImageDecoder::new(image);
        let mut instruction = Instruction::default();
        // Often there is nothing to follow but the first address.
        let mut work = Vec::new();
        let mut first = Some(address);
        while let Some(leader) = first.take().or_else(|| work.pop()) {
            if !self.contains(leader) {
                continue;
            }
            self.add_mark(leader, mark::LEADER);
            let mut pc = leader;
            let mut after_call = false;
            // True after a call, which perhaps never returns.
            let mut since_call = false;
            while self.contains(pc) {
                if self.mark_at(pc) & mark::START != 0 {
                    break;
                }
                let is_valid = decoder.decode_into(pc, &mut instruction);
                if !is_valid || instruction.next_ip() > self.end {
                    // Bytes after a call need not be code, as the callee may never return.
                    if !after_call && self.obstacle.is_none() {
                        self.obstacle = Some((pc, "bytes that are no known instruction".into()));
                    }
                    break;
                }
                if !reaches_image(image, &instruction) {
                    if !after_call && self.obstacle.is_none() {
                        self.obstacle = Some((pc, "bytes that are hardly an instruction".into()));
                    }
                    break;
                }
                let flow = flow_of(&instruction);
                let len = instruction.len();
                if since_call && self.has_data(pc, len) {
                    break;
                }
                self.add_mark(pc, mark::START);
                let at = (pc - self.start) as usize;
                for at in at + 1..at + len {
                    self.set_bits(at, mark::INSIDE);
                }
                self.has_exit |= matches!(flow, ControlFlow::Return | ControlFlow::IndirectJump);
                self.insts.push(Inst {
                    offset: (pc - base) as u32,
                    len: len as u8,
                    flow,
                    rip_relative: is_rip_relative(&instruction),
                    special: false,
                });
                self.note_refs(image, &instruction, flow);
                let next = pc + len as u64;
                if let Some(target) = direct_target(&instruction) {
                    if flow != ControlFlow::Call {
                        if self.contains(target) {
                            self.add_mark(target, mark::LEADER);
                            work.push(target);
                        } else if flow == ControlFlow::Jump {
                            self.refs.push(Ref::Jump(target));
                        } else {
                            self.refs.push(Ref::CondJump(target));
                        }
                    } else if self.contains(target) && target != self.start {
                        // A call inside of the procedure: a position-independent trick or a local subroutine.
                        self.add_mark(target, mark::LEADER);
                        work.push(target);
                        if target != next {
                            self.local_calls.push(target);
                        }
                    } else {
                        self.refs.push(Ref::Call(target));
                    }
                }
                if flow == ControlFlow::IndirectJump {
                    self.indirect_jumps.push(pc);
                }
                if flow.ends_flow() {
                    break;
                }
                after_call = matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall);
                since_call |= after_call;
                if flow.ends_block() && self.contains(next) {
                    self.add_mark(next, mark::LEADER);
                }
                pc = next;
                if !self.contains(pc) && !after_call {
                    self.refs.push(Ref::Jump(pc));
                }
            }
        }
    }

    /// Adds the references of an instruction, without the target of a branch.
    pub(super) fn note_refs(
        &mut self,
        image: &Image,
        instruction: &crate::x86::Instruction,
        flow: ControlFlow,
    ) {
        use crate::x86::{Mnemonic, OpKind, Register};
        if is_rip_relative(instruction) {
            let target = instruction.memory_displacement64();
            self.refs.push(match instruction.mnemonic() {
                Mnemonic::Lea => self.computed(image, instruction, target),
                _ => Ref::Memory(target),
            });
        } else if !image.kind.is_position_independent()
            && instruction.memory_displ_size() >= 4
            && instruction.op_kinds().any(|k| k == OpKind::Memory)
        {
            let address = instruction.memory_displacement64();
            let is_indexed = instruction.memory_base() != Register::None
                || instruction.memory_index() != Register::None;
            self.refs.push(if is_indexed && image.is_code(address) {
                Ref::Table(address)
            } else {
                Ref::Memory(address)
            });
        }
        // Only instructions that pass an address on count; other constants are numbers.
        let hands_on = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Push);
        if !image.kind.is_position_independent() && !flow.is_direct() && hands_on {
            for i in 0..instruction.op_count() {
                if matches!(
                    instruction.op_kind(i),
                    OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
                ) {
                    let value = instruction.immediate(i);
                    if image.is_code(value) {
                        self.refs.push(self.computed(image, instruction, value));
                    }
                }
            }
        }
    }

    /// True if one of `len` bytes from an address of the range is known to be data.
    pub fn has_data(&self, address: u64, len: usize) -> bool {
        let at = (address - self.start) as usize;
        self.marks[at..at + len].iter().any(|m| m & mark::DATA != 0)
    }

    /// True if a trial has met bytes that are no code, or if its instructions overlap data or the `others`.
    fn contradicts(&self, before: &Trial, base: u64, others: Others) -> bool {
        if self.obstacle.is_some() && !before.had_obstacle {
            return true;
        }
        if others == Others::All {
            return self.overlaps(before, base, |at| self.marks[at]);
        }
        // The first change of a mark has the bits from before the trial.
        let mut changed = self.journal.clone().unwrap_or_default();
        changed.sort_by_key(|(at, _)| *at);
        changed.dedup_by_key(|(at, _)| *at);
        self.overlaps(before, base, |at| {
            let found = changed.binary_search_by_key(&at, |(at, _)| *at as usize);
            found.map_or(self.marks[at], |i| changed[i].1)
        })
    }

    /// True if instructions of a trial overlap other instructions or data by the marks at distances from the start.
    fn overlaps(&self, before: &Trial, base: u64, bits: impl Fn(usize) -> u8) -> bool {
        let first = (self.start - base) as u32;
        self.insts[before.insts..].iter().any(|i| {
            let at = (i.offset - first) as usize;
            let mut inside = at + 1..at + usize::from(i.len);
            bits(at) & (mark::INSIDE | mark::DATA) != 0
                || inside.any(|at| bits(at) & (mark::START | mark::DATA) != 0)
        })
    }

    /// Sorts the instructions and drops duplicates. Those that were sorted before are moved only as far as new ones are in
    /// front of them.
    pub fn finish(&mut self) {
        let insts = &mut self.insts;
        let descends = |pair: &[Inst]| pair[0].offset >= pair[1].offset;
        let Some(last) = insts.windows(2).position(descends) else {
            insts.shrink_to(insts.len() + insts.len() / 4 + 8);
            return;
        };
        // New instructions were found in sorted runs, which interleave only where instructions overlap.
        let follows = |a: &Inst, b: &Inst| a.offset + u32::from(a.len) == b.offset;
        let mut runs: Vec<&[Inst]> = insts[last + 1..].chunk_by(follows).collect();
        runs.sort_unstable_by_key(|run| run[0].offset);
        let mut new = runs.concat();
        if !new.is_sorted_by_key(|i| i.offset) {
            new.sort_unstable_by_key(|i| i.offset);
        }
        let mut old = last + 1;
        for at in (0..insts.len()).rev() {
            let Some(next) = new.last() else { break };
            if old > 0 && insts[old - 1].offset > next.offset {
                old -= 1;
                insts[at] = insts[old];
            } else {
                insts[at] = *next;
                new.pop();
            }
        }
        insts.dedup_by_key(|i| i.offset);
    }

    /// Ends the body after its last instruction, so that the rest is free for procedures found later.
    pub fn end_at_code(&mut self) {
        let end = self.code_end().max(self.start + 1);
        self.marks.truncate((end - self.start) as usize);
        self.end = end;
        self.changes += 1;
    }

    /// Number of bytes in which no instruction is known.
    pub(super) fn not_reached(&self) -> usize {
        let is_code = |m: &&u8| **m & (mark::START | mark::INSIDE) != 0;
        self.marks.len() - self.marks.iter().filter(is_code).count()
    }

    /// One past the last address that an instruction covers.
    pub fn code_end(&self) -> u64 {
        let covered = self
            .marks
            .iter()
            .rposition(|m| m & (mark::START | mark::INSIDE) != 0);
        self.start + covered.map_or(0, |i| i as u64 + 1)
    }
}
