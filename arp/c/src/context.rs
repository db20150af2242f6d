//! C callbacks under the recorder's interface, each with the context of its thread.
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use arp_core::{Area, DataType, Meter, Sid};

pub(crate) type EnterLeave = extern "C" fn(sid: u16, data: *mut c_void, context: *mut c_void);
pub(crate) type SpawnJoin = extern "C" fn(tid: u16, context: *mut *mut c_void);

/// Arguments of `arp_add_callbacks`.
#[derive(Clone, Copy)]
pub(crate) struct CallbackSet {
    pub data_type: DataType,
    pub enter: Option<EnterLeave>,
    pub leave: Option<EnterLeave>,
    pub spawn: Option<SpawnJoin>,
    pub join: Option<SpawnJoin>,
    pub context: Context,
}

/// A context pointer, which only the callbacks dereference.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub *mut c_void);

// SAFETY: this library passes the pointer on and never dereferences it. The program and its callbacks
// decide which threads may use the object after it.
unsafe impl Send for Context {}
// SAFETY: as for Send: the pointer is never dereferenced here.
unsafe impl Sync for Context {}

/// The context pointer of one thread in one set.
pub(crate) type ContextCell = Arc<AtomicPtr<c_void>>;

/// The callbacks of one set for one thread.
pub(crate) struct CMeter {
    pub set: CallbackSet,
    pub context: ContextCell,
}

impl Meter for CMeter {
    #[inline]
    fn enter(&mut self, sid: Sid, data: &mut Area) {
        if let Some(enter) = self.set.enter {
            let context = self.context.load(Ordering::Relaxed);
            enter(sid.0 as u16, (&raw mut *data).cast(), context);
        }
    }

    #[inline]
    fn leave(&mut self, sid: Sid, data: &mut Area) {
        if let Some(leave) = self.set.leave {
            let context = self.context.load(Ordering::Relaxed);
            leave(sid.0 as u16, (&raw mut *data).cast(), context);
        }
    }
}
