//! Cold paths of a body. They are after the procedure and save registers of their own. The last resort
//! is a call of the routine.

use super::super::Site;
use super::super::state::{Ends, State};
use super::{Context, Path, Result, is_simple, plain_register};
use crate::analysis::specialise::ops::{End, Node, Op};
use crate::live::RegSet;
use crate::plan::code::Target;
use crate::plan::stub::Stub;
use crate::plan::wrapper::Wrapper;
use crate::tool::value::Value;
use crate::x86::abi::ARGUMENT_REGISTERS;
use crate::x86::asm::{Cond, Gpr, Patch};
use crate::x86::opcode;

/// Number of operations up to which a side of a branch is in line.
const MOST_IN_LINE: usize = 12;

/// The cold side of a branch, if there is one: a side that only calls; a side that may call, if the other
/// ends at once; a long side, if the other is empty; a side that begins with an exchange in memory, if the other has
/// none and never calls: it repeats what could be done without one.
pub(super) fn cold_side(sides: &[Node; 2]) -> Option<usize> {
    // In front of the call may be an operation that takes back a store.
    let calls = |side: &Node| side.ops.len() <= 1 && side.end == End::Call;
    let is_rare = |i: &usize| {
        let (side, other) = (&sides[*i], &sides[1 - *i]);
        let ends = other.end == End::Return && other.ops.len() < MOST_IN_LINE;
        let repeats = exchanges(side) && !exchanges(other) && !other.may_call();
        repeats
            || calls(side)
            || ends && side.may_call()
            || other.is_empty() && side.ops.len() > MOST_IN_LINE
    };
    (0..2).find(is_rare)
}

/// True if there is an exchange and addition in memory, without a lock, among the first operations.
fn exchanges(side: &Node) -> bool {
    let is_exchange = |op: &Op| matches!(op, Op::Machine(m) if m.opcode == opcode::XADD && !m.lock);
    side.ops.iter().take(2).any(is_exchange)
}

