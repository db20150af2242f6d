//! Comparison of a moved instruction with its copy: operands, memory and targets are the same.

use super::procedure::Checker;
use super::same::{self, Branch};
use super::step::Complaint;
use super::subject::Scope;
use crate::ids::{BlockId, InstId};
use crate::x86::{ControlFlow, Mnemonic, rip_field};

/// What bytes show of a copy.
enum Copied {
    /// It does the same as the original, and ends at an address.
    Same(u64),
    /// It is a direct branch or call like the original.
    Branch(Way),
}

/// A direct branch or call with its copy.
struct Way {
    /// Where the original leads.
    target: u64,
    /// True if the copy is taken exactly where the original is not.
    is_opposite: bool,
    /// Where the copy leads.
    to: u64,
    /// The address after the copy.
    next: u64,
}

impl Way {
    /// `None` if the two do not belong together.
    fn of(original: &Branch, copy: &Branch) -> Option<Self> {
        let is_opposite = copy.is_opposite(original);
        (is_opposite || copy.kind == original.kind).then_some(Self {
            target: original.target,
            is_opposite,
            to: copy.target,
            next: copy.next,
        })
    }
}

impl Checker<'_, '_> {
    /// Compares an instruction of a block with its copy, and yields the address after the copy.
    pub(super) fn instruction(
        &mut self,
        b: BlockId,
        inst: InstId,
        copy: u64,
    ) -> Result<u64, Complaint> {
        let (subject, cfg) = (self.subject, self.subject.cfg());
        let facts = cfg.inst(inst);
        let original = || cfg.decode(subject.image(), inst);
        if facts.rip_relative && self.may_read_text(inst) {
            self.data(&original())?;
        }
        // An instruction in place pushes the original return address by itself.
        let is_moved = copy != cfg.inst_pc(inst);
        if is_moved && matches!(facts.flow, ControlFlow::Call | ControlFlow::IndirectCall) {
            if facts.special && facts.flow == ControlFlow::Call {
                return self.pushed_return(&original(), copy);
            }
            if let Some(home) = subject.layout().sites.homes.of(inst) {
                return self.call_at_home(&original(), inst, copy, home);
            }
        }
        match self.by_bytes(inst, copy) {
            Some(Copied::Same(end)) => Ok(end),
            Some(Copied::Branch(way)) => self.branch(b, inst, way),
            None => self.decoded(b, inst, copy),
        }
    }

    /// Compares an instruction with its copy by the bytes of the usual forms. `None` if they do not show that both do
    /// the same.
    fn by_bytes(&self, inst: InstId, copy: u64) -> Option<Copied> {
        let cfg = self.subject.cfg();
        let (facts, pc) = (cfg.inst(inst), cfg.inst_pc(inst));
        let then = self.subject.image().bytes_at(pc, usize::from(facts.len))?;
        let now = self.walker.memory.rest_at(copy)?;
        if !facts.flow.is_direct() || facts.special {
            let field = facts.rip_relative.then(|| rip_field(then));
            let is_same = match field {
                Some(field) => same::is_same_but_for(field?, (then, pc), (now, copy)),
                None => now.starts_with(then),
            };
            return is_same.then(|| Copied::Same(copy + u64::from(facts.len)));
        }
        let (then, now) = (Branch::read(then, pc)?, Branch::read(now, copy)?);
        Way::of(&then, &now).map(Copied::Branch)
    }

    /// As [`Self::instruction`], by decoding both.
    fn decoded(&mut self, b: BlockId, inst: InstId, copy: u64) -> Result<u64, Complaint> {
        let subject = self.subject;
        let is_direct = subject.cfg().inst(inst).flow.is_direct();
        let moved = self.walker.decode(copy)?;
        if !is_direct && subject.scope != Scope::All {
            return Ok(moved.next_ip());
        }
        let original = subject.cfg().decode(subject.image(), inst);
        if is_direct {
            let target = original.near_branch_target();
            let (to, next) = (moved.near_branch_target(), moved.next_ip());
            let is_opposite = same::is_opposite_branch(&original, &moved);
            if is_opposite || same::is_same_branch(&original, &moved) {
                let way = Way {
                    target,
                    is_opposite,
                    to,
                    next,
                };
                return self.branch(b, inst, way);
            }
        } else if same::is_same(&original, &moved) {
            return Ok(moved.next_ip());
        } else if let Some(delta) = same::differs_in_displacement(&original, &moved) {
            self.table_copy(inst, delta)?;
            return Ok(moved.next_ip());
        }
        Err(format!("the copy at {copy:#x} is {moved}, not {original}"))
    }

