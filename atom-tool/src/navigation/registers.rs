//! Registers that an instruction uses: ATOM's bit vectors, and exact parts.

use std::ops::BitOr;

use atom_abi::host::Reg;
use atom_abi::query::{RegAccessRecord, RegUsageRecord, access};

use crate::navigation::handle::Inst;
use crate::navigation::program::each;

/// A set of registers. A part of a register stands for the whole.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RegSet {
    bits: [u64; 2],
}

impl RegSet {
    /// The bits, one for each number of [`Reg`].
    pub fn bits(self) -> [u64; 2] {
        self.bits
    }

    /// True if the register is in it.
    pub fn contains(self, reg: Reg) -> bool {
        let n = reg.number() as usize;
        self.bits[n / 64] >> (n % 64) & 1 != 0
    }

    /// True if it has no register.
    pub fn is_empty(self) -> bool {
        self.bits == [0; 2]
    }

    /// Its registers in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        Reg::ALL.into_iter().filter(move |reg| self.contains(*reg))
    }
}

impl BitOr for RegSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        let bits = [0, 1].map(|i| self.bits[i] | other.bits[i]);
        Self { bits }
    }
}

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(registers: I) -> Self {
        let mut set = Self::default();
        for reg in registers {
            let n = reg.number() as usize;
            set.bits[n / 64] |= 1 << (n % 64);
        }
        set
    }
}

impl std::fmt::Debug for RegSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Which registers and flags an instruction uses and changes.
///
/// Implicit operands count, too. An instruction that changes the program counter has
/// [`Reg::Pc`] among the updated registers. Effects of a callee do not count for the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegUsage {
    /// Registers that are read.
    pub used: RegSet,
    /// Registers that are written, in part or in whole, always or perhaps.
    pub updated: RegSet,
    /// Updated registers of whose old value nothing is left in any case.
    pub replaced: RegSet,
    /// Flags that are read, as bits of rflags ([`flags`]).
    pub flags_read: u32,
    /// Flags that are written, with defined or undefined values.
    pub flags_written: u32,
    /// Written flags whose values are undefined.
    pub flags_undefined: u32,
}

/// Bits of the flags in rflags.
pub mod flags {
    /// Carry.
    pub const CARRY: u32 = 1 << 0;
    /// Parity.
    pub const PARITY: u32 = 1 << 2;
    /// Adjust.
    pub const ADJUST: u32 = 1 << 4;
    /// Zero.
    pub const ZERO: u32 = 1 << 6;
    /// Sign.
    pub const SIGN: u32 = 1 << 7;
    /// Direction.
    pub const DIRECTION: u32 = 1 << 10;
    /// Overflow.
    pub const OVERFLOW: u32 = 1 << 11;
}

/// How something is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Access {
    bits: u32,
}

impl Access {
    pub(crate) fn new(bits: u32) -> Self {
        Self { bits }
    }

    /// True if it is read.
    pub fn reads(self) -> bool {
        self.bits & access::READ != 0
    }

    /// True if it is written.
    pub fn writes(self) -> bool {
        self.bits & access::WRITE != 0
    }

    /// True if a mask, a condition or a count of 0 may prevent the access, in whole or in part.
    pub fn is_conditional(self) -> bool {
        self.bits & access::CONDITIONAL != 0
    }
}

/// A register or a part of it that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegAccess {
    /// The whole register.
    pub reg: Reg,
    /// First byte of the part: 1 for `ah`, `bh`, `ch` and `dh`, else 0.
    pub offset: u32,
    /// Size of the part in bytes. A write that clears the rest counts as whole:
    /// 8 for `mov eax, 1`, 64 for `vpxor xmm0, xmm0, xmm0`.
    pub size: u32,
    /// How the part is accessed.
    pub access: Access,
}

impl Inst<'_> {
    /// The registers that it uses and changes, as bit vectors.
    pub fn reg_usage(&self) -> RegUsage {
        let host = self.session.host;
        let mut record = RegUsageRecord::default();
        (host.inst_reg_usage)(host.context, self.id, &mut record);
        let set = |bits| RegSet { bits };
        RegUsage {
            used: set(record.used),
            updated: set(record.updated),
            replaced: set(record.replaced),
            flags_read: record.flags_read,
            flags_written: record.flags_written,
            flags_undefined: record.flags_undefined,
        }
    }

    /// The parts of registers that it accesses. One part may be listed several times.
    pub fn reg_accesses(&self) -> Vec<RegAccess> {
        let host = self.session.host;
        let mut list = Vec::new();
        each(
            |arg, sink| (host.inst_reg_accesses)(host.context, self.id, arg, sink),
            |part: &RegAccessRecord| {
                let Some(reg) = Reg::from_number(part.reg) else {
                    return;
                };
                list.push(RegAccess {
                    reg,
                    offset: part.offset,
                    size: part.size,
                    access: Access::new(part.access),
                });
            },
        );
        list
    }
}