impl Site<'_> {
    /// Emits a path that the straight one goes around. It saves the registers that only it needs and restores
    /// them at its end.
    pub(super) fn cold_path(
        &mut self,
        context: &Context,
        ends: &mut Ends,
        node: &Node,
        path: Path,
        last: bool,
    ) -> Result<()> {
        let is_plain = node.ops.is_empty() && !matches!(node.end, End::Branch(..));
        if self.state.cold_intact.is_some() || is_plain {
            return self.node(context, ends, node, path, last);
        }
        let outer = self.state;
        let saved = self.needs.cold_gprs & !self.needs.gprs;
        self.state.cold_intact = Some(outer.intact);
        if saved == 0 {
            return self.node(context, ends, node, path, last);
        }
        if self.state.depth == 0 {
            self.move_stack(self.point.red_zone());
        }
        let below = self.state.depth;
        for number in (0..16).filter(|n| saved >> n & 1 != 0) {
            self.push(Gpr(number));
            if outer.intact >> number & 1 != 0 {
                self.state.slots[usize::from(number)] = self.state.depth;
            }
        }
        let mut own = Ends::new(false);
        self.node(context, &mut own, node, path, true)?;
        self.land_far(own.far);
        self.land_near(own.near);
        for number in (0..16).rev().filter(|n| saved >> n & 1 != 0) {
            self.asm.pop(Gpr(number));
            self.state.depth -= 8;
        }
        self.move_stack(outer.depth - below);
        self.state = State {
            intact: own.intact | saved & outer.intact,
            flags_intact: own.flags_intact,
            ..outer
        };
        self.jump_to_end(ends, last);
        Ok(())
    }

    /// Jumps to the end of the body, if that does not follow, and notes what is true there.
    pub(super) fn jump_to_end(&mut self, ends: &mut Ends, last: bool) {
        ends.meet(self.state.intact, self.state.flags_intact);
        if ends.are_far {
            self.asm.jump_to(None, Target::Main, 0);
            ends.far.push(self.asm.fixups.len() - 1);
        } else if !last {
            let jump = self.asm.branch(None, self.needs.long);
            ends.near.push(jump);
        }
    }

    /// Lets jumps of the same part of the code end here.
    pub(super) fn land_near(&mut self, jumps: impl IntoIterator<Item = Patch>) {
        for patch in jumps {
            if !self.asm.land_if_near(patch) {
                self.found.long = true;
            }
        }
    }

    /// Lets jumps from the cold part end here.
    pub(super) fn land_far(&mut self, jumps: Vec<usize>) {
        for fixup in jumps {
            self.cold_part.fixups[fixup].addend = (self.asm.code.len() - self.base) as i32;
        }
    }

    /// Emits the cold side of a branch in the cold part.
    pub(super) fn far(
        &mut self,
        context: &Context,
        ends: &mut Ends,
        cond: Cond,
        (node, path): (&Node, Path),
    ) -> Result<()> {
        let at = self.cold_part.code.len() as i32;
        self.asm.jump_to(Some(cond), Target::ColdPart, at);
        std::mem::swap(self.asm, &mut self.cold_part);
        self.asm.at_depth(self.state.depth as u32);
        self.in_cold_part = true;
        let mut own = Ends::new(true);
        let done = self.cold_path(context, &mut own, node, path, true);
        if !own.near.is_empty() {
            // Short jumps stay in the cold part.
            self.land_near(own.near.drain(..));
            self.jump_to_end(&mut own, true);
        }
        ends.far.append(&mut own.far);
        ends.meet(own.intact, own.flags_intact);
        self.in_cold_part = false;
        std::mem::swap(self.asm, &mut self.cold_part);
        done
    }

    /// Calls the routine through a shared stub; false if that is impossible.
    fn stub(&mut self, context: &Context) -> Result<bool> {
        let call = context.call;
        let simple = |v: &Value| matches!(v, Value::Const(_)) || is_simple(v);
        if self.point.is_piece
            || self.point.may_set_df && !self.state.flags_pushed
            || !call.values.iter().all(simple)
        {
            return Ok(false);
        }
        let Some((mut stub, pushed)) = Stub::new(&call.values, call.common) else {
            return Ok(false);
        };
        let keep_flags = context.flags_later || self.point.live.intersects(RegSet::FLAGS);
        let outer = self.state.depth;
        if self.state.depth == 0 {
            self.move_stack(self.point.red_zone());
            stub.back += self.point.red_zone() as u16;
        }
        for (k, &i) in pushed.iter().enumerate() {
            let value = &call.values[i];
            let is_immediate = match *value {
                Value::Const(n) => {
                    self.asm.push_imm(n as i32);
                    true
                }
                Value::Data(at) if self.point.absolute => {
                    self.asm.push_address(Target::Data(at));
                    true
                }
                _ => false,
            };
            if is_immediate {
                self.state.depth += 8;
                continue;
            }
            let waiting = pushed[k..].iter();
            let waiting = waiting.fold(0, |set, i| set | call.values[*i].sources());
            let reg = match plain_register(value) {
                Some(reg) if self.is_intact(reg) => reg,
                _ => Gpr(self.simple_value(context, value, context.reserved | waiting, 0)?),
            };
            self.push(reg);
        }
        let filled = ARGUMENT_REGISTERS.iter().take(call.values.len());
        let filled = filled.fold(0, |set, r| set | r.bit());
        let clobbers = &call.clobbers;
        let wrapper = Wrapper {
            routine: call.routine,
            gprs: clobbers.gprs & RegSet::CALLER_SAVED.gpr_mask() | filled | Gpr::RAX.bit(),
            xmms: clobbers.xmms,
            flags: keep_flags && self.state.flags_intact,
            mxcsr: clobbers.mxcsr,
            align: clobbers.needs_alignment,
            unchecked: self.wrappers.unchecked,
            stack_words: 0,
            yields: false,
            stack: None,
            apart: self.wrappers.apart.filter(|_| clobbers.is_apart),
            stub: Some(stub),
        };
        self.asm.call(Target::Shared(self.wrappers.index(wrapper)));
        self.state.depth = outer;
        self.asm.at_depth(outer as u32);
        Ok(true)
    }

    /// Calls the routine at the end of a path of the body.
    pub(super) fn call_out(&mut self, context: &Context) -> Result<()> {
        if self.stub(context)? {
            return Ok(());
        }
        let call = context.call;
        let outer = self.state;
        if self.state.depth == 0 {
            self.move_stack(self.point.red_zone());
        }
        let below = self.state.depth;
        let pushes_flags = self.point.may_set_df && !self.state.flags_pushed;
        if pushes_flags {
            self.asm.push_flags();
            self.asm.clear_direction();
            self.state.depth += 8;
            self.state.flags_slot = self.state.depth;
            self.state.flags_pushed = true;
        }
        // Filling the arguments may change these registers, besides those that the routine changes.
        let filled = ARGUMENT_REGISTERS
            .iter()
            .take(call.values.len())
            .fold(0, |set, r| set | r.bit());
        let scratch = Gpr::RAX.bit() | Gpr(11).bit();
        let clobbered = call.clobbers.gprs & RegSet::CALLER_SAVED.gpr_mask() | filled | scratch;
        let program = (self.point.live.gpr_mask() | context.sources_later) & outer.intact;
        let saved = clobbered & (program | outer.reserved);
        // Arguments may be computed from registers that other arguments overwrite.
        let sources = call.values.iter().fold(0, |set, v| set | v.sources());
        let saved = saved | clobbered & sources & outer.intact;
        for number in (0..16).filter(|n| saved >> n & 1 != 0) {
            self.push(Gpr(number));
            if outer.intact >> number & 1 != 0 {
                self.state.slots[usize::from(number)] = self.state.depth;
            }
        }
        self.state.saved |= saved;
        self.state.reserved &= !saved;
        self.state.flags_in_ax = false;
        self.call(call, context.sources_later, context.flags_later);
        for number in (0..16).rev().filter(|n| saved >> n & 1 != 0) {
            self.asm.pop(Gpr(number));
            self.state.depth -= 8;
        }
        if pushes_flags {
            self.asm.pop_flags();
        }
        self.state.depth = below;
        self.move_stack(outer.depth - below);
        self.state = State {
            intact: self.state.intact | saved & outer.intact,
            flags_intact: self.state.flags_intact,
            ..outer
        };
        Ok(())
    }
}
