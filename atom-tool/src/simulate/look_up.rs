//! The calls that look up an instruction's references: one by one, several at once, or with the
//! number that tells their order.

use super::groups::{Group, Part, groups};
use super::times::{self, Known, Numbers};
use crate::Place::{After, Before};
use crate::call::{AccessSizeOf, EffAddrOf, Routine};
use crate::counters::{Counter, CounterAt, CounterTable};
use crate::handle::{Block, Inst, Proc};
use crate::params::Array;
use crate::references::References;
use crate::thread_data::{PerThread, ThreadData, ThreadState};
use crate::{InstType, Reg};

/// For one reference: state, shape, address, size, counter.
pub type ReferRoutine<T> = Routine<(PerThread<T>, u64, u64, u64, Counter<2>)>;

/// For references of which the first is counted and all lie within so many bytes: state,
/// shape, lowest address, bytes, counter, the references.
pub type GroupRoutine<T> = Routine<(PerThread<T>, u64, u64, u64, Counter<2>, Array<Part>)>;

/// [`ReferRoutine`] with the reference's number, see [`times`], behind the shape.
pub type TimedRoutine<T> = Routine<(PerThread<T>, u64, u64, u64, u64, Counter<2>)>;

/// [`GroupRoutine`] with the number behind the shape.
pub type TimedGroupRoutine<T> =
    Routine<(PerThread<T>, u64, u64, u64, u64, Counter<2>, Array<Part>)>;

/// How references are looked up that an instruction makes once each time.
pub enum LookUp<T: 'static> {
    /// Each by itself.
    Each(ReferRoutine<T>),
    /// Together, where one look-up may answer and they have at most so many bytes.
    Grouped(ReferRoutine<T>, GroupRoutine<T>, u64),
    /// Likewise, by routines that want to know which of two references came last.
    Timed(Timed<T>),
}

/// Routines that are told the number of a reference. The sum of this and of a clock of their
/// own is its time.
pub struct Timed<T: 'static> {
    /// Adds [`times::STEP`] to the clock.
    pub step: Routine<(PerThread<T>,)>,
    /// For one reference: through registers in general, and through the stack pointer or the frame
    /// pointer. Where it leads is another matter.
    pub refer: [TimedRoutine<T>; 2],
    /// For several.
    pub group: [TimedGroupRoutine<T>; 2],
    /// Bytes of a group at most.
    pub unit: u64,
}