    /// Checks where the copy of a direct branch or call leads. Yields the address at which control continues.
    fn branch(&mut self, b: BlockId, inst: InstId, way: Way) -> Result<u64, Complaint> {
        let is_call = self.subject.cfg().inst(inst).flow == ControlFlow::Call;
        // What the caller still needs is not live at the callee's start, as it is not live across the call.
        let goal = self.goal(way.target, (!is_call).then_some(b));
        if way.is_opposite {
            // The copy is taken exactly where the original is not: the two ways are exchanged.
            let rows = [way.target, self.subject.cfg().inst_pc(inst)];
            self.walk(way.next, goal, &rows)
                .map_err(|c| format!("the copy's way to {:#x} {c}", goal.at))?;
            return Ok(way.to);
        }
        let back = (!is_call).then_some(inst);
        self.enter(way.target, back, way.to, goal)
            .map_err(|c| format!("the copy's branch to {:#x} {c}", way.to))?;
        Ok(way.next)
    }

    /// True if an instruction with an operand relative to rip may read the text.
    fn may_read_text(&self, inst: InstId) -> bool {
        let (image, cfg) = (self.subject.image(), self.subject.cfg());
        let (pc, len) = (cfg.inst_pc(inst), cfg.inst(inst).len);
        let bytes = image.bytes_at(pc, usize::from(len));
        let address = bytes.and_then(|bytes| same::named_by(rip_field(bytes)?, bytes, pc));
        address.is_none_or(|address| image.is_code(address))
    }

    /// Checks that what an instruction reads in the text, without an index, is what it was.
    pub(super) fn data(&self, original: &crate::x86::Instruction) -> Result<(), Complaint> {
        let (image, address) = (self.subject.image(), original.ip_rel_memory_address());
        let no_data = matches!(original.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        if no_data || !original.is_ip_rel_memory_operand() || !image.is_code(address) {
            return Ok(());
        }
        let then = image.bytes_at(address, original.memory_size().size());
        let now = self.walker.memory.rest_at(address);
        match then.zip(now) {
            Some((then, now)) if !now.starts_with(then) => Err(format!(
                "{original}: the bytes that it reads have been overwritten"
            )),
            _ => Ok(()),
        }
    }

    /// Checks a `call next`, which became a push of the original return address.
    fn pushed_return(
        &self,
        original: &crate::x86::Instruction,
        copy: u64,
    ) -> Result<u64, Complaint> {
        let push = self.walker.decode(copy)?;
        let lea = self.walker.decode(push.next_ip())?;
        let exchange = self.walker.decode(lea.next_ip())?;
        let is_right = push.to_string() == "push rax"
            && lea.mnemonic() == Mnemonic::Lea
            && lea.op0_register() == crate::x86::Register::RAX
            && lea.is_ip_rel_memory_operand()
            && lea.ip_rel_memory_address() == original.next_ip()
            && same::is_exchange_of_rax_with_top(&exchange);
        if is_right {
            Ok(exchange.next_ip())
        } else {
            Err(format!(
                "the copy at {copy:#x} does not push the return address {:#x}",
                original.next_ip()
            ))
        }
    }

    /// Checks a load that reads a copy `delta` bytes after the jump table. The entries of the copy
    /// must lead to the new places of the original targets.
    fn table_copy(&mut self, load: InstId, delta: u64) -> Result<(), Complaint> {
        let subject = self.subject;
        let table = subject
            .cfg()
            .jump_tables
            .iter()
            .find(|t| t.load == Some(load))
            .ok_or(
                "the copy reads another address, and the original is not the load of a jump table",
            )?;
        let size = usize::from(table.entry_size);
        let bytes = size * table.entries as usize;
        let entry = |bytes: &[u8]| match table.relative_to {
            Some(base) => {
                let offset = i32::from_le_bytes(bytes.try_into().unwrap_or_default());
                base.wrapping_add_signed(i64::from(offset))
            }
            None => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        };
        let address = table.table.wrapping_add(delta);
        let copy = self
            .walker
            .memory
            .rest_at(address)
            .and_then(|b| b.get(..bytes));
        let old = subject.image().bytes_at(table.table, bytes);
        let (Some(copy), Some(old)) = (copy, old) else {
            return Err(format!("there is no jump table at {address:#x}"));
        };
        for (old, copy) in old.chunks_exact(size).zip(copy.chunks_exact(size)) {
            let (old, new) = (entry(old), entry(copy));
            if old == new {
                continue;
            }
            let rows = [old, subject.cfg().inst_pc(load)];
            self.walk(new, self.goal(old, None), &rows).map_err(|c| {
                format!("the jump table's entry for {old:#x} leads to {new:#x}, which {c}")
            })?;
        }
        Ok(())
    }
}
