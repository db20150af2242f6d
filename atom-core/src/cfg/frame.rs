//! How a procedure uses the stack: ATOM's GetProcInfo.
//!
//! On Alpha the symbol table described each frame. Here two sources have parts
//! of the facts. Call frame information tells for each instruction where the frame ends and where
//! registers are saved. Where rbp addresses the frame, it does not tell how far rsp goes down. The
//! instructions do: following the stack pointer through the code gives the size, and without
//! call frame information the entry block's stores give the saved registers.
//!
//! All offsets count from the *virtual frame pointer*, the value of rsp before
//! the call (DWARF's CFA), as ATOM's do: the return address is at -8.

use std::collections::HashMap;

use atom_abi::host::Reg;
use atom_abi::query::FrameRecord;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow,
};

use super::{Cfg, Proc, ProcKind, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::unwind::{CFA_AT_ENTRY, CfaRule as OurCfa, UnwindTable};
use crate::x86::{Code, Instruction, Mnemonic, OpKind, Register, decode_at};

/// Hardware numbers of the general registers, by DWARF's numbers.
const GENERAL: [u32; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// DWARF's number of the return address.
const RETURN_ADDRESS: u16 = 16;
/// DWARF's number of rsp.
const DWARF_RSP: u16 = 7;
/// Registers that procedures keep, as a mask of hardware numbers: rbx, rbp, r12 to r15.
const KEPT: u32 = 0xf028;

/// The frame of a procedure; `None` if neither source has facts of it.
pub fn frame(
    image: &Image,
    cfg: &Cfg,
    unwind: &UnwindTable<'_>,
    id: ProcId,
) -> Option<FrameRecord> {
    let proc = cfg.proc(id);
    let mut frame = FrameRecord {
        size: 8,
        return_offset: -8,
        frame_reg: Reg::Rsp as u32,
        landing_size: landing_size(image, proc),
        ..FrameRecord::default()
    };
    let fde = unwind.find(proc.start).map(|i| &unwind.fdes[i]);
    if let Some(fde) = fde {
        frame.from_tables = read_rows(unwind, fde.offset, &mut frame).is_some();
    }
    if !frame.from_tables && !proc.is_movable() {
        return None;
    }
    let at_start = match (proc.kind, fde) {
        // A part of a procedure starts with the frame that the procedure has there.
        (ProcKind::Fragment(_), Some(fde)) => match fde.cfa_at_start {
            OurCfa::Register {
                register: DWARF_RSP,
                offset,
            } => Some(offset),
            _ => None,
        },
        (ProcKind::Fragment(_), None) => None,
        _ => match CFA_AT_ENTRY {
            OurCfa::Register { offset, .. } => Some(offset),
            _ => None,
        },
    };
    if let Some(depth) = at_start {
        Walk::new(image, cfg, proc).run(depth, &mut frame);
    }
    let saved = |mask: u32, offsets: &[i32; 16]| {
        (0..16)
            .filter(|i| mask >> i & 1 != 0)
            .map(|i| offsets[i])
            .min()
            .unwrap_or(0)
    };
    frame.local_offset = frame
        .return_offset
        .min(saved(frame.int_mask, &frame.int_offsets))
        .min(saved(frame.float_mask, &frame.float_offsets));
    Some(frame)
}

/// Size in bytes of the landing instruction at the procedure's start: `endbr64`, which takes the place of
/// Alpha's gp prologue.
fn landing_size(image: &Image, proc: &Proc) -> u32 {
    let first = image
        .rest_at(proc.start)
        .and_then(|bytes| decode_at(&bytes[..bytes.len().min(15)], proc.start));
    match first {
        Some(i) if i.code() == Code::Endbr64 => i.len() as u32,
        _ => 0,
    }
}

/// Reads the rows of an FDE into `frame`; `None` if they cannot be read.
fn read_rows(unwind: &UnwindTable<'_>, offset: u32, frame: &mut FrameRecord) -> Option<()> {
    // The body is the longest stretch of code under one rule.
    let mut longest = 0;
    each_row(unwind, offset, |row, _| {
        let length = row.end_address().saturating_sub(row.start_address());
        let (register, fixed) = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                if register.0 == DWARF_RSP {
                    frame.size = frame.size.max(u64::try_from(*offset).unwrap_or(0));
                }
                (GENERAL.get(usize::from(register.0)).copied(), true)
            }
            // The frame was aligned, so its end is stored in the frame.
            CfaRule::Expression(_) => (Some(Reg::Rbp as u32), false),
        };
        if length > longest {
            longest = length;
            frame.frame_reg = register.unwrap_or(Reg::Rsp as u32);
            frame.is_dynamic = !fixed;
        }
        for (register, rule) in row.registers() {
            let RegisterRule::Offset(at) = rule else {
                continue;
            };
            let Ok(at) = i32::try_from(*at) else { continue };
            match register.0 {
                RETURN_ADDRESS => frame.return_offset = at,
                n @ 0..=15 => {
                    let n = GENERAL[usize::from(n)];
                    frame.int_mask |= 1 << n;
                    frame.int_offsets[n as usize] = at;
                }
                n @ 17..=32 => {
                    frame.float_mask |= 1 << (n - 17);
                    frame.float_offsets[usize::from(n - 17)] = at;
                }
                _ => {}
            }
        }
    })
}

