//! Following inserted code on all its paths, up to the place where the program continues.

use super::frames::{self, Expected, Frames, Lost};
use super::memory::Memory;
use super::shared::{self, SharedCode};
use super::state::{Base, RSP, State, Value, Written, around};
use super::step::{self, Complaint, KnownWrites, WritableRanges};
use crate::layout::Area;
use crate::live::RegSet;
use crate::plan::Clobbers;
use crate::x86::{Code, FlowControl, Instruction, OpKind, Register, Run, decode_at};

/// Largest number of steps of a walk. A walk ends by itself, since joined states only lose facts; a routine whose loop
/// the compiler has unrolled, with a call of shared code in each part, takes more than 20,000 steps.
const MOST_STEPS: usize = 1_000_000;

/// Facts for all walks in a program.
#[derive(Clone, Copy)]
pub struct Walker<'a> {
    /// The output.
    pub memory: &'a Memory<'a>,
    /// The memory of inserted code.
    pub writable: WritableRanges,
    /// The moved and inserted code: calls into it are followed.
    pub text: (u64, u64),
    /// The same place in the other version of the procedure, where control may go in place of the goal.
    pub twin: Option<u64>,
    /// The code may return to the caller of the procedure that begins at the goal, as a routine runs in its place.
    pub may_return: bool,
    /// The analysis routines.
    pub routines: Routines<'a>,
}

/// The tool's routines as inserted code calls them.
#[derive(Clone, Copy)]
pub struct Routines<'a> {
    /// Registers and flags that a routine may change, by its address in the tool's file.
    pub clobbers: &'a (dyn Fn(u64) -> Clobbers + Sync),
    /// First address and end of the routines, if they are in the output.
    pub code: (u64, u64),
    /// The area of the process, if the routines are there. Calls go through its table.
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

/// What must hold at the end of inserted code.
#[derive(Clone, Copy, Debug)]
pub struct Postcondition {
    /// Registers and flags that the program may still read.
    pub live: RegSet,
    /// True if the direction flag may be set, so that it matters.
    pub direction: bool,
}

/// Largest depth of calls of shared code by shared code.
const MOST_CALLS: usize = 2;

/// A place in the walk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    pc: u64,
    /// Return addresses of the calls around it, the innermost last.
    returns: [u64; MOST_CALLS],
    depth: usize,
}

impl Place {
    fn at(self, pc: u64) -> Self {
        Self { pc, ..self }
    }

    /// The place in code that a call goes to.
    fn called(mut self, pc: u64, back: u64) -> Self {
        self.returns[self.depth] = back;
        self.depth += 1;
        self.at(pc)
    }

    /// The place to which the innermost call returns; there is one.
    fn returned(mut self) -> Self {
        self.depth -= 1;
        let back = std::mem::take(&mut self.returns[self.depth]);
        self.at(back)
    }
}

/// The path that is being followed, and those that are still to be followed.
struct Paths {
    place: Place,
    state: State,
    /// True if all paths have been followed.
    done: bool,
    /// States at the targets of branches, each joined over all paths that came there. Elsewhere a
    /// path takes its state along. Each loop has a branch, so each path comes to a known state.
    states: Vec<State>,
    /// The targets in order, with the numbers of their states. There are few.
    targets: Vec<(Place, usize)>,
    /// Targets of branches whose states have changed, with the numbers of their states.
    work: Vec<(Place, usize)>,
    /// Where code that is apart from the usual path begins.
    apart: u64,
}

/// Distance in bytes of a branch to code that is apart: after the procedure, from where it leads back.
const FAR: u64 = 128;

impl Paths {
    fn from(pc: u64, state: State) -> Self {
        Self {
            place: Place {
                pc,
                returns: [0; MOST_CALLS],
                depth: 0,
            },
            state,
            done: false,
            states: Vec::new(),
            targets: Vec::new(),
            work: Vec::new(),
            apart: u64::MAX,
        }
    }

    /// Ends the path, and continues with another. Paths through code that is apart come first, because they lead back to
    /// the usual path: what is after on that one is then followed once, with the facts of all.
    fn end(&mut self) {
        let order = |place: &Place| (place.pc < self.apart, place.pc);
        let next = (0..self.work.len()).min_by_key(|i| order(&self.work[*i].0));
        match next.map(|next| self.work.swap_remove(next)) {
            Some((place, state)) => {
                self.place = place;
                self.state.copy(&self.states[state]);
            }
            None => self.done = true,
        }
    }

