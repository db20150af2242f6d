//! Analysis side: the silent calls on the stack, from a frame outwards.
//!
//! A return address in the instrumented program leads to a return address of the original, by a table that `atom`
//! wrote, and this to the call site. What has been found is kept: for a hash of the return address the call site, and for
//! each call site its return address. Both are single words, and each value of the second is right for ever, so threads
//! and signal handlers need no lock.
//!
//! ABI: at a procedure's entry rsp is the address of the return address. The exception tables say for a call where
//! rsp was before the call that entered the procedure, and where the caller's rbp is saved.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use atom_abi::OBJECT_SHIFT;
use atom_abi::query::CallFrameRecord;

use crate::calls::params::Array;
use crate::plain_data;

plain_data! {
    /// A call site.
    pub(crate) struct SiteFrame {
        /// Original return address, with the number of its object.
        pub back: u64,
        /// Offset of the virtual frame pointer from rsp or rbp.
        pub offset: i32,
        /// Where the caller's rbp is saved, from the virtual frame pointer, or 0; with one of the values below in the lowest bits.
        pub rbp: i32,
        /// Number of the calling procedure, and of the procedure that is certainly called; 0 if that is not known.
        pub procs: [u32; 2],
    }
}

/// Bits of [`SiteFrame::rbp`]: how the virtual frame pointer is found.
const RULE: i32 = 7;
const BY_RSP: i32 = 1;
const BY_RBP: i32 = 2;

impl SiteFrame {
    /// The call site that returns to `back`.
    pub fn new(back: u64, frame: Option<CallFrameRecord>, procs: [u32; 2]) -> Self {
        let (offset, rbp) = match frame.filter(|frame| frame.rbp_offset & RULE == 0) {
            None => (0, 0),
            Some(frame) if frame.by_rbp != 0 => (frame.offset, frame.rbp_offset | BY_RBP),
            Some(frame) => (frame.offset, frame.rbp_offset | BY_RSP),
        };
        Self {
            back,
            offset,
            rbp,
            procs,
        }
    }

    /// The frame around, given rsp and rbp at the call.
    #[inline(always)]
    pub fn outwards(&self, sp: u64, rbp: u64) -> Option<Frame> {
        // SAFETY: words of the running thread's stack.
        self.outwards_by(sp, rbp, |address| unsafe { word(address) })
    }

    /// As [`SiteFrame::outwards`], where `load` reads the word in which rbp is saved.
    #[inline(always)]
    pub fn outwards_by(&self, sp: u64, rbp: u64, load: impl FnOnce(u64) -> u64) -> Option<Frame> {
        let from = match self.rbp & RULE {
            BY_RSP => sp,
            BY_RBP => rbp,
            _ => return None,
        };
        let frame_end = from.wrapping_add_signed(self.offset.into());
        let slot = frame_end.wrapping_sub(WORD);
        // What hand-written code says of rbp may be wrong: a place far away is not read.
        if slot.wrapping_sub(sp) > LARGEST || slot % WORD != 0 {
            return None;
        }
        let rbp = match self.rbp & !RULE {
            0 => rbp,
            // The procedure has saved it there, says its exception table.
            offset => load(frame_end.wrapping_add_signed(offset.into())),
        };
        Some(Frame { slot, rbp })
    }

    /// True if the frame around is found without rbp.
    #[inline(always)]
    pub fn is_by_sp(&self) -> bool {
        self.rbp & RULE == BY_RSP
    }
}

/// Largest size in bytes of a frame that is followed.
const LARGEST: u64 = 8 << 20;

/// Size of a word on the stack.
pub(crate) const WORD: u64 = 8;

/// A frame: the address of its return address, and rbp as the caller had it.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub slot: u64,
    pub rbp: u64,
}

impl Frame {
    /// The return address.
    ///
    /// # Safety
    /// The frame is one of the running thread's.
    #[inline(always)]
    pub unsafe fn back(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { word(self.slot) }
    }
}

/// # Safety
/// The address is one of a word on the stack.
#[inline(always)]
pub(crate) unsafe fn word(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}

/// The call sites in this process, in the order of their original return addresses.
struct Rows {
    frames: &'static [SiteFrame],
    /// For each its return address, or 0 while that is not known.
    backs: Box<[AtomicU64]>,
}

impl Rows {
    /// The call site with a number, from 1 on, and its return address.
    #[inline(always)]
    fn get(&self, number: u64) -> Option<(&'static SiteFrame, &AtomicU64)> {
        let at = (number as usize).wrapping_sub(1);
        self.frames.get(at).zip(self.backs.get(at))
    }
}