/// Gives each row of an FDE to `each`, and whether the FDE is a signal frame's; `None` if they cannot all be read.
pub(super) fn each_row(
    unwind: &UnwindTable<'_>,
    offset: u32,
    mut each: impl FnMut(&UnwindTableRow<usize>, bool),
) -> Option<()> {
    let mut section = EhFrame::new(unwind.eh_frame, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(unwind.vaddr);
    let offset = EhFrameOffset::from(offset as usize);
    let fde = section
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()?;
    let is_signal = fde.cie().is_signal_trampoline();
    let mut context = UnwindContext::new();
    let mut rows = fde.rows(&section, &bases, &mut context).ok()?;
    while let Some(row) = rows.next_row().ok()? {
        each(row, is_signal);
    }
    Some(())
}

/// Known distances of registers below the virtual frame pointer, in bytes.
#[derive(Clone, Copy)]
struct StackState {
    rsp: i64,
    rbp: Option<i64>,
    /// The end of a loop that touches page after page: the register that holds it, and its distance.
    probe: Option<(Register, i64)>,
}

/// Follows the stack pointer through the blocks of a procedure.
struct Walk<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    proc: &'a Proc,
    seen: HashMap<BlockId, i64>,
}

impl<'a> Walk<'a> {
    fn new(image: &'a Image, cfg: &'a Cfg, proc: &'a Proc) -> Self {
        Self {
            image,
            cfg,
            proc,
            seen: HashMap::new(),
        }
    }

    fn run(mut self, depth: i64, frame: &mut FrameRecord) {
        let Some(first) = self
            .proc
            .blocks()
            .find(|b| self.cfg.block_pc(*b) == self.proc.start)
        else {
            return;
        };
        let start = StackState {
            rsp: depth,
            rbp: None,
            probe: None,
        };
        let mut saves = !frame.from_tables;
        let mut written = 0;
        let mut work = vec![(first, start)];
        while let Some((block, mut state)) = work.pop() {
            if self.seen.insert(block, state.rsp).is_some() {
                continue;
            }
            let mut ends_probe = None;
            for inst in self.cfg.block(block).insts() {
                let instruction = self.cfg.decode(self.image, inst);
                if saves {
                    note_save(&instruction, &state, written, frame);
                    written |= written_by(&instruction);
                }
                ends_probe = self.step(&instruction, &mut state, frame, ends_probe);
                let size = u64::try_from(state.rsp).unwrap_or(0);
                frame.size = frame.size.max(size.min(i32::MAX as u64));
            }
            saves = false;
            for succ in self.cfg.succs(block) {
                let (to, falls) = match *succ {
                    Succ::Fall(to) => (to, true),
                    Succ::Branch(to) => (to, false),
                    _ => continue,
                };
                let mut next = state;
                if let (true, Some(end)) = (falls, ends_probe) {
                    next.rsp = end;
                }
                let again = self.seen.get(&to).is_some_and(|rsp| *rsp != next.rsp);
                if again && ends_probe.is_none() {
                    frame.is_dynamic = true;
                }
                work.push((to, next));
            }
        }
    }

