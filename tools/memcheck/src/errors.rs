//! What was found, each place once.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use atom_tool::Site;
use atom_tool::prelude::*;

use crate::custom;
use crate::muted;
use crate::names::{Does, Family};
use crate::out;
use crate::slots::{self, Known};
use crate::suppressions;
use crate::told::{Frame, Kind, Part, Told};
use crate::traces;

/// Bit of a stack's call that is a client request: the rest is its number among the checked instructions.
pub const SITE: u32 = 1 << 31;
/// Number of places from which on errors are counted only.
const MOST: usize = 1000;

plain_data! {
    /// What is left out.
    pub struct Limits {
        /// Errors are told beyond [`MOST`] places, too.
        pub has_none: u8,
        /// Frees by another family or size are not errors.
        pub hides_mismatches: u8,
    }
}

/// An error.
#[derive(Clone, Copy, Debug)]
pub enum Wrong {
    /// An instruction accesses what is not addressable.
    Access {
        /// Number of the instruction among the checked ones.
        access: u32,
        is_write: bool,
        size: u64,
        /// The first byte that is not addressable.
        address: u64,
        stack: u32,
    },
    /// A function of C's library is about to.
    Range {
        function: &'static str,
        is_write: bool,
        /// Bytes of one access, and of the whole range.
        size: u64,
        len: u64,
        address: u64,
        stack: u32,
    },
    /// A function gets ranges that overlap.
    Overlap {
        function: &'static str,
        to: u64,
        from: u64,
        /// The size, if the function is given one.
        size: Option<u64>,
        stack: u32,
    },
    /// A system call is about to read or write what is not addressable.
    Param {
        /// The call and its argument: `write(buf)`.
        what: &'static str,
        address: u64,
        stack: u32,
    },
    /// What is freed is no block that is allocated.
    Free {
        address: u64,
        does: Does,
        stack: u32,
    },
    /// A block is freed by another family than allocated it.
    Mismatch {
        known: Known,
        does: Does,
        stack: u32,
    },
    /// A block is deleted with another size than it has.
    DeletedSize {
        known: Known,
        size: u64,
        does: Does,
        stack: u32,
    },
    /// A client request names a pool that there is not.
    Pool { address: u64, stack: u32 },
    /// A client request asks for a range that is not addressable.
    Check {
        /// The first byte that is not.
        address: u64,
        stack: u32,
    },
    /// A size is below zero.
    Size { size: u64, does: Does, stack: u32 },
}

/// The sites of calls and of checked instructions.
struct Places {
    calls: Sites,
    accesses: Sites,
    limits: Limits,
}
// SAFETY: tables that never change, or are replaced as a whole.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

static PLACES: OnceLock<Places> = OnceLock::new();

/// A place: what is wrong, a number, and the stack.
type Place = (u8, u32, u32);

/// What is known of a place.
#[derive(Clone, Copy, Default)]
struct Count {
    errors: u64,
    is_suppressed: bool,
}

struct Locked {
    is_locked: AtomicBool,
    places: UnsafeCell<Option<HashMap<Place, Count>>>,
}
// SAFETY: what is known is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static KNOWN: Locked = Locked {
    is_locked: AtomicBool::new(false),
    places: UnsafeCell::new(None),
};
/// Errors of places beyond [`MOST`].
static MORE: AtomicU64 = AtomicU64::new(0);

fn with<R>(work: impl FnOnce(&mut HashMap<Place, Count>) -> R) -> R {
    while KNOWN.is_locked.swap(true, Acquire) {
        spin_loop();
    }
    // SAFETY: the lock is held.
    let places = unsafe { &mut *KNOWN.places.get() };
    let result = work(places.get_or_insert_default());
    KNOWN.is_locked.store(false, Release);
    result
}

pub fn begin(calls: Sites, accesses: Sites, limits: Limits) {
    let _ = PLACES.set(Places {
        calls,
        accesses,
        limits,
    });
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    KNOWN.is_locked.store(false, Release);
}

/// Numbers of errors and of places.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    pub errors: u64,
    pub places: u64,
    pub suppressed: u64,
    pub suppressed_places: u64,
}

/// The numbers so far.
pub fn sum() -> Sum {
    let mut sum = with(|places| {
        let mut sum = Sum::default();
        for count in places.values() {
            if count.is_suppressed {
                sum.suppressed += count.errors;
                sum.suppressed_places += 1;
            } else {
                sum.errors += count.errors;
                sum.places += 1;
            }
        }
        sum
    });
    sum.errors += MORE.load(Relaxed);
    sum
}

