//! Shadow memory: one byte for 8 bytes of the process, at a fixed distance.
//!
//! The value 0 says that all 8 bytes are addressable, and N from 1 to 7 that the first N bytes are. A negative value says that
//! no byte is.

use atom_tool::Uninterrupted;
use std::ffi::{c_int, c_long, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Address of the shadow of address 0.
pub const OFFSET: u64 = 0x7fff_8000;
/// Beside a block.
pub const REDZONE: u8 = 0xfa;
/// Of a block that was freed.
pub const FREED: u8 = 0xfd;

/// Of the first pages.
const NULL: u8 = 0xfe;
/// End of the addresses at which the kernel maps nothing for a program, so that a null pointer to a structure faults.
const NULL_END: u64 = 1 << 16;

/// First address of the shadow that is above the tool's code and data, and the end.
const SPAN: [u64; 2] = [0x8000_0000, 0x1000_7fff_8000];
const PAGE: u64 = 4096;
/// First address of which the shadow may be changed, and the end of all.
const FIRST: u64 = (SPAN[0] - OFFSET) << 3;
pub const END: u64 = 1 << 47;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, how: c_int, fd: c_int, from: c_long)
    -> isize;
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int;
}

const READ_WRITE: c_int = 3;
/// Private, anonymous, without reserved swap space, at this address if nothing is there.
const HOW: c_int = 0x2 | 0x20 | 0x4000 | 0x10_0000;
const DONTNEED: c_int = 4;
const NOHUGEPAGE: c_int = 15;
const DONTDUMP: c_int = 16;

/// Maps memory at these addresses; false if something is there already, or if there is none.
pub fn map(start: u64, len: u64) -> bool {
    let at = with_exposed_provenance_mut::<c_void>(start as usize);
    // SAFETY: it replaces nothing.
    unsafe {
        if mmap(at, len as usize, READ_WRITE, HOW, -1, 0) != start as isize {
            return false;
        }
        madvise(at, len as usize, NOHUGEPAGE);
        madvise(at, len as usize, DONTDUMP);
    }
    true
}

/// Gives the pages between two addresses back to the kernel. They are zeros afterwards.
#[cold]
#[inline(never)]
pub fn give_back(start: u64, end: u64) {
    let (start, end) = (start.next_multiple_of(PAGE), end & !(PAGE - 1));
    if start < end {
        let at = with_exposed_provenance_mut::<c_void>(start as usize);
        // SAFETY: pages of a block that was freed.
        Uninterrupted::run(|_| unsafe { madvise(at, (end - start) as usize, DONTNEED) });
    }
}

/// Maps the shadow.
pub fn begin() -> bool {
    // The shadow of the first pages, which no program maps, may be where the tool's own data is.
    let end_of_null = OFFSET + NULL_END / 8;
    let mut is_null_mapped = true;
    for page in (OFFSET..SPAN[0]).step_by(PAGE as usize) {
        is_null_mapped &= map(page, PAGE) || page >= end_of_null;
    }
    if is_null_mapped {
        set(0, NULL_END, NULL);
    }
    map(SPAN[0], SPAN[1] - SPAN[0])
}

/// True for a null pointer, and for a place in what it would point to.
pub fn is_null(address: u64) -> bool {
    address < NULL_END
}

fn at(address: u64) -> *mut u8 {
    with_exposed_provenance_mut(((address >> 3) + OFFSET) as usize)
}

/// Sets the shadow between two addresses, the first of which is a multiple of 8.
pub fn set(start: u64, end: u64, value: u8) {
    // SAFETY: the shadow is mapped as a whole.
    unsafe { at(start).write_bytes(value, (end.saturating_sub(start)).div_ceil(8) as usize) }
}

/// Makes a block addressable; the redzone after it is set already.
pub fn open(start: u64, size: u64) {
    set(start, start + (size & !7), 0);
    if !size.is_multiple_of(8) {
        // SAFETY: as above.
        unsafe { *at(start + (size & !7)) = (size % 8) as u8 };
    }
}

/// Makes all bytes between two addresses addressable (with the value 0), or none. Where a byte that is not addressable comes
/// before one that is in the same eight, all of these are addressable.
pub fn change(start: u64, end: u64, value: u8) {
    let (start, end) = (start.max(FIRST), end.min(END));
    let mut address = start;
    while address < end {
        let first = address & !7;
        if address == first && end - first >= 8 {
            address = end & !7;
            set(first, address, value);
            continue;
        }
        let (from, to) = ((address - first) as u8, (end - first).min(8) as u8);
        // SAFETY: the shadow is mapped as a whole.
        let shadow = unsafe { &mut *at(first) };
        let is_open = match *shadow {
            0 => 8,
            count @ 1..8 => count,
            _ => 0,
        };
        let count = match value {
            0 => is_open.max(to),
            _ if to >= is_open => is_open.min(from),
            _ => is_open,
        };
        *shadow = match count {
            0 if value == 0 => *shadow,
            0 => value,
            8 => 0,
            count => count,
        };
        address = first + 8;
    }
}

/// True if a byte is addressable.
pub fn is_open(address: u64) -> bool {
    // SAFETY: as above.
    let shadow = unsafe { *with_exposed_provenance::<i8>(((address >> 3) + OFFSET) as usize) };
    shadow == 0 || ((address & 7) as i8) < shadow
}

/// True if the eight bytes from a multiple of 8 on are addressable.
#[inline]
pub fn is_whole(address: u64) -> bool {
    // SAFETY: as above.
    unsafe { *at(address) == 0 }
}

/// True if a range that is not empty is addressable.
#[inline]
pub fn is_range_open(start: u64, len: u64) -> bool {
    let Some(last) = start.checked_add(len - 1) else {
        return false;
    };
    if !is_open(last) {
        return false;
    }
    let (mut place, end) = (start >> 3, last >> 3);
    while place < end {
        let shadow = with_exposed_provenance::<u8>((place + OFFSET) as usize);
        // SAFETY: as above.
        let step = unsafe {
            if end - place >= 8 {
                if shadow.cast::<u64>().read_unaligned() != 0 {
                    return false;
                }
                8
            } else {
                if *shadow != 0 {
                    return false;
                }
                1
            }
        };
        place += step;
    }
    true
}

/// The first byte of a range that is not addressable.
pub fn first_closed(start: u64, len: u64) -> Option<u64> {
    let end = start.checked_add(len)?;
    let mut address = start;
    while address < end {
        // SAFETY: as above.
        let shadow = unsafe { *at(address) };
        if shadow != 0 && !is_open(address) {
            return Some(address);
        }
        address = if shadow == 0 {
            (address | 7) + 1
        } else {
            address + 1
        };
    }
    None
}
