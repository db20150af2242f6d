//! Values other than whole general registers: parts of them, vector registers, memory, and targets of
//! branches.

use super::Site;
use super::inline::is_in_image;
use crate::plan::code::{Asm, Target};
use crate::tool::value::{Address, Element, Selected, Taken, Value};
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::{Cond, Gpr, Mem, Patch};

impl Site<'_> {
    /// Computes a value into a register.
    pub(super) fn other_value(&mut self, to: Gpr, value: &Value, early: i32) {
        match *value {
            Value::Load(address, size)
                if !self.point.is_private
                    && address == Address::at(Gpr::RSP, address.disp)
                    && i32::try_from(address.disp + i64::from(self.state.depth)).is_ok() =>
            {
                let at = (address.disp + i64::from(self.state.depth)) as i32;
                self.asm.load_sized(to, Mem::at(Gpr::RSP, at), size);
            }
            Value::Load(ref address, 8) if is_in_image(address) => {
                let image = address.image.unwrap_or(0);
                self.asm.load_target(to, Target::original(image));
            }
            Value::Load(ref address, size) => {
                self.address(to, address);
                self.asm.load_sized(to, Mem::at(to, 0), size);
            }
            Value::Part(reg, first, size) => self.part_of(to, reg, first, size),
            Value::Xmm(number) => self.asm.low_of_xmm(to, number, true),
            Value::XmmSingle(number) => self.asm.low_of_xmm(to, number, false),
            Value::Mask(number) => self.asm.mask_to(to, number),
            Value::XmmHigh(number) => {
                let whole = Element {
                    register: number,
                    width: 16,
                    evex: number >= 16,
                    size: 8,
                    number: 1,
                };
                self.element(to, whole, false);
            }
            Value::Element(element) => self.element(to, element, false),
            Value::Next(taken, target, next) => self.next(to, taken, target, next, early),
            _ => unreachable!("the other values are computed elsewhere"),
        }
    }

    /// Notes that the arithmetic flags change now.
    pub(super) fn clobber_flags(&mut self) {
        self.state.flags_intact = false;
        if !self.state.flags_pushed {
            self.found.flags = true;
        }
    }

    /// Pushes the original address that the word at the program's rsp returns to; returns its depth.
    pub(super) fn push_return(&mut self) -> i32 {
        match self.stored_rsp() {
            Some(word) => {
                self.overwrite(Gpr::RAX);
                self.asm.load(Gpr::RAX, word);
                self.asm.push_mem(Mem::at(Gpr::RAX, 0));
            }
            None => self.asm.push_mem(self.slot(0)),
        }
        self.state.depth += 8;
        self.asm.call(Target::OriginalReturn);
        self.state.depth
    }

    /// Computes `size` bytes of a general register, from byte `first` on.
    pub(super) fn part_of(&mut self, to: Gpr, reg: Gpr, first: u8, size: u8) {
        let at = i32::from(first);
        if reg == Gpr::RSP {
            match self.stored_rsp() {
                Some(word) => self.asm.load(to, word),
                None => self.asm.lea(to, Mem::at(Gpr::RSP, self.state.depth)),
            }
            self.asm.extend(to, to, size);
        } else if let Some(slot) = self.moved_to(reg) {
            let mem = Mem {
                disp: slot.disp + at,
                ..slot
            };
            self.asm.load_sized(to, mem, size);
        } else if first == 0 {
            self.asm.extend(to, reg, size);
        } else {
            self.push(reg);
            self.asm.load_sized(to, Mem::at(Gpr::RSP, at), size);
            self.move_stack(-8);
        }
    }

    /// Computes an element of a vector register, through the stack.
    pub(super) fn element(&mut self, to: Gpr, element: Element, signed: bool) {
        let width = i32::from(element.width);
        self.move_stack(width);
        let slot = Mem::at(Gpr::RSP, 0);
        self.asm.store_vector(slot, &element);
        let at = Mem::at(
            Gpr::RSP,
            i32::from(element.number) * i32::from(element.size),
        );
        match (element.size, signed) {
            (4, true) => self.asm.load32_signed(to, at),
            (size, _) => self.asm.load_sized(to, at, size),
        }
        self.move_stack(-width);
    }

    /// Computes the target of a conditional branch.
    fn next(&mut self, to: Gpr, taken: Taken, target: u64, next: u64, early: i32) {
        let cond = match taken {
            Taken::Flags(cond) => {
                self.restore_flags();
                cond
            }
            Taken::CountZero { .. } | Taken::Loop { .. } => {
                self.asm.load(to, self.slot(early));
                self.clobber_flags();
                self.asm.test(to);
                Cond::NE
            }
        };
        let holder = self.scratch(to);
        self.asm.lea_target(to, Target::original(next));
        self.asm.lea_target(holder, Target::original(target));
        self.asm.move_if(cond, to, holder);
    }
}

/// Emits a test around the code that follows, so that this code runs only for an element that is
/// accessed. Neither registers nor flags change. The patches are to be landed at the code's end.
pub fn only_if_selected(asm: &mut Asm, selected: Selected) -> Vec<Patch> {
    let width = match selected {
        Selected::Sign(element) => i32::from(element.width),
        Selected::Mask(..) => 0,
    };
    asm.move_stack(-RED_ZONE);
    asm.push(Gpr::RAX);
    asm.push_flags();
    let top = match selected {
        Selected::Sign(element) => {
            asm.move_stack(-width);
            asm.store_vector(Mem::at(Gpr::RSP, 0), &element);
            let end = (i32::from(element.number) + 1) * i32::from(element.size);
            asm.load8(Gpr::RAX, Mem::at(Gpr::RSP, end - 1));
            asm.move_stack(width);
            0x80
        }
        Selected::Mask(register, bit) => {
            asm.mask_to(Gpr::RAX, register);
            1 << bit
        }
    };
    asm.test_eax(top);
    let skip = asm.jump_if(Cond::E);
    let depth = asm.depth();
    let close = |asm: &mut Asm| {
        asm.pop_flags();
        asm.pop(Gpr::RAX);
        asm.move_stack(RED_ZONE);
    };
    close(asm);
    let run = asm.jump();
    asm.land(skip);
    asm.at_depth(depth);
    close(asm);
    let over = asm.jump();
    asm.land(run);
    vec![over]
}