impl Wrong {
    fn place(&self) -> Place {
        match *self {
            Self::Access { access, stack, .. } => (0, access, stack),
            Self::Range {
                is_write, stack, ..
            } => (1, is_write.into(), stack),
            Self::Overlap { stack, .. } => (2, 0, stack),
            Self::Free { stack, .. } => (3, 0, stack),
            Self::Mismatch { stack, .. } => (4, 0, stack),
            Self::Size { stack, .. } => (5, 0, stack),
            Self::DeletedSize { stack, .. } => (6, 0, stack),
            Self::Pool { stack, .. } => (8, 0, stack),
            Self::Check { stack, .. } => (9, 0, stack),
            Self::Param { what, stack, .. } => (7, what.as_ptr().addr() as u32, stack),
        }
    }

    fn is_mismatch(&self) -> bool {
        matches!(self, Self::Mismatch { .. } | Self::DeletedSize { .. })
    }

    /// True for an access to a stack's memory that a procedure closed which has ended.
    fn is_stale(&self) -> bool {
        let (Self::Access { address, stack, .. }
        | Self::Range { address, stack, .. }
        | Self::Param { address, stack, .. }) = *self
        else {
            return false;
        };
        custom::is_used() && custom::is_stale(address, stack)
    }
}

/// Reports an error, if its place is new.
pub fn report(wrong: &Wrong) {
    let Some(Places { limits, .. }) = PLACES.get() else {
        return;
    };
    let is_hidden = limits.hides_mismatches != 0 && wrong.is_mismatch();
    if is_hidden || muted::is_muted() || wrong.is_stale() {
        return;
    }
    let place = wrong.place();
    let is_new = with(|places| {
        if limits.has_none == 0 && places.len() >= MOST && !places.contains_key(&place) {
            MORE.fetch_add(1, Relaxed);
            return false;
        }
        let count = places.entry(place).or_default();
        count.errors += 1;
        count.errors == 1
    });
    if !is_new {
        return;
    }
    let told = describe(wrong);
    if suppressions::suppresses(&told) {
        with(|places| places.entry(place).or_default().is_suppressed = true);
    } else {
        out::error(&told);
    }
}

fn access_kind(is_write: bool, size: u64) -> Kind {
    if is_write {
        Kind::Write(size)
    } else {
        Kind::Read(size)
    }
}

fn access_text(is_write: bool, size: u64) -> String {
    let verb = if is_write { "write" } else { "read" };
    format!("Invalid {verb} of size {size}")
}

fn new(kind: Kind, what: String, own: Option<Frame>, stack: u32, parts: Vec<Part>) -> Told {
    Told {
        kind,
        what,
        stack: frames(own, stack),
        parts,
        leaked: None,
    }
}

fn describe(wrong: &Wrong) -> Told {
    match *wrong {
        Wrong::Access {
            access,
            is_write,
            size,
            address,
            stack,
        } => {
            let site = PLACES.get().and_then(|p| p.accesses.get(access as usize));
            let kind = access_kind(is_write, size);
            let what = access_text(is_write, size);
            let own = site.as_ref().map(Frame::of_site);
            new(kind, what, own, stack, address_parts(address))
        }
        Wrong::Range {
            function,
            is_write,
            size,
            len,
            address,
            stack,
        } => {
            let own = Frame::of_function(function, function, Some(len));
            let what = access_text(is_write, size);
            let parts = address_parts(address);
            new(access_kind(is_write, size), what, Some(own), stack, parts)
        }
        Wrong::Overlap {
            function,
            to,
            from,
            size,
            stack,
        } => {
            let size = size.map(|size| format!(", {size}")).unwrap_or_default();
            let what =
                format!("Source and destination overlap in {function}({to:#x}, {from:#x}{size})");
            let own = Frame::of_function(function, function, None);
            new(Kind::Overlap, what, Some(own), stack, Vec::new())
        }
        Wrong::Param {
            what,
            address,
            stack,
        } => {
            let name = what.split('(').next().unwrap_or(what);
            let own = Frame::of_function(name, name, None);
            let text = format!("Syscall param {what} points to unaddressable byte(s)");
            new(
                Kind::Param(what),
                text,
                Some(own),
                stack,
                address_parts(address),
            )
        }
        Wrong::Free {
            address,
            does,
            stack,
        } => {
            let what = "Invalid free() / delete / delete[] / realloc()".to_owned();
            let parts = address_parts(address);
            new(Kind::Free, what, own_frame(does), stack, parts)
        }
        Wrong::Mismatch { known, does, stack } => {
            let what = "Mismatched free() / delete / delete []".to_owned();
            let parts = block_parts(known.start, &known);
            new(Kind::Mismatch, what, own_frame(does), stack, parts)
        }
        Wrong::DeletedSize {
            known,
            size,
            does,
            stack,
        } => {
            let what = format!("Mismatched new/delete size value: {size}");
            let parts = block_parts(known.start, &known);
            new(Kind::Mismatch, what, own_frame(does), stack, parts)
        }
        Wrong::Size { size, does, stack } => {
            let (name, size) = (does.name(), size as i64);
            let what = format!(
                "Argument 'size' of function {name} has a fishy (possibly negative) value: {size}"
            );
            new(Kind::Fishy, what, own_frame(does), stack, Vec::new())
        }
        Wrong::Check { address, stack } => {
            let what = "Unaddressable byte(s) found during client check request".into();
            new(Kind::Check, what, None, stack, address_parts(address))
        }
        Wrong::Pool { address, stack } => {
            let what = "Illegal memory pool address".to_owned();
            new(Kind::Pool, what, None, stack, address_parts(address))
        }
    }
}

