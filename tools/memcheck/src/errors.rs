//! What was found, each place once, and how it is told.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hint::spin_loop;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::{cell::UnsafeCell, process};

use atom_tool::Site;
use atom_tool::prelude::*;

use crate::heap::{self, Block, Kind, State};

/// Largest number of calls of a stack.
pub const DEPTH: usize = 12;

/// Number of places from which on errors are counted only.
const MOST: usize = 1000;

/// An error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
        size: u64,
        address: u64,
        stack: u32,
    },
    /// `memcpy` between ranges that overlap.
    Overlap {
        function: &'static str,
        to: u64,
        from: u64,
        size: u64,
        stack: u32,
    },
    /// What is freed is no block that is allocated.
    Free { address: u64, stack: u32 },
    /// A block is freed by another family than allocated it.
    Mismatch { address: u64, stack: u32 },
    /// A size is below zero.
    Size { size: u64, kind: Kind, stack: u32 },
}

impl std::hash::Hash for Kind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (*self as u8).hash(state);
    }
}

/// The sites of calls and of checked instructions.
struct Places {
    calls: Sites,
    accesses: Sites,
}
// SAFETY: tables that never change, or are replaced as a whole.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

static PLACES: OnceLock<Places> = OnceLock::new();
static ERRORS: AtomicU64 = AtomicU64::new(0);

/// Known stacks, and the places that have been reported.
#[derive(Default)]
struct Known {
    stacks: Vec<Box<[u32]>>,
    numbers: HashMap<Box<[u32]>, u32>,
    reported: HashMap<(u8, u32, u32), u64>,
}

struct Locked {
    is_locked: AtomicBool,
    known: UnsafeCell<Option<Known>>,
}
// SAFETY: what is known is used by the holder of the lock alone.
unsafe impl Sync for Locked {}

static KNOWN: Locked = Locked {
    is_locked: AtomicBool::new(false),
    known: UnsafeCell::new(None),
};

fn with<R>(work: impl FnOnce(&mut Known) -> R) -> R {
    while KNOWN.is_locked.swap(true, Acquire) {
        spin_loop();
    }
    // SAFETY: the lock is held.
    let known = unsafe { &mut *KNOWN.known.get() };
    let result = work(known.get_or_insert_default());
    KNOWN.is_locked.store(false, Release);
    result
}

/// Where it is told: a file, or standard error as it was at the start, which programs may close.
static OUT: OnceLock<File> = OnceLock::new();

/// `log` is the name of a file, or empty.
pub fn begin(calls: Sites, accesses: Sites, log: &str) {
    let _ = PLACES.set(Places { calls, accesses });
    let file = match log {
        "" => std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from),
        log => File::create(output::path(log)),
    };
    match file {
        Ok(file) => _ = OUT.set(file),
        Err(error) if !log.is_empty() => eprintln!("memcheck: cannot write {log}: {error}"),
        Err(_) => {}
    }
}

/// In a forked child: a thread that is not there may have held the lock.
pub fn in_child() {
    KNOWN.is_locked.store(false, Release);
}

/// The number of a stack.
pub fn intern(calls: &[u32]) -> u32 {
    with(|known| {
        if let Some(number) = known.numbers.get(calls) {
            return *number;
        }
        let number = known.stacks.len() as u32;
        known.stacks.push(calls.into());
        known.numbers.insert(calls.into(), number);
        number
    })
}

/// Number of errors so far, and of places.
pub fn count() -> (u64, usize) {
    (ERRORS.load(Relaxed), with(|known| known.reported.len()))
}

/// Reports an error, if its place is new.
pub fn report(wrong: &Wrong) {
    ERRORS.fetch_add(1, Relaxed);
    let key = match *wrong {
        Wrong::Access { access, stack, .. } => (0, access, stack),
        Wrong::Range {
            is_write, stack, ..
        } => (1, is_write.into(), stack),
        Wrong::Overlap { stack, .. } => (2, 0, stack),
        Wrong::Free { stack, .. } => (3, 0, stack),
        Wrong::Mismatch { stack, .. } => (4, 0, stack),
        Wrong::Size { stack, .. } => (5, 0, stack),
    };
    let is_new = with(|known| {
        let is_full = known.reported.len() >= MOST;
        if is_full && !known.reported.contains_key(&key) {
            return false;
        }
        let count = known.reported.entry(key).or_default();
        *count += 1;
        *count == 1
    });
    if is_new {
        let mut text = String::new();
        describe(wrong, &mut text);
        print(&text);
    }
}

/// Prints lines with the number of the process in front, all at once.
pub fn print(text: &str) {
    let pid = process::id();
    let lines = text.lines().map(|line| format!("=={pid}== {line}\n"));
    if let Some(mut out) = OUT.get() {
        let _ = out.write_all(lines.collect::<String>().as_bytes());
    }
}