/// A block, and its instructions that refer to memory.
pub(super) type BlockReferences<'a, 'b> = (Block<'a>, &'b [(Inst<'a>, References)]);

impl<T: ThreadState> LookUp<T> {
    /// The routine for one reference of which no number is known.
    pub(super) fn refer(&self) -> ReferRoutine<T> {
        match self {
            Self::Each(refer) | Self::Grouped(refer, ..) => *refer,
            Self::Timed(_) => panic!("what has no number cannot be looked up by its time"),
        }
    }

    /// Adds the calls for all references of a procedure that are made once and may be looked up
    /// together. Given are what the routines get, with the place of the first instruction's
    /// counter.
    pub(super) fn add_proc<'a>(
        &self,
        proc: Proc<'a>,
        blocks: &[BlockReferences<'a, '_>],
        (state, shape, counts, mut first): (ThreadData<T>, u64, CounterTable<2>, usize),
        known: &Known,
    ) {
        let unit = match self {
            Self::Each(_) => return,
            Self::Grouped(.., unit) => *unit,
            Self::Timed(timed) => timed.unit,
        };
        let groups = blocks
            .iter()
            .map(|(block, insts)| groups(block, insts, unit));
        let groups: Vec<_> = groups.collect();
        let numbers = match self {
            Self::Timed(_) => {
                let many: Vec<usize> = groups.iter().map(Vec::len).collect();
                times::number(proc, blocks, &many, known)
            }
            _ => Vec::new(),
        };
        let frame = match self {
            Self::Timed(_) => proc.frame().and_then(|frame| frame.frame_reg()),
            _ => None,
        };
        for (at, (block, insts)) in blocks.iter().enumerate() {
            for (i, group) in groups[at].iter().enumerate() {
                let args = (state, shape, counts.at(first + group.first));
                match self {
                    Self::Timed(timed) => {
                        timed.add_group(insts, group, args, numbers[at].of(i), frame)
                    }
                    _ => self.add_group(insts, group, args),
                }
            }
            if let Self::Timed(timed) = self {
                timed.add_steps(*block, state, &numbers[at]);
            }
            first += insts.len();
        }
    }

    /// Adds the call for references that are looked up together, or for one.
    fn add_group(
        &self,
        insts: &[(Inst<'_>, References)],
        group: &Group,
        (state, shape, count): (ThreadData<T>, u64, CounterAt<2>),
    ) {
        let (number, operand) = group.lowest;
        let inst = insts[number].0;
        match self {
            Self::Grouped(_, routine, _) if !group.parts.is_empty() => {
                let address = EffAddrOf(operand);
                let args = (state, shape, address, group.extent, count, &group.parts);
                inst.add_call(Before, *routine, args);
            }
            _ => self.add_one(inst, operand, (state, shape, count)),
        }
    }

    /// Adds the call for one reference.
    pub(super) fn add_one(
        &self,
        inst: Inst<'_>,
        operand: u8,
        (state, shape, count): (ThreadData<T>, u64, CounterAt<2>),
    ) {
        let refer = self.refer();
        let (address, size) = (EffAddrOf(operand), AccessSizeOf(operand));
        if inst.has_access_size(operand) {
            inst.add_call(Before, refer, (state, shape, address, size, count));
        } else {
            inst.add_call(Before, refer, (state, shape, address, 1, count));
        }
    }
}

impl<T: ThreadState> Timed<T> {
    /// Adds the call for references that are looked up together, or for one, with their number,
    /// and whether a step comes first. The procedure's frame register is given.
    fn add_group(
        &self,
        insts: &[(Inst<'_>, References)],
        group: &Group,
        (state, shape, count): (ThreadData<T>, u64, CounterAt<2>),
        (number, steps): (u64, bool),
        frame: Option<Reg>,
    ) {
        let (lowest, operand) = group.lowest;
        let inst = insts[lowest].0;
        if steps {
            inst.add_call(Before, self.step, (state,));
        }
        let kind = usize::from(is_stack(inst, operand, frame));
        let address = EffAddrOf(operand);
        if !group.parts.is_empty() {
            let (bytes, parts) = (group.extent, &group.parts);
            let args = (state, shape, number, address, bytes, count, parts);
            inst.add_call(Before, self.group[kind], args);
        } else if inst.has_access_size(operand) {
            let size = AccessSizeOf(operand);
            let args = (state, shape, number, address, size, count);
            inst.add_call(Before, self.refer[kind], args);
        } else {
            let args = (state, shape, number, address, 1, count);
            inst.add_call(Before, self.refer[kind], args);
        }
    }

    /// Adds a block's steps, once its look-ups were added: those at its end come after them.
    fn add_steps(&self, block: Block<'_>, state: ThreadData<T>, numbers: &Numbers) {
        if numbers.steps {
            block.add_call(Before, self.step, (state,));
        }
        if numbers.steps_at_end {
            block.last_inst().add_call(Before, self.step, (state,));
        }
        let is_syscall = |inst: &Inst<'_>| inst.is_type(InstType::Syscall);
        for inst in block.insts().filter(is_syscall) {
            inst.add_call(After, self.step, (state,));
        }
    }
}

/// Whether an operand is addressed through rsp, or through a frame pointer.
fn is_stack(inst: Inst<'_>, operand: u8, frame: Option<Reg>) -> bool {
    let accesses = inst.memory();
    let base = accesses.get(usize::from(operand)).and_then(|a| a.base);
    base.is_some_and(|base| base == Reg::Rsp || base == Reg::Rbp && frame == Some(base))
}