    /// Where a target is in `targets`, or would be.
    fn target(&self, place: Place) -> Result<usize, usize> {
        self.targets.binary_search_by(|target| target.0.cmp(&place))
    }

    /// Control may come to the target of a branch.
    fn branch(&mut self, to: Place) {
        let (state, has_changed) = match self.target(to) {
            Ok(at) => {
                let state = self.targets[at].1;
                (state, self.states[state].join(&self.state))
            }
            Err(at) => {
                self.targets.insert(at, (to, self.states.len()));
                self.states.push(self.state.clone());
                (self.states.len() - 1, true)
            }
        };
        if has_changed {
            self.work.push((to, state));
        }
    }

    /// Control comes to a conditional branch.
    fn divide(&mut self, target: Place, next: Place) {
        self.branch(target);
        if target.pc > next.pc.saturating_add(FAR) {
            self.apart = self.apart.min(target.pc);
            self.jump(next);
        } else {
            self.go_on(next);
        }
    }

    /// Control comes to the target of a jump.
    fn jump(&mut self, to: Place) {
        self.branch(to);
        self.end();
    }

    /// Control comes to the next instruction, or back from shared code. False if another path is followed now.
    fn go_on(&mut self, to: Place) -> bool {
        let is_target = self.target(to).is_ok();
        if is_target {
            self.jump(to)
        } else {
            self.place = to
        }
        !is_target
    }
}

/// What a walk needs beside the code, and what it leaves for the next.
pub struct Watch<'w, 'a> {
    /// What instructions write.
    pub writes: &'w mut KnownWrites,
    /// Readers of frame descriptions, if the output has any.
    pub frames: Option<&'w mut Frames<'a>>,
    /// What they must say.
    pub expected: Expected<'a>,
    /// Places around rsp that inserted code has written.
    pub written: Written,
    /// What is known of shared code.
    pub shared: &'w mut SharedCode,
}

impl Watch<'_, '_> {
    /// See [`Frames::is_as_before`].
    fn is_as_before(&self, address: u64) -> bool {
        (self.frames.as_ref()).is_some_and(|frames| frames.is_as_before(address))
    }
}

/// Where a walk ends, and how frame descriptions are judged on the way.
#[derive(Clone, Copy)]
enum Way {
    /// At an address of the program, where the state must be as it was.
    To(u64),
    /// Where shared code returns to its caller, at whose call rsp had this offset from rsp at the point, and these
    /// registers did not have their values.
    Shared(i64, Lost),
}

/// What a walk has come to.
#[derive(Default)]
struct Arrived {
    /// The state at the end, joined over all paths that came there.
    state: Option<State>,
    steps: usize,
}

/// Decodes what is walked over.
struct Decoding<'m> {
    memory: &'m Memory<'m>,
    run: Run<'m>,
    /// The bytes from the run's next instruction on, and their address.
    rest: &'m [u8],
    next: u64,
    instruction: Instruction,
}

impl<'m> Decoding<'m> {
    fn new(memory: &'m Memory<'m>) -> Self {
        Self {
            memory,
            run: Run::new(&[], 0),
            rest: &[],
            next: 0,
            instruction: Instruction::default(),
        }
    }

    /// The instruction at an address, and the bytes from there on.
    fn at(&mut self, address: u64) -> Result<(&Instruction, &'m [u8]), Complaint> {
        let nothing = || format!("there is no instruction at {address:#x}");
        if address != self.next {
            self.rest = self.memory.rest_at(address).ok_or_else(nothing)?;
            self.run = Run::new(self.rest, address);
        }
        // A run that has failed is begun anew.
        self.next = 0;
        if !self.run.next_into(&mut self.instruction) {
            return Err(nothing());
        }
        self.next = self.instruction.next_ip();
        let bytes = self.rest;
        self.rest = &bytes[self.instruction.len()..];
        Ok((&self.instruction, bytes))
    }
}

