//! The running recording, if there is one.
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arp_core::{Mode, Problem, Session, Sid, Tid};

use crate::context::{CMeter, CallbackSet, Context, ContextCell};
use crate::report::{ENDING, Errors};
use crate::slot::Slot;

pub(crate) type LockCallback =
    extern "C" fn(data: *const std::ffi::c_void, context: *mut std::ffi::c_void);

/// Present use of a thread number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A thread that was not announced as spawned, such as the first.
    Root,
    /// A thread that was spawned at this depth of its parent's stack.
    Running {
        parent: Tid,
        depth: usize,
        warned: bool,
    },
    /// No thread: the last one was joined.
    Joined,
}

/// A recording. It is never freed, because other threads may still use it after its end.
pub(crate) struct Active {
    pub session: Session,
    pub max_tid: u16,
    pub sets: Vec<CallbackSet>,
    pub lock: Option<LockCallback>,
    pub unlock: Option<LockCallback>,
    pub lock_context: Context,
    slots: Box<[AtomicPtr<Slot>]>,
    /// Locked while slots are made, claimed, taken or closed.
    pub table: Mutex<Table>,
}

/// State of all thread numbers.
pub(crate) struct Table {
    pub states: Vec<Option<State>>,
}

static ACTIVE: AtomicPtr<Active> = AtomicPtr::new(std::ptr::null_mut());

/// Phase of the library.
static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
const BEFORE: u8 = 0;
const STARTED: u8 = 1;
const FINISHED: u8 = 2;
/// The start failed and the error callback returned. Nothing is recorded, and nothing more is reported.
const FAILED: u8 = 3;

/// The recording; `None` before its start.
#[inline]
pub(crate) fn active() -> Option<&'static Active> {
    // SAFETY: set once for each recording to a value that is never freed.
    unsafe { ACTIVE.load(Ordering::Acquire).as_ref() }
}

pub(crate) fn is_running() -> bool {
    PHASE.load(Ordering::Acquire) == STARTED
}

/// Notes that the start has failed.
pub(crate) fn fail() {
    PHASE.store(FAILED, Ordering::Release);
}

/// Why a recording function is not valid now; `None` if that has been reported already.
pub(crate) fn out_of_order() -> Option<&'static str> {
    match PHASE.load(Ordering::Acquire) {
        FINISHED => Some("called after arp_finish"),
        FAILED => None,
        _ => Some("called before arp_start"),
    }
}

impl Active {
    pub fn new(
        session: Session,
        max_tid: u16,
        sets: Vec<CallbackSet>,
        locks: (Option<LockCallback>, Option<LockCallback>, Context),
    ) -> Self {
        let count = usize::from(max_tid) + 1;
        Self {
            session,
            max_tid,
            sets,
            lock: locks.0,
            unlock: locks.1,
            lock_context: locks.2,
            slots: (0..count).map(|_| AtomicPtr::default()).collect(),
            table: Mutex::new(Table {
                states: vec![None; count],
            }),
        }
    }

    /// Makes this the running recording.
    pub fn begin(self) {
        ACTIVE.store(Box::into_raw(Box::new(self)), Ordering::Release);
        PHASE.store(STARTED, Ordering::Release);
    }

    /// Ends the recording. Returns whether it was running.
    pub fn stop() -> bool {
        PHASE
            .compare_exchange(STARTED, FINISHED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The slot of thread `tid`, if it has one.
    #[inline]
    pub fn slot(&self, tid: u16) -> Option<&Slot> {
        let slot = self.slots.get(usize::from(tid))?;
        // SAFETY: slots are set once and never freed.
        unsafe { slot.load(Ordering::Acquire).as_ref() }
    }

    /// All slots, with their thread numbers.
    pub fn slots(&self) -> impl Iterator<Item = (u16, &Slot)> {
        (0..=self.max_tid).filter_map(|tid| Some((tid, self.slot(tid)?)))
    }

    /// The slot of thread `tid`, made if there is none. The table's lock must be held.
    pub fn make_slot(&self, tid: u16) -> &Slot {
        if let Some(slot) = self.slot(tid) {
            return slot;
        }
        let contexts: Vec<ContextCell> = self
            .sets
            .iter()
            .map(|set| Arc::new(AtomicPtr::new(set.context.0)))
            .collect();
        let meters = self.sets.iter().zip(&contexts).map(|(set, context)| {
            let meter = CMeter {
                set: *set,
                context: Arc::clone(context),
            };
            Box::new(meter) as Box<dyn arp_core::Meter>
        });
        let recorder = self.session.thread_with(Tid(tid.into()), meters.collect());
        let slot = Slot::new(recorder, contexts);
        let slot = Box::leak(Box::new(slot));
        self.slots[usize::from(tid)].store(slot, Ordering::Release);
        slot
    }

    /// Drops the slot of a thread that a child after `fork` does not have; its recorder belongs to the parent.
    pub fn forget_slot(&self, tid: u16) {
        self.slots[usize::from(tid)].store(std::ptr::null_mut(), Ordering::Release);
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a problem. If the program is to end, it does so just before the present function returns.
    #[cold]
    pub fn report(&self, problem: &Problem) {
        self.session.report(problem);
    }

    /// Checks a thread number.
    pub fn knows(&self, tid: u16, sid: Option<Sid>) -> bool {
        if tid <= self.max_tid {
            return true;
        }
        let (thread, limit) = (Tid(tid.into()), Tid(self.max_tid.into()));
        self.report(&Problem::UnknownThread { thread, limit, sid });
        false
    }

    /// Runs `work` between the program's own lock callbacks.
    pub fn locked(&self, work: impl FnOnce()) {
        let data = (&raw const *self).cast();
        if let Some(lock) = self.lock {
            lock(data, self.lock_context.0);
        }
        work();
        if let Some(unlock) = self.unlock {
            unlock(data, self.lock_context.0);
        }
    }
}

/// The session's handler of problems.
pub(crate) fn handler(errors: Arc<Errors>) -> impl Fn(&Problem) + Send + Sync {
    move |problem| {
        if errors.tell(problem) {
            ENDING.store(true, Ordering::Relaxed);
        }
    }
}

/// The section with this number.
pub(crate) fn section(sid: u16) -> Sid {
    Sid(sid.into())
}

pub(crate) fn mode(number: u32) -> Option<Mode> {
    Mode::from_number(number.into())
}
