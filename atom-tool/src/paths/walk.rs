//! Analysis side: the silent calls on the stack, from a frame outwards.
//!
//! A return address in the instrumented program leads to a return address of the original, by a table that `atom`
//! wrote, and this to the call site. What has been found is kept: for a hash of the return address the call site, and for
//! each call site its return address. Both are single words, and each value of the second is right for ever, so threads
//! and signal handlers need no lock.
//!
//! ABI: at a procedure's entry rsp is the address of the return address. The exception tables say for a call where
//! rsp was before the call that entered the procedure, and where the caller's rbp is saved.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use atom_abi::OBJECT_SHIFT;
use atom_abi::query::CallFrameRecord;

use crate::params::Array;
use crate::plain_data;

plain_data! {
    /// A call site.
    pub(super) struct SiteFrame {
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
        let from = match self.rbp & RULE {
            BY_RSP => sp,
            BY_RBP => rbp,
            _ => return None,
        };
        let frame_end = from.wrapping_add_signed(self.offset.into());
        let slot = frame_end.wrapping_sub(WORD);
        if slot < sp || slot % WORD != 0 {
            return None;
        }
        let rbp = match self.rbp & !RULE {
            0 => rbp,
            // SAFETY: the procedure has saved it there, says its exception table.
            offset => unsafe { word(frame_end.wrapping_add_signed(offset.into())) },
        };
        Some(Frame { slot, rbp })
    }
}

/// Size of a word on the stack.
pub(super) const WORD: u64 = 8;

/// A frame: the address of its return address, and rbp as the caller had it.
#[derive(Clone, Copy)]
pub(super) struct Frame {
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
unsafe fn word(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}

/// The call sites, in the order of their original return addresses.
struct Sites {
    all: &'static [SiteFrame],
    /// For each call site its return address, or 0 while that is not known.
    backs: Vec<AtomicU64>,
}

static SITES: OnceLock<Sites> = OnceLock::new();

/// Number of entries of [`KNOWN`], as a power of two.
const KNOWN_BITS: u32 = 14;
/// Number of a call site by a hash of its return address; 0 if there is none.
static KNOWN: [AtomicU32; 1 << KNOWN_BITS] = [const { AtomicU32::new(0) }; 1 << KNOWN_BITS];

/// Prepares for the process with these call sites.
pub(super) fn begin(sites: Array<SiteFrame>) {
    let all = sites.as_slice();
    let backs = all.iter().map(|_| AtomicU64::new(0)).collect();
    // A second table would be the same.
    let _ = SITES.set(Sites { all, backs });
}

/// An object is mapped or unmapped: return addresses may be other ones now.
pub(super) fn forget() {
    KNOWN.iter().for_each(|known| known.store(0, Relaxed));
}

/// A call site by its number, from 1 on.
#[inline(always)]
pub(super) fn site(number: u64) -> Option<&'static SiteFrame> {
    SITES.get()?.all.get((number as usize).wrapping_sub(1))
}

/// Number of the call site with this return address, and the site; `None` if it is not known.
#[inline(always)]
pub(super) fn site_behind(back: u64) -> Option<(u32, &'static SiteFrame)> {
    let sites = SITES.get()?;
    let hash = back.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KNOWN_BITS);
    let known = &KNOWN[hash as usize % KNOWN.len()];
    let number = known.load(Acquire);
    let at = (number as usize).wrapping_sub(1);
    if let Some(found) = sites.backs.get(at)
        && found.load(Relaxed) == back
    {
        return Some((number, &sites.all[at]));
    }
    let number = search(sites, back)?;
    known.store(number, Release);
    Some((number, &sites.all[number as usize - 1]))
}

#[cold]
#[inline(never)]
fn search(sites: &Sites, back: u64) -> Option<u32> {
    let (object, address) = analysis_rt::original_return(back)?;
    let original = (object as u64) << OBJECT_SHIFT | address;
    let at = (sites.all).binary_search_by_key(&original, |site| site.back);
    let at = at.ok()?;
    sites.backs[at].store(back, Relaxed);
    Some(at as u32 + 1)
}
