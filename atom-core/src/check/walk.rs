//! Following inserted code on all its paths, up to the place where the program goes on.

use std::collections::BTreeMap;

use super::memory::Memory;
use super::state::{RSP, State, Value};
use super::step::{self, Borders, Complaint};
use crate::layout::Area;
use crate::live::RegSet;
use crate::plan::Clobbers;
use crate::x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, OpKind, Register, decode_at,
};

/// Largest number of steps of a walk. A walk ends by itself, since joined states only lose facts; a routine whose loop
/// the compiler has unrolled, with a call of shared code in each part, takes more than 20,000 steps.
const MOST_STEPS: usize = 1_000_000;

/// Facts for all walks in a program.
#[derive(Clone, Copy)]
pub struct Walker<'a> {
    /// The output.
    pub memory: &'a Memory<'a>,
    /// The memory of inserted code.
    pub borders: Borders,
    /// The moved and inserted code: calls into it are followed.
    pub text: (u64, u64),
    /// The analysis routines.
    pub routines: Routines<'a>,
}

/// The tool's routines as inserted code calls them.
#[derive(Clone, Copy)]
pub struct Routines<'a> {
    /// Registers and flags that a routine may change, by its address in the tool's file.
    pub clobbers: &'a (dyn Fn(u64) -> Clobbers + Sync),
    /// First address and end of the routines, if they lie in the output.
    pub code: (u64, u64),
    /// The area of the process, if the routines lie there. Calls go through its table.
    pub area: Option<&'a Area>,
}

impl Routines<'_> {
    /// The effect of the routine that an instruction calls; `None` if it calls no routine.
    fn called(&self, instruction: &Instruction) -> Option<Clobbers> {
        let routine = match (instruction.flow_control(), self.area) {
            (FlowControl::Call, None) => {
                let to = instruction.near_branch_target();
                (self.code.0..self.code.1)
                    .contains(&to)
                    .then(|| to - self.code.0)?
            }
            (FlowControl::IndirectCall, Some(area)) => {
                let is_absolute = instruction.op0_kind() == OpKind::Memory
                    && instruction.memory_base() == Register::None
                    && instruction.memory_index() == Register::None
                    && instruction.memory_segment() == Register::DS;
                area.routine_of(is_absolute.then(|| instruction.memory_displacement64())?)?
            }
            _ => return None,
        };
        Some((self.clobbers)(routine))
    }
}

/// Conditions at the end of inserted code.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Registers and flags that the program may still read.
    pub live: RegSet,
    /// True if the direction flag may be set, so that it matters.
    pub direction: bool,
}

/// Largest depth of calls of shared code by shared code.
const MOST_CALLS: usize = 2;

/// A place in the walk: the address, and the return addresses of the calls around it.
type Place = (u64, Vec<u64>);

/// The paths of a walk that are still to be followed.
struct Paths {
    /// States at the targets of branches, each joined over all paths that came there. Elsewhere a
    /// path takes its state along. Each loop has a branch, so each path comes to a known state.
    states: BTreeMap<Place, State>,
    /// Targets of branches whose states have changed.
    work: Vec<Place>,
    /// The path that is being followed.
    current: Option<(Place, State)>,
}

impl Paths {
    fn from(start: Place) -> Self {
        Self {
            states: BTreeMap::new(),
            work: Vec::new(),
            current: Some((start, State::at_point())),
        }
    }

    /// Where to go on.
    fn next(&mut self) -> Option<(Place, State)> {
        self.current.take().or_else(|| {
            let place = self.work.pop()?;
            let state = self.states[&place].clone();
            Some((place, state))
        })
    }

    /// Control may come to the target of a branch.
    fn branch(&mut self, to: Place, state: &State) {
        match self.states.get_mut(&to) {
            Some(known) => {
                if known.join(state) {
                    self.work.push(to);
                }
            }
            None => {
                self.states.insert(to.clone(), state.clone());
                self.work.push(to);
            }
        }
    }

    /// Control comes to the next instruction, or back from shared code.
    fn go_on(&mut self, to: Place, state: State) {
        match self.states.contains_key(&to) {
            true => self.branch(to, &state),
            false => self.current = Some((to, state)),
        }
    }
}

