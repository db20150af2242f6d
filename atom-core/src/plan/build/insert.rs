//! Inserting the calls of one point.

use super::Planner;
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId};
use crate::plan::code::Asm;
use crate::plan::part::Part;
use crate::plan::private_stack::PrivateStack;
use crate::plan::site::{self, Point, SiteCall};
use crate::plan::{Position, outcome};
use crate::tool::operand::{At, When};
use crate::tool::value::{Selected, Taken};
use crate::x86::asm::Gpr;

/// Where inserted code is at an instruction, and what holds there.
#[derive(Clone, Copy)]
pub(super) struct InsertionPoint {
    pub(super) position: Position,
    pub(super) point: Point,
    /// The program counter that arguments of calls see.
    pub(super) pc: u64,
}

/// The instruction that a point belongs to, with the facts that its calls need.
pub(super) struct Here {
    pub(super) at: At,
    pub(super) inst: InstId,
    pub(super) block: BlockId,
    pub(super) may_set_df: bool,
}

/// The condition on which a point's calls are made.
#[derive(Clone, Copy)]
pub(super) enum Guard {
    Taken(Taken),
    Selected(Selected),
}

impl Planner<'_> {
    /// Inserts the calls of one point. A call with a value of a gather's or scatter's operand is made
    /// for each element, with a test of its own around it.
    pub(super) fn calls_at(
        &self,
        part: &mut Part,
        here: &Here,
        lists: &[(&[u32], When)],
        place: InsertionPoint,
    ) -> Result<()> {
        let mut site = Vec::with_capacity(lists.iter().map(|l| l.0.len()).sum());
        for &(numbers, when) in lists {
            for &number in numbers {
                let elements = match when {
                    When::Before => self.elements(number, here),
                    _ => 1,
                };
                if let Some(register) = self.points.call(number).sets(&self.calls.args) {
                    self.insert(part, here, &site, place, None)?;
                    site.clear();
                    if elements != 1 {
                        let reason = "a call for each element cannot set a register";
                        return Err(Error::new("planning calls", reason).address(place.pc));
                    }
                    let call = self.resolve(number, here, place.pc, when, 0)?;
                    self.set(part, here, call, register, place);
                    continue;
                }
                if elements == 1 {
                    site.push(self.resolve(number, here, place.pc, when, 0)?);
                    continue;
                }
                self.insert(part, here, &site, place, None)?;
                site.clear();
                for element in 0..elements {
                    let call = self.resolve(number, here, place.pc, when, element)?;
                    let guard = Some(Guard::Selected(here.at.selected(element)));
                    self.insert(part, here, &[call], place, guard)?;
                }
            }
        }
        self.insert(part, here, &site, place, None)
    }

    /// Number of calls that a call stands for: one for each element of a gather or scatter.
    fn elements(&self, number: u32, here: &Here) -> u8 {
        let call = self.points.call(number);
        let args = &self.calls.args[call.args.start as usize..call.args.end as usize];
        let elements = args.iter().map(|a| here.at.elements(a));
        elements.max().unwrap_or(1)
    }

    pub(super) fn insert(
        &self,
        part: &mut Part,
        here: &Here,
        site: &[SiteCall],
        place: InsertionPoint,
        guard: Option<Guard>,
    ) -> Result<()> {
        if site.is_empty() {
            return Ok(());
        }
        self.insert_code(part, here, place, |part, code, point| {
            let patches = match guard {
                None => Vec::new(),
                Some(Guard::Taken(taken)) => site::only_if_taken(&mut part.asm, taken),
                Some(Guard::Selected(element)) => site::only_if_selected(&mut part.asm, element),
            };
            let emitted = site::emit(&mut part.asm, code, site, point, &mut part.wrappers);
            part.inlined += emitted.inlined as u64;
            for patch in patches {
                part.asm.land(patch);
            }
            emitted.cold_part
        });
        Ok(())
    }

    /// Inserts a call that may set a register.
    fn set(
        &self,
        part: &mut Part,
        here: &Here,
        call: SiteCall,
        register: Gpr,
        place: InsertionPoint,
    ) {
        self.insert_code(part, here, place, |part, code, point| {
            let (asm, wrappers) = (&mut part.asm, &mut part.wrappers);
            outcome::for_register(asm, code, call, register, point, wrappers)
        });
    }

    /// Inserts code, on a private stack where rsp may lead to data. `emit` gets the offset at which the code starts,
    /// and yields the cold path.
    fn insert_code(
        &self,
        part: &mut Part,
        here: &Here,
        place: InsertionPoint,
        emit: impl FnOnce(&mut Part, usize, Point) -> Asm,
    ) {
        let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
        let private = self.private_stack(part, here.inst, place.position);
        if let Some(private) = private {
            private.enter(&mut part.asm);
        }
        let point = Point {
            is_private: private.is_some(),
            ..place.point
        };
        let cold_part = emit(part, code, point);
        if let Some(private) = private {
            private.leave(&mut part.asm);
        }
        part.close_with_cold_part(code, fixups, here.inst, place.position, cold_part);
    }

    /// Inserts the call in place of a procedure.
    pub(super) fn instead(
        &self,
        part: &mut Part,
        here: &Here,
        number: u32,
        place: InsertionPoint,
    ) -> Result<()> {
        let (code, fixups) = (part.asm.code.len(), part.asm.fixups.len());
        let call = self.resolve(number, here, place.pc, When::Before, 0)?;
        let (asm, wrappers) = (&mut part.asm, &mut part.wrappers);
        let cold_part = outcome::in_place_of_procedure(asm, code, call, place.point, wrappers);
        part.close_with_cold_part(code, fixups, here.inst, place.position, cold_part);
        Ok(())
    }

    /// The stack for inserted code where rsp may lead to data.
    pub(super) fn private_stack(
        &self,
        part: &Part,
        inst: InstId,
        position: Position,
    ) -> Option<PrivateStack> {
        let is_foreign = part.is_foreign(inst, position);
        self.threads.private_stack().filter(|_| is_foreign)
    }
}
