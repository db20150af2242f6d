//! The end of a process by a signal: what the signal was about, and where the program was.
//!
//! An access to where nothing is mapped is no business of shadow memory, so such an access is told when the process ends by it.

use atom_tool::prelude::*;

use crate::errors::{self, Wrong};
use crate::fatal::{Fatal, SI_KERNEL, SIGBUS, SIGSEGV};
use crate::told::Frame;
use crate::{check, out, shadow, traces};

/// Tells of the signal by which the process ends, if it does. An access to where nothing is mapped is an error.
pub fn tell() {
    let Some(death) = atom_tool::death() else {
        return;
    };
    let pc = Address::of_run_time(death.pc);
    let access = pc.and_then(errors::access_at);
    let checked = access.and_then(|(number, _)| check::checked(number));
    let stack = match checked {
        Some(checked) => traces::at_inst(None, checked.rule, death.sp, death.rbp),
        // Of other code the frame is not known. In many a function that reads or writes memory it has nothing yet.
        None => traces::at_entry_anew(death.sp, death.rbp),
    };
    let is_of_memory = matches!(death.signal, SIGSEGV | SIGBUS) && death.code > 0;
    let is_about_address = is_of_memory && death.code != SI_KERNEL;
    if let (Some((access, _)), Some(checked)) = (access, checked)
        && is_about_address
        && !shadow::is_null(death.address)
    {
        errors::report(&Wrong::Access {
            access,
            is_write: checked.is_write,
            size: checked.size.into(),
            address: death.address,
            stack,
        });
    }
    let own = match (access, pc) {
        (Some((_, site)), _) => Some(Frame::of_site(&site)),
        (None, pc) if death.pc != 0 => Some(Frame::of_address(pc.unwrap_or(Address(death.pc)))),
        _ => None,
    };
    out::fatal(&Fatal::of(&death, errors::frames(own, stack)));
}
