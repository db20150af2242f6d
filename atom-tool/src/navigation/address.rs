//! Addresses as people read them.

use std::fmt;
use std::sync::OnceLock;

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

    /// The number of the object, as [`Object::index`](crate::Object::index) gives it; 0 for the program.
    pub fn object_number(self) -> usize {
        self.object()
            .map_or(0, |_| (self.0 >> OBJECT_SHIFT) as usize)
    }

    /// The address at run time: the object's load bias and the address in its file. `None` if the object is
    /// not loaded, or not yet. An object that is loaded in several namespaces (`dlmopen`), or again at
    /// another address, has the load bias of the last time.
    pub fn at_run_time(self) -> Option<u64> {
        let bias = analysis_rt::load_bias(self.object_number())?;
        Some(bias.wrapping_add(self.in_file()))
    }

    /// The address whose run-time address this is, in a whole process; `None` if it is in no object.
    pub fn of_run_time(address: u64) -> Option<Self> {
        let (object, bias) = analysis_rt::object_at(address)?;
        let in_file = address.wrapping_sub(bias);
        Some(Self(in_file.wrapping_add((object as u64) << OBJECT_SHIFT)))
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

/// What happens to an object of a whole process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectEvent {
    /// The dynamic loader has mapped it, and not relocated it yet. [`Address::at_run_time`] is known.
    Mapped,
    /// The dynamic loader is about to unmap it.
    Unmapped,
}

/// Has a function of the analysis half called each time that the dynamic loader maps or unmaps an object of
/// a whole process, with the object's number. The program and its interpreter are there from the start.
/// There is one such function; it runs like an analysis routine.
///
/// ```no_run
/// use atom_tool::prelude::*;
/// use atom_tool::{ObjectEvent, on_object_event};
///
/// fn tell(object: usize, event: ObjectEvent) {
///     eprintln!("object {object}: {event:?}");
/// }
///
/// #[analysis]
/// fn begin(table: u64) {
///     on_object_event(tell);
///     println!("the table is at {:#x}", Address(table).at_run_time().unwrap_or(0));
/// }
/// ```
pub fn on_object_event(function: fn(usize, ObjectEvent)) {
    // A second function is the tool's mistake, and changes nothing.
    let _ = ON_EVENT.set(function);
    analysis_rt::set_mapping_hook(|object, is_mapped| {
        if let Some(function) = ON_EVENT.get() {
            function(
                object,
                if is_mapped {
                    ObjectEvent::Mapped
                } else {
                    ObjectEvent::Unmapped
                },
            );
        }
    });
}

/// The tool's function.
static ON_EVENT: OnceLock<fn(usize, ObjectEvent)> = OnceLock::new();