/// The table of call sites. It becomes longer when a library is added to the process.
struct Table(Array<SiteFrame>);
// SAFETY: the table never changes, or is replaced as a whole.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
/// What was made of it last; null before the program's start. Earlier ones are kept for ever, since threads may use them.
static ROWS: AtomicPtr<Rows> = AtomicPtr::new(null_mut());

#[inline(always)]
fn rows() -> Option<&'static Rows> {
    // SAFETY: null, or a box that was leaked.
    unsafe { ROWS.load(Acquire).as_ref() }
}

/// Takes the call sites of libraries that were added.
fn grow() {
    let Some(table) = TABLE.get() else { return };
    let frames = table.0.as_slice();
    if rows().is_some_and(|rows| rows.frames.len() == frames.len()) {
        return;
    }
    let backs = frames.iter().map(|_| AtomicU64::new(0)).collect();
    let rows = Box::leak(Box::new(Rows { frames, backs }));
    ROWS.store(rows, Release);
}

/// Number of entries of [`KNOWN`], as a power of two.
const KNOWN_BITS: u32 = 16;
/// Number of a call site by a hash of its return address; 0 if there is none.
static KNOWN: [AtomicU32; 1 << KNOWN_BITS] = [const { AtomicU32::new(0) }; 1 << KNOWN_BITS];

/// Return addresses of no call site, by their hash.
static STRANGE: [AtomicU64; 1 << 8] = [const { AtomicU64::new(0) }; 1 << 8];

/// Prepares for the process with these call sites.
pub(crate) fn begin(sites: Array<SiteFrame>) {
    // A second table would be the same.
    let _ = TABLE.set(Table(sites));
    grow();
}

/// Number of times that objects were mapped or unmapped.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Number of changes of the memory map so far. While it stays the same, each return address leads to one call site.
#[inline(always)]
pub(crate) fn changes() -> u64 {
    CHANGES.load(Relaxed)
}

/// An object is mapped or unmapped: return addresses may be other ones now.
pub(crate) fn forget() {
    grow();
    CHANGES.fetch_add(1, Relaxed);
    KNOWN.iter().for_each(|known| known.store(0, Relaxed));
    STRANGE.iter().for_each(|strange| strange.store(0, Relaxed));
}

/// A call site by its number, from 1 on.
#[inline(always)]
pub(crate) fn site(number: u64) -> Option<&'static SiteFrame> {
    Some(rows()?.get(number)?.0)
}

/// A call site and its number.
type Found = (u32, &'static SiteFrame);

fn hash(back: u64) -> u64 {
    back.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KNOWN_BITS)
}

/// The entry of [`KNOWN`] for a return address.
#[inline(always)]
fn known(back: u64) -> &'static AtomicU32 {
    &KNOWN[hash(back) as usize % KNOWN.len()]
}

/// The entry of [`STRANGE`] for a return address.
#[inline(always)]
fn strange(back: u64) -> &'static AtomicU64 {
    &STRANGE[hash(back) as usize % STRANGE.len()]
}

/// The call site with this return address, or that there is none; `None` if that has not been asked lately.
#[inline(always)]
pub(crate) fn known_site(back: u64) -> Option<Option<Found>> {
    let number = known(back).load(Relaxed);
    let row = rows()?.get(number.into());
    match row.filter(|(_, own)| own.load(Relaxed) == back) {
        Some((frame, _)) => Some(Some((number, frame))),
        None => (strange(back).load(Relaxed) == back).then_some(None),
    }
}

/// The call site with this return address.
#[inline(always)]
pub(crate) fn site_behind(back: u64) -> Option<Found> {
    known_site(back).unwrap_or_else(|| search(back))
}

#[cold]
#[inline(never)]
fn search(back: u64) -> Option<Found> {
    let found = find(back);
    match found {
        Some((number, _)) => known(back).store(number, Relaxed),
        None => strange(back).store(back, Relaxed),
    }
    found
}

fn find(back: u64) -> Option<Found> {
    let (object, address) = analysis_rt::original_return(back)?;
    let original = (object as u64) << OBJECT_SHIFT | address;
    let rows = rows()?;
    let at = rows
        .frames
        .binary_search_by_key(&original, |frame| frame.back);
    let number = at.ok()? as u32 + 1;
    let (frame, own) = rows.get(number.into())?;
    own.store(back, Relaxed);
    Some((number, frame))
}
