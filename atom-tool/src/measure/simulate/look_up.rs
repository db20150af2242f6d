//! The calls that look up an instruction's references: one by one, several at once, or with
//! numbers from which their order in time is computed.

use super::groups::{Group, Member, groups};
use super::times::{self, BlockReferences, Known, Numbers};
use crate::Place::{After, Before};
use crate::calls::params::Array;
use crate::calls::typed::{AccessSizeOf, EffAddrOf, Routine};
use crate::data::counters::{Counter, CounterAt, CounterTable};
use crate::data::thread_data::{PerThread, ThreadData, ThreadState};
use crate::navigation::handle::{Block, Inst, Proc};
use crate::navigation::references::References;
use crate::{InstType, Reg};

/// For one reference: state, shape, address, size, counter.
pub type ReferRoutine<T, const N: usize = 2> = Routine<(PerThread<T>, u64, u64, u64, Counter<N>)>;

/// For a group of references: state, shape, lowest address, number of bytes from there to the end of
/// the highest reference, counter of the first reference, the references.
pub type GroupRoutine<T, const N: usize = 2> =
    Routine<(PerThread<T>, u64, u64, u64, Counter<N>, Array<Member>)>;

/// A [`ReferRoutine`] with the reference's number (see [`times`]) after the shape.
pub type TimedRoutine<T, const N: usize = 2> =
    Routine<(PerThread<T>, u64, u64, u64, u64, Counter<N>)>;

/// A [`GroupRoutine`] with the group's number after the shape.
pub type TimedGroupRoutine<T, const N: usize = 2> =
    Routine<(PerThread<T>, u64, u64, u64, u64, Counter<N>, Array<Member>)>;

/// The look-up of references that an instruction makes once at each execution.
pub enum LookUp<T: 'static, const N: usize = 2> {
    /// One by one.
    Each(ReferRoutine<T, N>),
    /// In groups where one look-up may answer. The number is the largest size of a group in bytes.
    Grouped(ReferRoutine<T, N>, GroupRoutine<T, N>, u64),
    /// In groups, by routines that note the time of each reference.
    Timed(Timed<T, N>),
}

/// Routines that get the number of a reference. The time of the reference is the number plus the value of a
/// clock that the routines keep.
pub struct Timed<T: 'static, const N: usize = 2> {
    /// Adds [`times::STEP`] to the clock.
    pub step: Routine<(PerThread<T>,)>,
    /// For one reference: the first for operands with other base registers than rsp and the frame pointer,
    /// the second for operands with one of these, whether or not they address the stack.
    pub refer: [TimedRoutine<T, N>; 2],
    /// For a group, in the same way.
    pub group: [TimedGroupRoutine<T, N>; 2],
    /// Largest size of a group in bytes.
    pub unit: u64,
}

impl<T: ThreadState, const N: usize> LookUp<T, N> {
    /// The routine for one reference without a number.
    pub(super) fn refer(&self) -> ReferRoutine<T, N> {
        match self {
            Self::Each(refer) | Self::Grouped(refer, ..) => *refer,
            Self::Timed(_) => panic!("a timed routine needs the number of the reference"),
        }
    }

    /// Adds the calls for all references of a procedure that are made once and may be looked up
    /// together. The tuple has the arguments of the routines; its last number is the index of the first
    /// instruction's counter.
    pub(super) fn add_proc<'a>(
        &self,
        proc: Proc<'a>,
        blocks: &[BlockReferences<'a, '_>],
        (state, shape, counts, mut first): (ThreadData<T>, u64, CounterTable<N>, usize),
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
                let counts: Vec<usize> = groups.iter().map(Vec::len).collect();
                times::number(proc, blocks, &counts, known)
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

    /// Adds the call for a group of references.
    fn add_group(
        &self,
        insts: &[(Inst<'_>, References)],
        group: &Group,
        (state, shape, count): (ThreadData<T>, u64, CounterAt<N>),
    ) {
        let (number, operand) = group.lowest;
        let inst = insts[number].0;
        match self {
            Self::Grouped(_, routine, _) if !group.members.is_empty() => {
                let address = EffAddrOf(operand);
                let args = (state, shape, address, group.extent, count, &group.members);
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
        (state, shape, count): (ThreadData<T>, u64, CounterAt<N>),
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

impl<T: ThreadState, const N: usize> Timed<T, N> {
    /// Adds the call for a group of references with its number, and a step before it if `steps`.
    /// `frame` is the procedure's frame register.
    fn add_group(
        &self,
        insts: &[(Inst<'_>, References)],
        group: &Group,
        (state, shape, count): (ThreadData<T>, u64, CounterAt<N>),
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
        if !group.members.is_empty() {
            let (bytes, members) = (group.extent, &group.members);
            let args = (state, shape, number, address, bytes, count, members);
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

    /// Adds a block's steps. It is called after the look-ups have been added, since steps at the block's end
    /// must come after them.
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
