//! Tasks that run in the same memory with the same thread pointer as the one that starts them.

use core::sync::atomic::Ordering;

use atom_abi::SystemCall;

use crate::process::copy::copy_words;
use crate::sys::call::HAS_TWINS;

/// Looks at a system call that starts a task, before it is made.
pub(crate) fn look(call: &SystemCall) {
    let first = call.arguments[0];
    let flags = match call.number as i64 {
        libc::SYS_clone => first,
        libc::SYS_clone3 => {
            // `struct clone_args` begins with the flags.
            let mut flags = [0];
            if !copy_words(first, &mut flags) {
                return;
            }
            flags[0] as usize
        }
        _ => return,
    };
    // With CLONE_VFORK the parent waits.
    const ALL: usize = (libc::CLONE_VM | libc::CLONE_SETTLS | libc::CLONE_VFORK) as usize;
    if flags & ALL == libc::CLONE_VM as usize {
        HAS_TWINS.store(true, Ordering::Relaxed);
    }
}