impl Walker<'_> {
    /// True if an address is in the moved and inserted code.
    fn has(&self, address: u64) -> bool {
        (self.text.0..self.text.1).contains(&address)
    }

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
    ///
    /// Shared code is followed once for each state in which it is called. If there is a complaint, everything is followed,
    /// and what that comes to counts.
    pub fn walk(
        &self,
        from: u64,
        goal: u64,
        postcondition: Postcondition,
        watch: &mut Watch<'_, '_>,
    ) -> Result<usize, Complaint> {
        if from == goal {
            return Ok(0);
        }
        let before = watch.written.take();
        for is_quick in [true, false] {
            let mut paths = Paths::from(from, State::after(before));
            let found = self.follow(&mut paths, Way::To(goal), (postcondition, is_quick), watch);
            match found {
                Ok(Arrived {
                    state: Some(state),
                    steps,
                }) => {
                    watch.written = state.written();
                    return Ok(steps);
                }
                _ if is_quick => {}
                Ok(_) => break,
                Err(complaint) => return Err(complaint),
            }
        }
        Err(format!("never comes to {goal:#x}"))
    }

    /// Follows all paths to their ends. `is_quick`: with what is known of shared code.
    fn follow(
        &self,
        paths: &mut Paths,
        way: Way,
        (required, is_quick): (Postcondition, bool),
        watch: &mut Watch<'_, '_>,
    ) -> Result<Arrived, Complaint> {
        let mut arrived = Arrived::default();
        let mut decoding = Decoding::new(self.memory);
        let outermost = paths.place.depth;
        // True if the instruction before has changed nothing by which frames are found.
        let mut has_kept_frame = false;
        while !paths.done {
            let place = paths.place;
            let is_kept = std::mem::take(&mut has_kept_frame);
            if let Way::To(goal) = way
                && (place.pc == goal || Some(place.pc) == self.twin)
                && place.depth == 0
            {
                check_end(&paths.state, required)?;
                arrived.come(&paths.state);
                paths.end();
                continue;
            }
            if !(is_kept && watch.is_as_before(place.pc)) {
                self.look(place, way, &paths.state, watch)?;
            }
            arrived.steps += 1;
            if arrived.steps > MOST_STEPS {
                return Err("does not come to its end".into());
            }
            let (instruction, bytes) = decoding.at(place.pc)?;
            let next = place.at(instruction.next_ip());
            let at = |complaint: Complaint| format!("{:#x} {instruction}: {complaint}", place.pc);
            match instruction.flow_control() {
                FlowControl::Next => {
                    let state = &mut paths.state;
                    step::step(state, (instruction, bytes), &self.writable, watch.writes)
                        .map_err(at)?;
                    let keeps_frame = !watch.writes.may_move_frame((instruction, bytes));
                    has_kept_frame = paths.go_on(next) && keeps_frame;
                }
                FlowControl::UnconditionalBranch => {
                    paths.jump(place.at(instruction.near_branch_target()));
                }
                FlowControl::ConditionalBranch => {
                    if matches!(
                        instruction.code(),
                        Code::Loop_rel8_64_RCX | Code::Loop_rel8_64_ECX
                    ) {
                        return Err(at("changes rcx".into()));
                    }
                    paths.divide(place.at(instruction.near_branch_target()), next);
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let to = instruction.near_branch_target();
                    let state = &mut paths.state;
                    if let Some(clobbers) = self.routines.called(instruction) {
                        let is_foreign = self.writable.is_foreign;
                        call_routine(state, clobbers, required, is_foreign).map_err(at)?;
                        paths.go_on(next);
                    } else if is_quick
                        && place.depth == 0
                        && self.has(to)
                        && let Some(steps) = self.call_shared(to, next.pc, state, required, watch)
                    {
                        arrived.steps += steps;
                        paths.go_on(next);
                    } else if self.has(to) && place.depth < MOST_CALLS {
                        step::push(state, Value::Return(next.pc), &self.writable).map_err(at)?;
                        paths.jump(place.called(to, next.pc));
                    } else {
                        return Err(at("calls what is not an analysis routine".into()));
                    }
                }
                FlowControl::Return if place.depth == 0 && self.may_return => {
                    leave(paths, required).map_err(at)?;
                }
                FlowControl::Return if place.depth > 0 => {
                    let back = place.returned();
                    match step::pop(&mut paths.state).map_err(at)? {
                        Value::Return(to) if to == back.pc => {
                            if instruction.op_count() == 1 {
                                step::drop_words(&mut paths.state, instruction.immediate16());
                            }
                        }
                        _ => return Err(at("returns without its return address".into())),
                    }
                    if place.depth == outermost {
                        arrived.come(&paths.state);
                        paths.end();
                    } else {
                        _ = paths.go_on(back)
                    }
                }
                _ => return Err(at("must not stand in inserted code".into())),
            }
        }
        Ok(arrived)
    }

    /// Judges the frame description at a place.
    fn look(
        &self,
        place: Place,
        way: Way,
        state: &State,
        watch: &mut Watch<'_, '_>,
    ) -> Result<(), Complaint> {
        let Some(frames) = watch.frames.as_mut().filter(|_| self.has(place.pc)) else {
            return Ok(());
        };
        let around = &place.returns[..place.depth];
        match way {
            Way::To(_) => frames.look(&watch.expected, place.pc, around, state),
            Way::Shared(rsp, lost) => {
                if frames.leads_to_call(place.pc, around, state, (rsp, lost)) {
                    Ok(())
                } else {
                    Err("has a frame that must be judged with its caller's".into())
                }
            }
        }
    }

    /// Applies a call of shared code, which is followed if it was not called in such a state yet. Yields the number of
    /// instructions there. `None` if the call has to be followed with what is around it.
    fn call_shared(
        &self,
        to: u64,
        back: u64,
        state: &mut State,
        postcondition: Postcondition,
        watch: &mut Watch<'_, '_>,
    ) -> Option<usize> {
        let (Base::Point, rsp) = state.stack_pointer()? else {
            return None;
        };
        let lost = frames::lost(state, false);
        if let Some(frames) = watch.frames.as_mut()
            && !watch.expected.is_empty()
            && !frames.finds_same(&watch.expected, back - 1, ((Base::Point, rsp), lost), state)
        {
            return None;
        }
        let key = shared::Key {
            to,
            state: shared::called_in(state),
            direction: postcondition.direction,
            no_red_zone: self.writable.no_red_zone,
            is_foreign: self.writable.is_foreign,
        };
        if watch.shared.get(&key).is_none() {
            let effect = self.follow_shared(&key, rsp, postcondition, watch);
            watch.shared.insert(key.clone(), effect);
        }
        let (after, steps) = watch.shared.get(&key)?.as_ref()?;
        let written = around(state.written(), after.written());
        state.copy(after);
        state.set_written(written);
        Some(*steps)
    }

    /// The state in which shared code returns, and the number of its instructions. `None` if that depends on the caller.
    fn follow_shared(
        &self,
        key: &shared::Key,
        rsp: i64,
        postcondition: Postcondition,
        watch: &mut Watch<'_, '_>,
    ) -> Option<(State, usize)> {
        let mut state = key.state.clone();
        step::push(&mut state, Value::Return(shared::CALLER), &self.writable).ok()?;
        let mut paths = Paths::from(key.to, state);
        paths.place = paths.place.called(key.to, shared::CALLER);
        let way = Way::Shared(rsp, frames::lost(&key.state, false));
        let arrived = self.follow(&mut paths, way, (postcondition, false), watch);
        let Arrived { state, steps } = arrived.ok()?;
        Some((state?, steps))
    }
}

