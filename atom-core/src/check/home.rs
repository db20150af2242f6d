//! Checks of calls that push the original return address. The head of `layout/home.rs` says what they are for.

use super::procedure::{Checker, Goal};
use super::same;
use super::step::Complaint;
use crate::ids::InstId;
use crate::layout::home::Home;
use crate::x86::{FlowControl, Instruction, Mnemonic, Register};

impl Checker<'_, '_> {
    /// Checks a call that pushes the original return address, and that control comes back from there.
    pub(super) fn call_at_home(
        &mut self,
        original: &Instruction,
        inst: InstId,
        copy: u64,
        home: Home,
    ) -> Result<u64, Complaint> {
        let back = original.next_ip();
        let (call, next) = match home {
            Home::InPlace => {
                let jump = self.walker.decode(copy)?;
                let is_jump = jump.is_jmp_short_or_near();
                if !is_jump || jump.near_branch_target() != original.ip() {
                    return Err(format!("the copy at {copy:#x} does not jump to the call"));
                }
                (self.walker.decode(original.ip())?, jump.next_ip())
            }
            Home::Pushed => {
                let jump = self.pushes(copy, back)?;
                (jump, jump.next_ip())
            }
        };
        let is_right = match original.flow_control() {
            // In the old text, whose calls lead to the version to which pads lead.
            FlowControl::Call if home == Home::InPlace && !self.subject.has_pads() => true,
            FlowControl::Call => {
                let old = original.near_branch_target();
                let goal = self.goal(old, None);
                self.enter(old, None, call.near_branch_target(), goal)
                    .map_err(|c| format!("the call's target {c}"))?;
                call.is_call_near() || home == Home::Pushed && call.is_jmp_short_or_near()
            }
            _ if home == Home::InPlace => same::is_same(original, &call),
            _ => call.to_string() == original.to_string().replacen("call", "jmp", 1),
        };
        if !is_right || home == Home::InPlace && call.next_ip() != back {
            return Err(format!("the call is {call}, not {original}"));
        }
        if self.subject.has_pads() && self.subject.layout().sites.homes.comes_back(inst) {
            let goal = Goal {
                at: next,
                inst: None,
                from: None,
            };
            self.walk(back, goal, &[])
                .map_err(|c| format!("the jump at the return address {c}"))?;
            self.checked.pads += 1;
        }
        Ok(next)
    }

    /// Checks code that makes a call and replaces the pushed address by `back`; yields the jump that follows.
    fn pushes(&self, copy: u64, back: u64) -> Result<Instruction, Complaint> {
        let mut at = copy;
        let mut texts = Vec::new();
        let mut lea = None;
        for i in 0..6 {
            let inst = self.walker.decode(at)?;
            match i {
                0 => texts.push(
                    (inst.is_call_near() && inst.near_branch_target() == inst.next_ip() + 1)
                        .to_string(),
                ),
                3 => lea = Some(inst),
                _ => texts.push(inst.to_string()),
            }
            at = inst.next_ip();
        }
        let is_lea = lea.is_some_and(|lea| {
            lea.mnemonic() == Mnemonic::Lea
                && lea.op0_register() == Register::RAX
                && lea.is_ip_rel_memory_operand()
                && lea.ip_rel_memory_address() == back
        });
        if is_lea && texts == ["true", "int3", "push rax", "mov [rsp+8],rax", "pop rax"] {
            self.walker.decode(at)
        } else {
            Err(format!(
                "the copy at {copy:#x} does not push {back:#x}: {texts:?}"
            ))
        }
    }
}
