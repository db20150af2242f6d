//! How the caller's frame is found at calls, for tools that unwind the stack.
//!
//! The rules are those of the exception tables at the call instruction. rsp is the same before a call and after it
//! it, so a rule in terms of rsp holds for the return address as well.

use atom_abi::query::CallFrameRecord;
use gimli::{CfaRule, Register, RegisterRule};

use super::{Cfg, frame};
use crate::ids::ProcId;
use crate::unwind::UnwindTable;
use crate::x86::ControlFlow;

/// DWARF's numbers of rbp, rsp and the return address.
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);
/// Offset of the return address from the virtual frame pointer.
const RETURN_OFFSET: i64 = -8;

/// A rule, and the addresses at which it holds.
struct Row {
    start: u64,
    end: u64,
    rule: Option<CallFrameRecord>,
}

/// The rules at the calls of a procedure that have one by a register and an offset.
pub fn call_frames(cfg: &Cfg, unwind: &UnwindTable<'_>, id: ProcId) -> Vec<CallFrameRecord> {
    let mut found = Vec::new();
    let mut rows: (Option<usize>, Vec<Row>) = (None, Vec::new());
    for index in cfg.proc_insts(id) {
        let inst = &cfg.insts[index];
        let is_call = matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall);
        if !is_call || inst.special {
            continue;
        }
        let pc = cfg.base + u64::from(inst.offset);
        let Some(fde) = unwind.find(pc) else { continue };
        if rows.0 != Some(fde) {
            let offset = unwind.fdes[fde].offset;
            rows = (Some(fde), read_rows(unwind, offset).unwrap_or_default());
        }
        let at = rows.1.partition_point(|row| row.end <= pc);
        let row = rows.1.get(at).filter(|row| row.start <= pc);
        found.extend(row.and_then(|row| row.rule).map(|rule| CallFrameRecord {
            inst: index as u32,
            ..rule
        }));
    }
    found
}

/// The rows of an FDE; `None` if they cannot be read.
fn read_rows(unwind: &UnwindTable<'_>, offset: u32) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    frame::each_row(unwind, offset, |row, is_signal| {
        let rule = || {
            let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
                return None;
            };
            let is_usual =
                row.register(RETURN_ADDRESS) == Some(RegisterRule::Offset(RETURN_OFFSET));
            let rbp_offset = match row.register(RBP) {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(at)) => i32::try_from(at).ok().filter(|at| *at < 0)?,
                _ => return None,
            };
            let is_known = is_usual && matches!(*register, RSP | RBP) && !is_signal;
            is_known.then_some(CallFrameRecord {
                inst: 0,
                by_rbp: (*register == RBP).into(),
                offset: i32::try_from(*offset).ok()?,
                rbp_offset,
            })
        };
        rows.push(Row {
            start: row.start_address(),
            end: row.end_address(),
            rule: rule(),
        });
    })?;
    Some(rows)
}