impl Arrived {
    /// A path has come to the end.
    fn come(&mut self, state: &State) {
        match &mut self.state {
            Some(known) => _ = known.join(state),
            None => self.state = Some(state.clone()),
        }
    }
}

/// The effect of a call by the C ABI.
fn call_routine(
    state: &mut State,
    clobbers: Clobbers,
    postcondition: Postcondition,
    is_foreign: bool,
) -> Result<(), Complaint> {
    let Some((base, at)) = state.stack_pointer() else {
        return Err("calls without a known stack pointer".into());
    };
    if is_foreign && base == super::state::Base::Point {
        return Err("calls where the program may keep data below rsp".into());
    }
    if clobbers.needs_alignment && (base != super::state::Base::Aligned || at % 16 != 0) {
        return Err("calls with a stack that is not aligned".into());
    }
    if postcondition.direction && state.direction {
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

/// Inserted code returns to the caller of the procedure, in whose place a routine has run.
fn leave(paths: &mut Paths, postcondition: Postcondition) -> Result<(), Complaint> {
    let kept = Postcondition {
        live: RegSet::CALLEE_SAVED,
        ..postcondition
    };
    check_end(&paths.state, kept)?;
    paths.end();
    Ok(())
}

fn check_end(state: &State, postcondition: Postcondition) -> Result<(), Complaint> {
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
    let lost = lost & postcondition.live;
    if !lost.is_empty() {
        return Err(format!("does not restore {lost:?}"));
    }
    if postcondition.direction && !state.direction {
        return Err("does not restore the direction flag".into());
    }
    Ok(())
}
