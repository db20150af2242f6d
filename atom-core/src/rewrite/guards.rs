//! Guards: what stands between a pad and the new text where a thread may enter
//! that does not have its own data yet.
//!
//! A guard compares the thread pointer, which the C libraries keep at fs:0, with
//! the owner of the block that the gs base names (see `atom_abi::ThreadBlock`).
//! They nearly always agree. A *light* guard stands at the entry of a procedure
//! that does not want r11 and the flags, and below whose return address nothing
//! lies; a *clean* one changes nothing and minds the red zone.

use crate::cfg::Cfg;
use crate::error::{Error, Result};
use crate::ids::BlockId;
use crate::plan::{Guard, Guards, Plan};

use super::{Anchors, DOING, Layout, rel32};

use atom_abi::{THREAD_MINUS_OWNER, THREAD_OWNER};

const ALIGN: u64 = 8;

/// Where a guard is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub block: BlockId,
    pub guard: Guard,
    pub address: u64,
}

/// Places the guards of the pads that lead to `blocks` from `cursor` on, which it moves.
pub(super) fn place(
    plan: &Plan,
    blocks: impl Iterator<Item = BlockId>,
    cursor: &mut u64,
) -> Vec<Place> {
    let Some(guards) = &plan.guards else {
        return Vec::new();
    };
    let mut places: Vec<Place> = blocks
        .filter_map(|block| {
            Some(Place {
                block,
                guard: guards.of(block)?,
                address: 0,
            })
        })
        .collect();
    places.sort_unstable_by_key(|place| place.block);
    places.dedup_by_key(|place| place.block);
    for place in &mut places {
        place.address = cursor.next_multiple_of(ALIGN);
        *cursor = place.address + size(place.guard);
    }
    places
}

/// Where a guard moves the stack pointer: offsets, and how far down it is from there on.
pub(super) const fn depths(guard: Guard) -> &'static [(u8, u32)] {
    match guard {
        Guard::Light => &[],
        Guard::Clean => &[(5, 128), (6, 136), (7, 144), (36, 136), (37, 128), (45, 0)],
    }
}

pub(super) const fn size(guard: Guard) -> u64 {
    match guard {
        Guard::Light => 33,
        Guard::Clean => 50,
    }
}

/// A guard's bytes, of which `next` is the address in the new text that it leads to.
pub(super) fn encode(
    place: &Place,
    guards: &Guards,
    layout: &Layout,
    anchors: &Anchors,
    next: u64,
) -> Result<Vec<u8>> {
    let block = anchors.data + u64::from(guards.block);
    let enter = layout.start + u64::from(layout.shared[guards.enter as usize]);
    let mut code = Code {
        at: place.address,
        bytes: Vec::with_capacity(64),
    };
    match place.guard {
        Guard::Light => {
            // mov r11, fs:[0]; cmp r11, gs:[owner]; je next; call enter; jmp next
            code.put(&[0x64, 0x4c, 0x8b, 0x1c, 0x25, 0, 0, 0, 0]);
            code.to(&[0x65, 0x4c, 0x3b, 0x1d], block + THREAD_OWNER as u64)?;
            code.to(&[0x0f, 0x84], next)?;
            code.to(&[0xe8], enter)?;
            code.to(&[0xe9], next)?;
        }
        Guard::Clean => {
            // lea rsp, [rsp - 128]; push rcx; push rax
            code.put(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x51, 0x50]);
            // mov rcx, gs:[minus_owner]; mov rax, fs:[0]; lea rcx, [rcx + rax]
            code.to(&[0x65, 0x48, 0x8b, 0x0d], block + THREAD_MINUS_OWNER as u64)?;
            code.put(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]);
            code.put(&[0x48, 0x8d, 0x0c, 0x01]);
            // jrcxz over the call
            code.put(&[0xe3, 5]);
            code.to(&[0xe8], enter)?;
            // pop rax; pop rcx; lea rsp, [rsp + 128]; jmp next
            code.put(&[0x58, 0x59, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
            code.to(&[0xe9], next)?;
        }
    }
    if code.bytes.len() as u64 != size(place.guard) {
        let reason =
            "a guard has another size than was reserved (a defect of atom, please report it)";
        return Err(Error::new(DOING, reason).address(place.address));
    }
    Ok(code.bytes)
}

struct Code {
    at: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An instruction that ends with a relative field.
    fn to(&mut self, opcode: &[u8], target: u64) -> Result<()> {
        self.put(opcode);
        let next = self.at + self.bytes.len() as u64 + 4;
        self.bytes.extend(rel32(target, next)?);
        Ok(())
    }
}

impl Layout {
    /// New address of a block for control that comes from outside of what is known.
    pub(super) fn landing(&self, cfg: &Cfg, block: BlockId) -> u64 {
        self.guard(block)
            .unwrap_or_else(|| self.behind_guard(cfg, block))
    }

    /// The guard of a block's pad.
    pub fn guard(&self, block: BlockId) -> Option<u64> {
        let at = self.guards.binary_search_by_key(&block, |g| g.block).ok()?;
        Some(self.guards[at].address)
    }

    /// Where a pad leads to in the end.
    pub(super) fn behind_guard(&self, cfg: &Cfg, block: BlockId) -> u64 {
        let proc = cfg.block(block).proc;
        if cfg.block_pc(block) == cfg.proc(proc).start {
            self.entry(proc).expect("blocks belong to moved procedures")
        } else {
            self.label(proc, cfg.block(block).first)
        }
    }
}