/// The number and the site of the first checked instruction at an address.
pub fn access_at(address: Address) -> Option<(u32, Site)> {
    let mut sites = PLACES.get()?.accesses.iter().zip(0..);
    sites.find_map(|(site, number)| (site.pc == address.0).then_some((number, site)))
}

/// The frames of a stack, after one of its own.
pub fn frames(own: Option<Frame>, stack: u32) -> Vec<Frame> {
    let calls = traces::calls(stack).unwrap_or_default();
    let places = PLACES.get();
    let sites = calls.iter().filter_map(|n| match n & SITE {
        0 => places?.calls.get(*n as usize),
        _ => places?.accesses.get((n & !SITE) as usize),
    });
    let mut frames: Vec<Frame> = own
        .into_iter()
        .chain(sites.map(|site| Frame::of_site(&site)))
        .collect();
    // What calls `main` is of no use.
    if let Some(main) = frames.iter().position(Frame::is_main) {
        frames.truncate(main + 1);
    }
    frames
}

/// The frames of a function of the allocator that was called with a stack.
pub fn frames_of(does: Does, stack: u32) -> Vec<Frame> {
    frames(own_frame(does), stack)
}

/// The frame of a function of the allocator. A client request has its own in its stack.
fn own_frame(does: Does) -> Option<Frame> {
    let is_function = does.family() != Family::Custom;
    is_function.then(|| Frame::of_function(does.name(), does.symbol(), None))
}

fn address_parts(address: u64) -> Vec<Part> {
    match custom::nearest(address).or_else(|| nearest(address)) {
        Some(block) => block_parts(address, &block),
        None => vec![Part {
            text: format!("Address {address:#x} is not stack'd, malloc'd or (recently) free'd"),
            stack: Vec::new(),
        }],
    }
}

/// The block whose slot or redzone an address is in.
fn nearest(address: u64) -> Option<Known> {
    let known = |address| slots::find(address).map(slots::Block::known);
    let own = known(address);
    // Before the block the end of the one before may be nearer.
    let before = own.filter(|own| address < own.start);
    let other = before.and_then(|_| known(address.saturating_sub(64)));
    let is_nearer = |other: &Known| {
        own.is_some_and(|own| {
            other.start < own.start
                && address.saturating_sub(other.start + other.size) < own.start - address
        })
    };
    other.filter(is_nearer).or(own)
}

fn block_parts(address: u64, block: &Known) -> Vec<Part> {
    let (start, size) = (block.start, block.size);
    let place = match () {
        () if address < start => format!("{} bytes before", start - address),
        () if address < start + size => format!("{} bytes inside", address - start),
        () => format!("{} bytes after", address - start - size),
    };
    let state = match block.does {
        _ if !block.is_live => "free'd",
        Does::PoolRequest => "client-defined",
        _ => "alloc'd",
    };
    let digits = out::grouped(size);
    let text = format!("Address {address:#x} is {place} a block of size {digits} {state}");
    let allocated = frames_of(block.does, block.allocated);
    if block.is_live {
        return vec![Part {
            text,
            stack: allocated,
        }];
    }
    let freed = match block.does.family() {
        Family::Malloc => Does::Free,
        Family::New => Does::Delete,
        Family::NewArray => Does::DeleteArray,
        Family::Custom => Does::Request,
    };
    vec![
        Part {
            text,
            stack: frames_of(freed, block.freed),
        },
        Part {
            text: "Block was alloc'd at".into(),
            stack: allocated,
        },
    ]
}