fn describe(wrong: &Wrong, text: &mut String) {
    let verb = |is_write| if is_write { "write" } else { "read" };
    match *wrong {
        Wrong::Access {
            access,
            is_write,
            size,
            address,
            stack,
        } => {
            let _ = writeln!(text, "Invalid {} of size {size}", verb(is_write));
            let site = PLACES.get().and_then(|p| p.accesses.get(access as usize));
            site_and_calls(site, stack, text);
            describe_address(address, text);
        }
        Wrong::Range {
            function,
            is_write,
            size,
            address,
            stack,
        } => {
            let _ = writeln!(
                text,
                "Invalid {} of {size} bytes by {function}",
                verb(is_write)
            );
            write_stack(stack, text);
            describe_address(address, text);
        }
        Wrong::Overlap {
            function,
            to,
            from,
            size,
            stack,
        } => {
            let _ = writeln!(
                text,
                "Source and destination overlap in {function}({to:#x}, {from:#x}, {size})"
            );
            write_stack(stack, text);
        }
        Wrong::Free { address, stack } => {
            let _ = writeln!(text, "Invalid free() / delete / delete[] / realloc()");
            write_stack(stack, text);
            describe_address(address, text);
        }
        Wrong::Mismatch { address, stack } => {
            let _ = writeln!(text, "Mismatched free() / delete / delete []");
            write_stack(stack, text);
            let block = heap::with(|heap| heap.find(address).map(|block| *block));
            if let Some(mut block) = block {
                // It was allocated until now.
                block.state = State::Live;
                describe_block(address, &block, text);
            }
        }
        Wrong::Size { size, kind, stack } => {
            let _ = writeln!(
                text,
                "Argument 'size' of function {} has a fishy (possibly negative) value: {}",
                kind.name(),
                size as i64
            );
            write_stack(stack, text);
        }
    }
    text.push('\n');
}

fn site_and_calls(site: Option<Site>, stack: u32, text: &mut String) {
    match site {
        Some(site) => {
            write_site("at", &site, text);
            write_calls("by", stack, text);
        }
        None => write_stack(stack, text),
    }
}

/// Writes the calls of a stack, the innermost first.
pub fn write_stack(stack: u32, text: &mut String) {
    write_calls("at", stack, text);
}

fn write_calls(mut word: &str, stack: u32, text: &mut String) {
    let calls = with(|known| known.stacks.get(stack as usize).cloned());
    let (Some(calls), Some(places)) = (calls, PLACES.get()) else {
        return;
    };
    for site in calls.iter().filter_map(|n| places.calls.get(*n as usize)) {
        write_site(word, &site, text);
        word = "by";
    }
}

fn write_site(word: &str, site: &Site, text: &mut String) {
    let address = Address(site.pc);
    let _ = write!(text, "   {word} {address}: {}", site.proc);
    let _ = match (site.short_line(), address.object()) {
        (Some(line), _) => writeln!(text, " ({line})"),
        (None, Some(object)) => writeln!(text, " (in {object})"),
        (None, None) => writeln!(text),
    };
}

fn describe_address(address: u64, text: &mut String) {
    let block = heap::with(|heap| nearest(heap, address));
    match block {
        Some(block) => describe_block(address, &block, text),
        None => {
            let _ = writeln!(
                text,
                " Address {address:#x} is not stack'd, malloc'd or (recently) free'd"
            );
        }
    }
}

/// The block whose slot or redzone an address is in.
fn nearest(heap: &mut heap::Heap, address: u64) -> Option<Block> {
    let own = heap.find(address).map(|block| *block);
    // Before the block the end of the one before may be nearer.
    let before = own.filter(|own| address < own.start);
    let other = before.and_then(|_| heap.find(address.saturating_sub(64)).map(|block| *block));
    let is_nearer = |other: &Block| {
        own.is_some_and(|own| {
            other.start < own.start
                && address.saturating_sub(other.start + other.size) < own.start - address
        })
    };
    other.filter(is_nearer).or(own)
}

fn describe_block(address: u64, block: &Block, text: &mut String) {
    let (start, size) = (block.start, block.size);
    let place = match () {
        () if address < start => format!("{} bytes before", start - address),
        () if address < start + size => format!("{} bytes inside", address - start),
        () => format!("{} bytes after", address - start - size),
    };
    let state = match block.state {
        State::Freed => "free'd",
        _ => "alloc'd",
    };
    let _ = writeln!(
        text,
        " Address {address:#x} is {place} a block of size {size} {state}"
    );
    if block.state == State::Freed {
        write_stack(block.freed, text);
        let _ = writeln!(text, " Block was alloc'd at");
    }
    write_stack(block.allocated, text);
}
