//! The code of guards. What they are for stands in [`crate::layout`]'s module of the same name.

use atom_abi::{THREAD_MINUS_OWNER, THREAD_OWNER};

use crate::error::{Error, Result};
use crate::layout::guards::{GuardPlace, size};
use crate::layout::{Anchors, Layout};
use crate::plan::{Guard, Guards};

use super::{DOING, rel32};

/// A guard's bytes, of which `next` is the address in the new text that it leads to.
pub(super) fn encode(
    place: &GuardPlace,
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
