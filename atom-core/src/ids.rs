//! Ids: u32 newtypes over the flat `Vec`s of the [`cfg`](crate::cfg).

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index into the `Vec` that this id counts.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of index `i`.
            pub const fn from_index(i: usize) -> Self {
                Self(i as u32)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// A procedure.
    ProcId, "proc");
id!(
    /// A basic block, numbered through the whole program.
    BlockId, "block");
id!(
    /// An instruction, numbered through the whole program.
    InstId, "insn");

/// An address in six bytes, for where there are many: the hardware knows no more
/// than 48 bits, of which the highest stands for all above it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address48([u16; 3]);

impl Address48 {
    /// Keeps an address.
    pub const fn new(address: u64) -> Self {
        Self([
            address as u16,
            (address >> 16) as u16,
            (address >> 32) as u16,
        ])
    }

    /// The address, sign-extended to 64 bits.
    pub const fn get(self) -> u64 {
        let [low, middle, high] = self.0;
        (high as i16 as i64 as u64) << 32 | (middle as u64) << 16 | low as u64
    }
}

impl fmt::Debug for Address48 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}
