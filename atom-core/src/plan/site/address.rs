//! Computing effective addresses at a point.

use super::Site;
use crate::plan::code::Target;
use crate::tool::value::{Address, Segment};
use crate::x86::asm::{Gpr, Mem};

impl Site<'_> {
    /// Computes an effective address. Changes `to` and perhaps the scratch register.
    pub(super) fn address(&mut self, to: Gpr, address: &Address) {
        if address.bits.is_some() || address.image.is_some() {
            return self.rare_address(to, address);
        }
        self.sum(to, address);
        self.add_segment(to, address.segment);
    }

    /// Computes an address with parts that are added one by one.
    fn rare_address(&mut self, to: Gpr, address: &Address) {
        let mut rest = *address;
        (rest.bits, rest.image, rest.narrow) = (None, None, false);
        if let Some((reg, size)) = address.bits {
            self.bit_operands(reg, size);
        }
        self.sum(to, &rest);
        if address.bits.is_some() {
            let holder = self.scratch(to);
            self.asm.load(holder, Mem::at(Gpr::RSP, 0));
            self.asm.lea(to, Mem::indexed(to, holder, 1));
            self.move_stack(-8);
        }
        if let Some(image) = address.image {
            let holder = self.scratch(to);
            self.asm.lea_target(holder, Target::original(image));
            self.asm.lea(to, Mem::indexed(to, holder, 1));
        }
        if address.narrow {
            self.asm.lea32(to, Mem::at(to, 0));
        }
        self.add_segment(to, address.segment);
    }

    /// Pushes the distance from the address to the operand that a bit string's
    /// register selects: its bits above those within one operand, as a number.
    fn bit_operands(&mut self, reg: Gpr, size: u8) {
        let to = self.scratch(reg);
        self.part_of(to, reg, 0, 8);
        self.clobber_flags();
        // Sign-extend the operand-sized register, drop the bits within an operand.
        let extra = 64 - 8 * size;
        if extra != 0 {
            self.asm.shift_left(to, extra);
        }
        self.asm
            .shift_right_signed(to, extra + size.trailing_zeros() as u8 + 3);
        self.asm.shift_left(to, size.trailing_zeros() as u8);
        self.push(to);
    }

    /// Computes an address of base, index and displacement.
    fn sum(&mut self, to: Gpr, address: &Address) {
        let index_source = address.index.map(|i| i.0);
        let base_slot = match address.base {
            Some(Gpr::RSP) => self.stored_rsp(),
            Some(base) => self.moved_to(base),
            None => None,
        };
        let index_slot = index_source.and_then(|i| self.moved_to(i));
        let mut base = address.base;
        if let Some(slot) = base_slot {
            let holder = if index_slot.is_none() && index_source == Some(to) {
                self.scratch(to)
            } else {
                to
            };
            self.asm.load(holder, slot);
            base = Some(holder);
        }
        let mut index = address.index;
        if let Some((element, scale)) = address.element {
            let holder = if base == Some(to) {
                self.scratch(to)
            } else {
                to
            };
            self.element(holder, element, true);
            index = Some((holder, scale));
        }
        if let Some((source, scale)) = address.index
            && (index_slot.is_some() || address.index_is_byte)
        {
            let holder = if base == Some(to) {
                self.scratch(to)
            } else {
                to
            };
            match (index_slot, address.index_is_byte) {
                (Some(slot), true) => self.asm.load8(holder, slot),
                (Some(slot), false) => self.asm.load(holder, slot),
                (None, _) => self.asm.zero_extend8(holder, source),
            }
            index = Some((holder, scale));
        }
        let mut disp = address.disp;
        if base == Some(Gpr::RSP) {
            disp += i64::from(self.state.depth);
        }
        // Only a displacement near the limit, corrected for the stack, is too wide for one step.
        let step = disp.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        let mem = Mem {
            base,
            index,
            disp: step as i32,
        };
        match (base, index) {
            (None, None) => self.asm.mov_imm(to, disp as u64),
            _ if address.narrow => self.asm.lea32(to, mem),
            _ => self.asm.lea(to, mem),
        }
        if (base, index) != (None, None) && step != disp {
            let rest = Mem::at(to, (disp - step) as i32);
            if address.narrow {
                self.asm.lea32(to, rest)
            } else {
                self.asm.lea(to, rest)
            }
        }
    }

    fn add_segment(&mut self, to: Gpr, segment: Segment) {
        if segment != Segment::Flat {
            let holder = self.scratch(to);
            match segment {
                // By the ABI for thread-local storage the word at fs:[0] holds the base of fs. Go's runtime, for
                // whose small stacks routines have stacks of their own, keeps something else there.
                Segment::Fs if self.wrappers.stack.is_none() => {
                    self.asm.load_self_pointer(holder);
                }
                segment => self.asm.read_base(holder, segment != Segment::Fs),
            }
            self.asm.lea(to, Mem::indexed(to, holder, 1));
        }
    }
}
