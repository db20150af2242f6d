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