    /// Applies an instruction. Returns the distance of rsp after a probing loop that ends with the instruction.
    fn step(
        &self,
        i: &Instruction,
        state: &mut StackState,
        frame: &mut FrameRecord,
        ends_probe: Option<i64>,
    ) -> Option<i64> {
        let on = |register| {
            i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == register
        };
        let constant = || i.try_immediate(1).ok().map(|n| n as i64);
        // Address operand of `lea` in terms of the virtual frame pointer.
        let address = || {
            let down = match i.memory_base() {
                Register::RSP => Some(state.rsp),
                Register::RBP => state.rbp,
                _ => None,
            };
            let plain = i.memory_index() == Register::None;
            down.filter(|_| plain)
                .map(|down| down.wrapping_sub(i.memory_displacement64() as i64))
        };
        match i.mnemonic() {
            Mnemonic::Call => {}
            Mnemonic::Leave => match state.rbp {
                Some(rbp) => (state.rsp, state.rbp) = (rbp - 8, None),
                None => frame.is_dynamic = true,
            },
            Mnemonic::Sub | Mnemonic::Add if on(Register::RSP) => match constant() {
                Some(n) if i.mnemonic() == Mnemonic::Sub => state.rsp = state.rsp.wrapping_add(n),
                Some(n) => state.rsp = state.rsp.wrapping_sub(n),
                None => frame.is_dynamic = true,
            },
            Mnemonic::And if on(Register::RSP) => frame.is_dynamic = true,
            Mnemonic::Lea if on(Register::RSP) => match address() {
                Some(down) => state.rsp = down,
                None => frame.is_dynamic = true,
            },
            Mnemonic::Lea if on(Register::RBP) => state.rbp = address(),
            Mnemonic::Lea if i.memory_base() == Register::RSP => {
                state.probe = address().map(|down| (i.op0_register(), down));
            }
            Mnemonic::Cmp if on(Register::RSP) && i.op1_kind() == OpKind::Register => {
                return state.probe.filter(|p| p.0 == i.op1_register()).map(|p| p.1);
            }
            Mnemonic::Mov if on(Register::RBP) => {
                state.rbp = (i.op1_register() == Register::RSP).then_some(state.rsp);
                if state.rbp.is_some() && !frame.from_tables {
                    frame.frame_reg = Reg::Rbp as u32;
                }
            }
            Mnemonic::Mov if on(Register::RSP) => match (i.op1_register(), state.rbp) {
                (Register::RBP, Some(rbp)) => state.rsp = rbp,
                _ => frame.is_dynamic = true,
            },
            Mnemonic::Jne | Mnemonic::Je => return ends_probe,
            Mnemonic::Ret => {}
            _ => {
                state.rsp = state.rsp.wrapping_sub(i.stack_pointer_increment().into());
                if on(Register::RBP)
                    && !matches!(
                        i.mnemonic(),
                        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test
                    )
                {
                    state.rbp = None;
                }
            }
        }
        None
    }
}

/// Notes a store, in the entry block, of a register that procedures keep. `written` are the registers that no
/// longer hold the caller's values, as a mask.
fn note_save(i: &Instruction, state: &StackState, written: u32, frame: &mut FrameRecord) {
    let (register, at) = match i.mnemonic() {
        Mnemonic::Push if i.op0_kind() == OpKind::Register => (i.op0_register(), state.rsp + 8),
        Mnemonic::Mov if i.op0_kind() == OpKind::Memory && i.op1_kind() == OpKind::Register => {
            let down = match i.memory_base() {
                Register::RSP => Some(state.rsp),
                Register::RBP => state.rbp,
                _ => None,
            };
            let displacement = i.memory_displacement64() as i64;
            match down {
                Some(down) if i.memory_index() == Register::None => {
                    (i.op1_register(), down.wrapping_sub(displacement))
                }
                _ => return,
            }
        }
        _ => return,
    };
    if !register.is_gpr64() || KEPT >> register.number() & 1 == 0 {
        return;
    }
    let bit = 1 << register.number();
    if (frame.int_mask | written) & bit == 0
        && let Ok(at) = i32::try_from(-at)
        && at < frame.return_offset
    {
        frame.int_mask |= bit;
        frame.int_offsets[register.number()] = at;
    }
}

/// The general register that an instruction of a prologue writes, as a mask.
fn written_by(i: &Instruction) -> u32 {
    let reads = matches!(
        i.mnemonic(),
        Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test
    );
    if reads || i.op_count() == 0 || i.op0_kind() != OpKind::Register || !i.op0_register().is_gpr()
    {
        return 0;
    }
    1 << i.op0_register().full_register().number()
}
