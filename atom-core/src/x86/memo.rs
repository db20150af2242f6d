//! A cache of facts about instructions, by their bytes.
//!
//! Programs repeat themselves: most instructions have been seen before, a little earlier. A look-up
//! by the bytes costs a tenth of decoding the instruction and asking the decoder's tables.

use super::opcode::{CALL, ESCAPE, JCC, JCC_LAST, JCC_SHORT, JCC_SHORT_LAST, JMP, JMP_SHORT};
use super::{Inst, rip_field};

/// Number of entries, a power of two. They fit the second-level cache of a core.
const SIZE: usize = 8192;

/// Length in bytes of the longest instruction that is remembered.
const MAX_LEN: usize = 8;

/// Remembers a fact that an instruction's bytes decide alone. The displacements of branches and of
/// operands relative to `rip` are left out, so the fact must not depend on them.
pub struct Memo<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Clone, Copy, Default)]
struct Entry<T> {
    key: u64,
    /// Length of the instruction in bytes; 0 in an empty entry.
    len: u8,
    value: T,
}

impl<T: Copy + Default> Memo<T> {
    /// Makes an empty cache. It allocates memory at its first use.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// The fact remembered for the instruction at the start of `bytes`; if there is none, the result
    /// of `find`, which is remembered.
    #[inline]
    pub fn of(&mut self, inst: &Inst, bytes: &[u8], find: impl FnOnce() -> T) -> T {
        let Some(key) = key_of(inst, bytes) else {
            return find();
        };
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); SIZE];
        }
        let place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SIZE;
        let entry = &mut self.entries[place];
        if entry.key != key || entry.len != inst.len {
            *entry = Entry {
                key,
                len: inst.len,
                value: find(),
            };
        }
        entry.value
    }
}

impl<T: Copy + Default> Default for Memo<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The bytes as a number, without the displacement of a branch or of an operand relative to `rip`.
#[inline]
fn key_of(inst: &Inst, bytes: &[u8]) -> Option<u64> {
    let len = usize::from(inst.len);
    if len > MAX_LEN || len == 0 {
        return None;
    }
    let word = match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            let own = bytes.get(..len)?;
            chunk[..len].copy_from_slice(own);
            u64::from_le_bytes(chunk)
        }
    };
    let own = !0 >> (64 - 8 * len);
    let mask = if inst.flow.is_direct() {
        match (word as u8, (word >> 8) as u8) {
            (JCC_SHORT..=JCC_SHORT_LAST | JMP_SHORT, _) if len == 2 => 0xff,
            (CALL | JMP, _) if len == 5 => 0xff,
            (ESCAPE, JCC..=JCC_LAST) if len == 6 => 0xffff,
            _ => own,
        }
    } else if inst.rip_relative {
        match rip_field(bytes.get(..len)?) {
            Some(field) => own & !(0xffff_ffff << (8 * field)),
            None => own,
        }
    } else {
        own
    };
    Some(word & mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::{ControlFlow, decode_at, flow_of, is_rip_relative};

    fn inst(bytes: &[u8]) -> Inst {
        let decoded = decode_at(bytes, 0x1000).expect("it is valid");
        Inst {
            offset: 0,
            len: decoded.len() as u8,
            flow: flow_of(&decoded),
            rip_relative: is_rip_relative(&decoded),
            special: false,
        }
    }

    /// Number of times that `find` is called, for instructions one after the other.
    fn found(code: &[&[u8]]) -> usize {
        let mut memo = Memo::new();
        let mut count = 0;
        for bytes in code {
            let inst = inst(bytes);
            let value = memo.of(&inst, bytes, || {
                count += 1;
                inst.flow as u32 + 1
            });
            assert_eq!(value, inst.flow as u32 + 1);
        }
        count
    }

    #[test]
    fn same_bytes_are_found_once() {
        let add: &[u8] = &[0x48, 0x01, 0xd8];
        assert_eq!(found(&[add, add, &[0x48, 0x01, 0xd8, 0x90, 1, 2, 3, 4]]), 1);
        assert_eq!(found(&[add, &[0x48, 0x01, 0xd9]]), 2);
        // Longer than what is remembered.
        let long: &[u8] = &[0x48, 0xc7, 0x44, 0x24, 8, 1, 0, 0, 0];
        assert_eq!(found(&[long, long]), 2);
    }

    #[test]
    fn where_it_leads_is_the_same() {
        assert_eq!(found(&[&[0x74, 1], &[0x74, 2], &[0x75, 2]]), 2);
        assert_eq!(found(&[&[0xe8, 1, 2, 3, 4], &[0xe8, 0, 0, 0, 0]]), 1);
        let load = |d| [0x48, 0x8b, 0x05, d, 0, 0, 0];
        assert_eq!(found(&[&load(1), &load(2)]), 1);
        // The constant after the displacement counts.
        let shift = |d, by| [0xc1, 0x2d, d, 0, 0, 0, by];
        assert_eq!(found(&[&shift(1, 0), &shift(2, 0), &shift(2, 1)]), 2);
        assert_eq!(inst(&load(1)).flow, ControlFlow::FallThrough);
    }
}
