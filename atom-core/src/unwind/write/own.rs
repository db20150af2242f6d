//! Frame descriptions for code that has no original: shared pieces of inserted
//! code, guards, the start-up code.
//!
//! All of it starts as a function does, with the return address at rsp, and is
//! described from there.

use super::expression::rsp_plus;
use crate::x86::asm::Frame;

/// First instructions of all these descriptions: the CFA is rsp + 8, and the return address is 8
/// bytes below it.
pub(super) const INITIAL: [u8; 5] = [0x0c, 7, 8, 0x80 | 16, 1];

/// DWARF numbers of registers.
const RBP: u8 = 6;
const RSP: u8 = 7;
const RIP: u8 = 16;

/// A piece of code without an original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// First address.
    pub start: u64,
    /// The address after the piece.
    pub end: u64,
    /// Rows of the piece.
    pub rows: Rows,
}

/// Rows under construction, as call frame instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    at: u64,
    bytes: Vec<u8>,
    /// True if the CFA is not found from rsp by an offset.
    is_other: bool,
}

impl Rows {
    /// Rows for code that starts at `start`.
    pub fn new(start: u64) -> Self {
        Self {
            at: start,
            bytes: Vec::new(),
            is_other: false,
        }
    }

    /// Space for `size` bytes of instructions, which are filled in later.
    pub(super) fn reserved(start: u64, size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            ..Self::new(start)
        }
    }

    /// The instructions.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts the next row at an address, which is not below the last one.
    fn advance(&mut self, to: u64) {
        super::cfi::advance(&mut self.bytes, to.saturating_sub(self.at));
        self.at = to;
    }

    /// Adds a row with a frame of inserted code.
    pub fn frame(&mut self, at: u64, frame: Frame) {
        match frame {
            Frame::Below(depth) => self.below(at, i64::from(depth)),
            Frame::Base => self.base(at, &[RBP]),
            Frame::Stored(depth) => self.stored(at, depth),
        }
    }

    /// rsp is `depth` bytes below the return address, and the registers are the caller's.
    pub fn below(&mut self, at: u64, depth: i64) {
        self.advance(at);
        if std::mem::take(&mut self.is_other) {
            self.bytes.extend([0x0c, RSP]);
        } else {
            self.bytes.push(0x0e);
        }
        leb128::push(&mut self.bytes, (depth + 8).max(0) as u64);
    }

    /// The address of the return address is the word `depth` bytes above rsp.
    fn stored(&mut self, at: u64, depth: u32) {
        self.advance(at);
        let mut expression = Vec::new();
        let written = rsp_plus(8, Frame::Stored(depth), &mut expression);
        debug_assert!(written.is_some(), "8 is a small number");
        self.bytes.push(0x0f);
        leb128::push(&mut self.bytes, expression.len() as u64);
        self.bytes.extend(expression);
        self.is_other = true;
    }

    /// `registers` were pushed in this order, and rbp points at the last.
    pub fn base(&mut self, at: u64, registers: &[u8]) {
        self.advance(at);
        self.bytes.extend([0x0c, RBP]);
        leb128::push(&mut self.bytes, 8 + 8 * registers.len() as u64);
        for (i, register) in registers.iter().enumerate() {
            self.bytes.extend([0x80 | register, i as u8 + 2]);
        }
        self.is_other = true;
    }

    /// A register is the caller's again.
    pub fn same(&mut self, register: u8) {
        self.bytes.extend([0x08, register]);
    }

    /// There is no caller.
    pub fn outermost(&mut self, at: u64) {
        self.advance(at);
        self.bytes.extend([0x07, RIP]);
    }

    /// The return address is at an address that is `distance` from `at`.
    pub fn return_at(&mut self, at: u64, distance: i64) {
        self.advance(at);
        let mut expression = vec![0x70 + RIP];
        leb128::push_signed(&mut expression, distance);
        self.bytes.extend([0x10, RIP]);
        leb128::push(&mut self.bytes, expression.len() as u64);
        self.bytes.extend(expression);
    }

    /// The return address is below the CFA, as it usually does.
    pub fn return_below_cfa(&mut self) {
        self.bytes.extend([0x80 | RIP, 1]);
    }
}
