//! Addresses as people read them.

use std::fmt;

use atom_abi::OBJECT_SHIFT;

/// An address of the process, as `pc` methods and queries give it, to be printed by an analysis routine:
/// `0x4d4890` for the program itself, `libc.so.6+0x2c7f0` for another object.
///
/// ```
/// # use atom_tool::Address;
/// assert_eq!(Address(0x4d4890).to_string(), "0x4d4890");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address(pub u64);

impl Address {
    /// The file name of the object, if it is another one than the program.
    pub fn object(self) -> Option<&'static str> {
        match self.0 >> OBJECT_SHIFT {
            0 => None,
            object => analysis_rt::object_name(object as usize),
        }
    }

    /// The address in the object's file.
    pub fn in_file(self) -> u64 {
        match self.object() {
            Some(_) => self.0 & ((1 << OBJECT_SHIFT) - 1),
            None => self.0,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = self.object() {
            write!(f, "{object}+")?;
        }
        write!(f, "{:#x}", self.in_file())
    }
}
