//! Cold paths of a body. They are after the procedure and save registers of their own. The last resort
//! is a call of the routine.

use super::super::Site;
use super::{Context, Path, Result, is_simple, plain_register};
use crate::analysis::specialise::ops::{End, Node, Op};
use crate::live::RegSet;
use crate::plan::code::Target;
use crate::plan::detour::Detour;
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
pub(super) fn rare_side(sides: &[Node; 2]) -> Option<usize> {
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
    pub(super) fn aside(
        &mut self,
        context: &mut Context,
        node: &Node,
        path: Path,
        last: bool,
    ) -> Result<()> {
        let is_plain = node.ops.is_empty() && !matches!(node.end, End::Branch(..));
        if self.aside.is_some() || is_plain {
            return self.node(context, node, path, last);
        }
        let (outer, intact, slots) = (self.depth, self.intact, self.slots);
        let saved = self.needs.aside & !self.needs.gprs;
        let straight = std::mem::replace(&mut context.intact, !0);
        self.aside = Some(intact);
        let ends = std::mem::take(&mut context.ends);
        if saved == 0 {
            // Nothing is to be restored, so its ends are the body's; but short jumps stay in the tail.
            self.node(context, node, path, last)?;
            self.aside = None;
            self.slots = slots;
            self.intact = context.intact;
            context.intact &= straight;
            let own = std::mem::replace(&mut context.ends, ends);
            if !context.far {
                context.ends.extend(own);
            } else if !own.is_empty() {
                self.land_near(own);
                self.jump_to_end(context, last);
            }
            return Ok(());
        }
        let far = std::mem::take(&mut context.far);
        let far_ends = std::mem::take(&mut context.far_ends);
        if self.depth == 0 {
            self.move_stack(self.point.red_zone());
        }
        let below = self.depth;
        for number in (0..16).filter(|n| saved >> n & 1 != 0) {
            self.push(Gpr(number));
            if intact >> number & 1 != 0 {
                self.slots[usize::from(number)] = self.depth;
            }
        }
        self.node(context, node, path, true)?;
        context.far = far;
        self.land_far(std::mem::replace(&mut context.far_ends, far_ends));
        let own = std::mem::replace(&mut context.ends, ends);
        self.land_near(own);
        for number in (0..16).rev().filter(|n| saved >> n & 1 != 0) {
            self.asm.pop(Gpr(number));
            self.depth -= 8;
        }
        self.move_stack(outer - below);
        self.aside = None;
        self.slots = slots;
        self.intact = context.intact | saved & intact;
        context.intact = straight & self.intact;
        self.jump_to_end(context, last);
        Ok(())
    }

    /// Jumps to the end of the body, if that does not follow.
    pub(super) fn jump_to_end(&mut self, context: &mut Context, last: bool) {
        if context.far {
            self.asm.jump_to(None, Target::Main, 0);
            context.far_ends.push(self.asm.fixups.len() - 1);
        } else if !last {
            let jump = self.asm.branch(None, self.needs.long);
            context.ends.push(jump);
        }
    }

    /// Lets jumps of the same part of the code end here.
    pub(super) fn land_near(&mut self, jumps: Vec<Patch>) {
        for patch in jumps {
            if !self.asm.land_if_near(patch) {
                self.found.long = true;
            }
        }
    }

    /// Lets jumps from the tail end here.
    pub(super) fn land_far(&mut self, jumps: Vec<usize>) {
        for fixup in jumps {
            self.tail.fixups[fixup].addend = (self.asm.code.len() - self.base) as i32;
        }
    }

    /// Emits the cold side of a branch in the tail.
    pub(super) fn far(
        &mut self,
        context: &mut Context,
        cond: Cond,
        node: &Node,
        path: Path,
    ) -> Result<()> {
        let at = self.tail.code.len() as i32;
        self.asm.jump_to(Some(cond), Target::Tail, at);
        std::mem::swap(self.asm, &mut self.tail);
        self.asm.at_depth(self.depth as u32);
        (context.far, self.in_tail) = (true, true);
        let done = self.aside(context, node, path, true);
        (context.far, self.in_tail) = (false, false);
        std::mem::swap(self.asm, &mut self.tail);
        done
    }

    /// Calls the routine through a shared stub; false if that is impossible.
    fn detour(&mut self, context: &Context) -> Result<bool> {
        let call = context.call;
        let simple = |v: &Value| matches!(v, Value::Const(_)) || is_simple(v);
        if self.point.is_piece
            || self.point.may_set_df && !self.flags_pushed
            || !call.values.iter().all(simple)
        {
            return Ok(false);
        }
        let Some((mut detour, pushed)) = Detour::new(&call.values, call.common) else {
            return Ok(false);
        };
        let keep_flags = context.flags_later || self.point.live.intersects(RegSet::FLAGS);
        let outer = self.depth;
        if self.depth == 0 {
            self.move_stack(self.point.red_zone());
            detour.back += self.point.red_zone() as u16;
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
                self.depth += 8;
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
            flags: keep_flags && self.flags_intact,
            mxcsr: clobbers.mxcsr,
            align: clobbers.needs_alignment,
            unchecked: self.wrappers.unchecked,
            stack_words: 0,
            yields: false,
            stack: None,
            apart: self.wrappers.apart.filter(|_| clobbers.is_apart),
            detour: Some(detour),
        };
        self.asm.call(Target::Shared(self.wrappers.index(wrapper)));
        self.depth = outer;
        self.asm.at_depth(outer as u32);
        Ok(true)
    }

    /// Calls the routine at the end of a path of the body.
    pub(super) fn call_out(&mut self, context: &Context) -> Result<()> {
        if self.detour(context)? {
            return Ok(());
        }
        let call = context.call;
        let outer = (
            self.depth,
            self.slots,
            self.needs,
            self.flags_pushed,
            self.flags_slot,
        );
        let (found, intact) = (self.found, self.intact);
        if self.depth == 0 {
            self.move_stack(self.point.red_zone());
        }
        let below = self.depth;
        let pushes_flags = self.point.may_set_df && !self.flags_pushed;
        if pushes_flags {
            self.asm.push_flags();
            self.asm.clear_direction();
            self.depth += 8;
            self.flags_slot = self.depth;
            self.flags_pushed = true;
        }
        // Filling the arguments may change these registers, besides those that the routine changes.
        let filled = ARGUMENT_REGISTERS
            .iter()
            .take(call.values.len())
            .fold(0, |set, r| set | r.bit());
        let scratch = Gpr::RAX.bit() | Gpr(11).bit();
        let clobbered = call.clobbers.gprs & RegSet::CALLER_SAVED.gpr_mask() | filled | scratch;
        let kept = self.reserved;
        let program = (self.point.live.gpr_mask() | context.sources_later) & intact;
        let saved = clobbered & (program | kept);
        // Arguments may be computed from registers that other arguments overwrite.
        let sources = call.values.iter().fold(0, |set, v| set | v.sources());
        let saved = saved | clobbered & sources & intact;
        for number in (0..16).filter(|n| saved >> n & 1 != 0) {
            self.push(Gpr(number));
            if intact >> number & 1 != 0 {
                self.slots[usize::from(number)] = self.depth;
            }
        }
        self.needs.gprs |= saved;
        self.needs.calls = true;
        self.reserved &= !saved;
        let in_ax = std::mem::replace(&mut self.flags_in_ax, false);
        self.call(call, context.sources_later, context.flags_later);
        self.flags_in_ax = in_ax;
        self.reserved = kept;
        for number in (0..16).rev().filter(|n| saved >> n & 1 != 0) {
            self.asm.pop(Gpr(number));
            self.depth -= 8;
        }
        if pushes_flags {
            self.asm.pop_flags();
        }
        self.depth = below;
        let back = below - outer.0;
        self.move_stack(-back);
        self.intact |= saved & intact;
        let new = self.found;
        self.found = found;
        self.found.gprs |= new.gprs & !saved;
        self.found.aside |= new.aside & !saved;
        self.found.flags |= new.flags && !found.flags && !pushes_flags;
        (
            self.depth,
            self.slots,
            self.needs,
            self.flags_pushed,
            self.flags_slot,
        ) = outer;
        Ok(())
    }
}
