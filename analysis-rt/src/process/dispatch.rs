//! System calls that the application emulates (`PR_SET_SYSCALL_USER_DISPATCH`), as programs do that run other systems'
//! programs.
//!
//! The kernel turns a thread's system calls into SIGSYS while a byte of the thread's, the *selector*, says so, if they are
//! made outside of a range of code. The runtime's own calls in such a thread are to be made all the same, so the runtime
//! sets the selector for as long as each of them takes. Of a call that becomes a signal nothing is done beforehand: the
//! application may make another of it, or none.
//!
//! The kernel forgets the selector in new threads and children.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use atom_abi::SystemCall;

use crate::sys::call::set_around;
use crate::sys::segments;

/// The option of `prctl`, and its second argument.
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const ON: usize = 1;

/// Values of a selector.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// Most threads whose calls are turned into signals.
const MOST: usize = 64;

/// A thread whose calls may be turned into signals.
struct Seat {
    /// Its thread pointer; 0 for a free seat.
    owner: AtomicUsize,
    /// Address of its selector; 0 if its calls are made.
    selector: AtomicUsize,
    /// True if calls from all code are turned into signals.
    is_everywhere: AtomicBool,
    /// The selector of a thread that has none of its own.
    own: AtomicU8,
}

static SEATS: [Seat; MOST] = [const {
    Seat {
        owner: AtomicUsize::new(0),
        selector: AtomicUsize::new(0),
        is_everywhere: AtomicBool::new(false),
        own: AtomicU8::new(BLOCK),
    }
}; MOST];

/// True once a thread has asked for it.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The calling thread's seat. Threads are told apart without a system call or not at all.
fn seat() -> Option<&'static Seat> {
    if !IS_ACTIVE.load(Ordering::Relaxed) || !segments::is_quick() {
        return None;
    }
    let base = segments::fs_base();
    let is_own = |seat: &&Seat| seat.owner.load(Ordering::Relaxed) == base;
    SEATS.iter().find(is_own)
}

/// The calling thread's selector, if the kernel looks at one.
fn selector(seat: &Seat) -> Option<&'static AtomicU8> {
    let address = seat.selector.load(Ordering::Relaxed);
    // SAFETY: the application has promised the kernel that the byte can be read and written, and changes it as one byte.
    (address != 0).then(|| unsafe { AtomicU8::from_ptr(with_exposed_provenance_mut(address)) })
}

/// Looks at a call of `prctl` that is made next.
pub(crate) fn look(call: &mut SystemCall) {
    let [option, mode, _, len, address, _] = call.arguments;
    if call.number as i64 != libc::SYS_prctl || option != PR_SET_SYSCALL_USER_DISPATCH {
        return;
    }
    if !segments::is_quick() {
        return;
    }
    let base = segments::fs_base();
    let take = |seat: &&Seat| {
        let owner = &seat.owner;
        let taken = owner.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(base)
    };
    let Some(seat) = seat().or_else(|| SEATS.iter().find(take)) else {
        return;
    };
    seat.is_everywhere.store(len == 0, Ordering::Relaxed);
    let selector = match (mode, address) {
        (ON, 0) => {
            // Without a selector the runtime's own calls could not be allowed.
            call.arguments[4] = (&raw const seat.own).expose_provenance();
            call.arguments[4]
        }
        (ON, address) => address,
        _ => 0,
    };
    seat.selector.store(selector, Ordering::Relaxed);
    IS_ACTIVE.store(true, Ordering::Relaxed);
    set_around(allowed);
}

/// True if the call that the calling thread makes next becomes a signal, wherever it is.
pub(crate) fn is_emulated() -> bool {
    let Some(seat) = seat().filter(|seat| seat.is_everywhere.load(Ordering::Relaxed)) else {
        return false;
    };
    selector(seat).is_some_and(|selector| selector.load(Ordering::Relaxed) == BLOCK)
}

/// Makes a system call of the runtime's.
fn allowed(make: &mut dyn FnMut() -> isize) -> isize {
    let blocked = seat().and_then(selector);
    let blocked = blocked.filter(|selector| selector.load(Ordering::Relaxed) == BLOCK);
    if let Some(selector) = blocked {
        selector.store(ALLOW, Ordering::Relaxed);
    }
    let answer = make();
    if let Some(selector) = blocked {
        selector.store(BLOCK, Ordering::Relaxed);
    }
    answer
}