impl Walker<'_> {
    /// The instruction at an address of the output.
    pub fn decode(&self, address: u64) -> Result<Instruction, Complaint> {
        self.memory
            .rest_at(address)
            .and_then(|bytes| decode_at(&bytes[..bytes.len().min(15)], address))
            .ok_or_else(|| format!("there is no instruction at {address:#x}"))
    }

    /// Checks that from `from` every path leads to `goal`, and that the
    /// program's state is then as it was. Yields the number of instructions
    /// in between.
    pub fn walk(
        &self,
        from: u64,
        goal: u64,
        demand: Demand,
        info: &mut InstructionInfoFactory,
    ) -> Result<usize, Complaint> {
        if from == goal {
            return Ok(0);
        }
        let mut paths = Paths::from((from, Vec::new()));
        let mut steps = 0;
        let mut arrived = false;
        while let Some(((pc, mut context), mut state)) = paths.next() {
            if pc == goal && context.is_empty() {
                check_end(&state, demand)?;
                arrived = true;
                continue;
            }
            steps += 1;
            if steps > MOST_STEPS {
                return Err(format!("does not come to {goal:#x}"));
            }
            let instruction = self.decode(pc)?;
            let next = instruction.next_ip();
            let at = |complaint: Complaint| format!("{pc:#x} {instruction}: {complaint}");
            match instruction.flow_control() {
                FlowControl::Next => {
                    step::step(&mut state, &instruction, &self.borders, info).map_err(at)?;
                    paths.go_on((next, context), state);
                }
                FlowControl::UnconditionalBranch => {
                    paths.branch((instruction.near_branch_target(), context), &state);
                }
                FlowControl::ConditionalBranch => {
                    if matches!(
                        instruction.code(),
                        Code::Loop_rel8_64_RCX | Code::Loop_rel8_64_ECX
                    ) {
                        return Err(at("changes rcx".into()));
                    }
                    let target = instruction.near_branch_target();
                    paths.branch((target, context.clone()), &state);
                    paths.go_on((next, context), state);
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let to = instruction.near_branch_target();
                    if let Some(clobbers) = self.routines.called(&instruction) {
                        call_routine(&mut state, clobbers, demand).map_err(at)?;
                        paths.go_on((next, context), state);
                    } else if to >= self.text.0 && to < self.text.1 && context.len() < MOST_CALLS {
                        step::push(&mut state, Value::Return(next), &self.borders).map_err(at)?;
                        context.push(next);
                        paths.branch((to, context), &state);
                    } else {
                        return Err(at("calls what is not an analysis routine".into()));
                    }
                }
                FlowControl::Return if !context.is_empty() => {
                    let back = context.pop();
                    match step::pop(&mut state).map_err(at)? {
                        Value::Return(to) if Some(to) == back => {
                            if instruction.op_count() == 1 {
                                step::drop_words(&mut state, instruction.immediate16());
                            }
                            paths.go_on((to, context), state);
                        }
                        _ => return Err(at("returns without its return address".into())),
                    }
                }
                _ => return Err(at("must not stand in inserted code".into())),
            }
        }
        if arrived {
            Ok(steps)
        } else {
            Err(format!("never comes to {goal:#x}"))
        }
    }
}

/// The effect of a call by the C ABI.
fn call_routine(state: &mut State, clobbers: Clobbers, demand: Demand) -> Result<(), Complaint> {
    let Some((base, at)) = state.stack_pointer() else {
        return Err("calls without a known stack pointer".into());
    };
    if clobbers.needs_alignment && (base != super::state::Base::Aligned || at % 16 != 0) {
        return Err("calls with a stack that is not aligned".into());
    }
    if demand.direction && state.direction {
        return Err("calls with the direction flag in doubt".into());
    }
    for n in (0..16).filter(|n| *n != RSP && clobbers.gprs >> n & 1 != 0) {
        state.gprs[n] = Value::Unknown;
    }
    state.xmms &= !clobbers.xmms;
    if clobbers.flags {
        state.flags = RegSet::EMPTY;
    }
    state.forget_below();
    Ok(())
}

fn check_end(state: &State, demand: Demand) -> Result<(), Complaint> {
    if state.gprs[RSP] != Value::Sum(RSP as u8, 0) {
        return Err(format!("leaves rsp as {:?}", state.gprs[RSP]));
    }
    let mut lost = RegSet::EMPTY;
    for n in 0..16 {
        if state.gprs[n] != Value::Sum(n as u8, 0) {
            lost |= RegSet::gpr(n);
        }
        if state.xmms >> n & 1 == 0 {
            lost |= RegSet::xmm(n);
        }
    }
    lost |= RegSet::FLAGS.without(state.flags);
    let lost = lost & demand.live;
    if !lost.is_empty() {
        return Err(format!("does not restore {lost:?}"));
    }
    if demand.direction && !state.direction {
        return Err("does not restore the direction flag".into());
    }
    Ok(())
}
