//! Memory and string primitives.
//!
//! The compiler may turn any loop that copies, fills or measures memory into a
//! call of `memcpy`, `memset` or `strlen`; here that would be a call to itself
//! without end. So bulk work is one string instruction in assembly, small sizes
//! are fixed-size unaligned accesses, and byte loops read through `volatile`.
//!
//! ABI: the direction flag is clear on entry to every C function.

use core::arch::asm;
use core::ffi::c_char;
use core::ptr;

/// Reads a value at any address.
///
/// # Safety
/// The bytes are readable.
#[inline(always)]
unsafe fn load<T: Copy>(p: *const u8) -> T {
    // SAFETY: the caller's promise.
    unsafe { p.cast::<T>().read_unaligned() }
}

/// Writes a value at any address.
///
/// # Safety
/// The bytes are writable.
#[inline(always)]
unsafe fn store<T: Copy>(p: *mut u8, v: T) {
    // SAFETY: the caller's promise.
    unsafe { p.cast::<T>().write_unaligned(v) }
}

/// Copies up to 32 bytes, overlapping or not: all is loaded before any is stored.
///
/// # Safety
/// `n` is at most 32; the ranges are valid.
#[inline(always)]
unsafe fn copy_small(d: *mut u8, s: *const u8, n: usize) {
    // SAFETY: the two or four accesses cover exactly n bytes in each case.
    unsafe {
        if n >= 16 {
            let (a, b): (u64, u64) = (load(s), load(s.add(8)));
            let (y, z): (u64, u64) = (load(s.add(n - 16)), load(s.add(n - 8)));
            store(d, a);
            store(d.add(8), b);
            store(d.add(n - 16), y);
            store(d.add(n - 8), z);
        } else if n >= 8 {
            let (a, z): (u64, u64) = (load(s), load(s.add(n - 8)));
            store(d, a);
            store(d.add(n - 8), z);
        } else if n >= 4 {
            let (a, z): (u32, u32) = (load(s), load(s.add(n - 4)));
            store(d, a);
            store(d.add(n - 4), z);
        } else if n >= 2 {
            let (a, z): (u16, u16) = (load(s), load(s.add(n - 2)));
            store(d, a);
            store(d.add(n - 2), z);
        } else if n == 1 {
            store(d, load::<u8>(s));
        }
    }
}

pub(crate) unsafe extern "C" fn memcpy(d: *mut u8, s: *const u8, n: usize) -> *mut u8 {
    // SAFETY: C's contract: both ranges are valid and do not overlap.
    unsafe {
        if n <= 32 {
            copy_small(d, s, n);
        } else {
            asm!("rep movsb", inout("rcx") n => _, inout("rdi") d => _, inout("rsi") s => _,
                 options(nostack, preserves_flags));
        }
    }
    d
}

pub(crate) unsafe extern "C" fn memmove(d: *mut u8, s: *const u8, n: usize) -> *mut u8 {
    // SAFETY: C's contract: both ranges are valid.
    unsafe {
        if n <= 32 {
            copy_small(d, s, n);
        } else if (d as usize).wrapping_sub(s as usize) >= n {
            asm!("rep movsb", inout("rcx") n => _, inout("rdi") d => _, inout("rsi") s => _,
                 options(nostack, preserves_flags));
        } else {
            // The destination starts inside the source: from the end, in words,
            // so that no byte is overwritten before it has been read.
            let mut left = n;
            while left >= 8 {
                left -= 8;
                let v = s.add(left).cast::<u64>().read_unaligned();
                // A volatile store cannot become a call of memmove.
                split_store(d.add(left), v);
            }
            copy_small(d, s, left);
        }
    }
    d
}

/// An eight-byte store that the compiler must keep as it is.
///
/// # Safety
/// The bytes are writable.
#[inline(always)]
unsafe fn split_store(d: *mut u8, v: u64) {
    // SAFETY: the caller's promise; assembly because a volatile write must be aligned.
    unsafe { asm!("mov [{}], {}", in(reg) d, in(reg) v, options(nostack, preserves_flags)) }
}

pub(crate) unsafe extern "C" fn memset(d: *mut u8, c: i32, n: usize) -> *mut u8 {
    let word = u64::from(c as u8) * 0x0101_0101_0101_0101;
    // SAFETY: C's contract: the range is valid; the stores stay within it.
    unsafe {
        if n > 32 {
            asm!("rep stosb", inout("rcx") n => _, inout("rdi") d => _, in("al") c as u8,
                 options(nostack, preserves_flags));
        } else if n >= 16 {
            store(d, word);
            store(d.add(8), word);
            store(d.add(n - 16), word);
            store(d.add(n - 8), word);
        } else if n >= 8 {
            store(d, word);
            store(d.add(n - 8), word);
        } else if n >= 4 {
            store(d, word as u32);
            store(d.add(n - 4), word as u32);
        } else if n >= 2 {
            store(d, word as u16);
            store(d.add(n - 2), word as u16);
        } else if n == 1 {
            store(d, c as u8);
        }
    }
    d
}

pub(crate) unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut i = 0;
    // SAFETY: C's contract: n bytes are readable at both.
    unsafe {
        while n - i >= 8 {
            let (x, y): (u64, u64) = (load(a.add(i)), load(b.add(i)));
            if x != y {
                return if x.swap_bytes() < y.swap_bytes() {
                    -1
                } else {
                    1
                };
            }
            i += 8;
        }
        while i < n {
            let (x, y) = (a.add(i).read_volatile(), b.add(i).read_volatile());
            if x != y {
                return i32::from(x) - i32::from(y);
            }
            i += 1;
        }
    }
    0
}

pub(crate) unsafe extern "C" fn memchr(p: *const u8, c: i32, n: usize) -> *const u8 {
    for i in 0..n {
        // SAFETY: C's contract: readable up to the first match or n.
        unsafe {
            if p.add(i).read_volatile() == c as u8 {
                return p.add(i);
            }
        }
    }
    ptr::null()
}

pub(crate) unsafe extern "C" fn memrchr(p: *const u8, c: i32, n: usize) -> *const u8 {
    for i in (0..n).rev() {
        // SAFETY: C's contract: n bytes are readable.
        unsafe {
            if p.add(i).read_volatile() == c as u8 {
                return p.add(i);
            }
        }
    }
    ptr::null()
}

pub(crate) unsafe extern "C" fn strlen(s: *const c_char) -> usize {
    let mut n = 0;
    // SAFETY: C's contract: a null ends the string.
    unsafe {
        while s.add(n).read_volatile() != 0 {
            n += 1;
        }
    }
    n
}

/// The bytes of a string, without the null.
///
/// # Safety
/// A null ends the string, which lives as long as the result is used.
pub(crate) unsafe fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(string.cast(), strlen(string)) }
}

pub(crate) unsafe extern "C" fn strnlen(s: *const c_char, max: usize) -> usize {
    let mut n = 0;
    // SAFETY: C's contract: readable up to a null or `max`.
    unsafe {
        while n < max && s.add(n).read_volatile() != 0 {
            n += 1;
        }
    }
    n
}

pub(crate) unsafe extern "C" fn strcmp(a: *const c_char, b: *const c_char) -> i32 {
    // SAFETY: C's contract; stops at the first difference or null.
    unsafe { strncmp(a, b, usize::MAX) }
}

pub(crate) unsafe extern "C" fn strncmp(a: *const c_char, b: *const c_char, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: C's contract; stops at the first difference or null.
        let (x, y) = unsafe {
            (
                a.add(i).read_volatile() as u8,
                b.add(i).read_volatile() as u8,
            )
        };
        if x != y || x == 0 {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size around the borders between methods, at every small alignment,
    /// against the standard library's answer, with guard bytes.
    #[test]
    fn copies_and_fills() {
        let source: Vec<u8> = (0..600u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for n in (0..70).chain([127, 128, 129, 500]) {
            for a in 0..9 {
                for b in 0..9 {
                    let mut got = vec![0xAA; 600];
                    let mut want = got.clone();
                    want[b..b + n].copy_from_slice(&source[a..a + n]);
                    unsafe { memcpy(got[b..].as_mut_ptr(), source[a..].as_ptr(), n) };
                    assert_eq!(got, want, "memcpy {n} {a} {b}");

                    let mut got = source.clone();
                    let mut want = got.clone();
                    want.copy_within(a..a + n, b);
                    let p = got.as_mut_ptr();
                    unsafe { memmove(p.add(b), p.add(a), n) };
                    assert_eq!(got, want, "memmove {n} {a} {b}");

                    let mut got = source.clone();
                    let mut want = got.clone();
                    want[b..b + n].fill(0x5C);
                    unsafe { memset(got[b..].as_mut_ptr(), 0x15C, n) };
                    assert_eq!(got, want, "memset {n} {b}");
                }
            }
        }
    }

    #[test]
    fn compares_and_finds() {
        let a: Vec<u8> = (0..100).collect();
        for i in 0..100 {
            let mut b = a.clone();
            b[i] ^= 0x80;
            let (p, q) = (a.as_ptr(), b.as_ptr());
            let sign = a.cmp(&b) as i32;
            assert_eq!(unsafe { memcmp(p, q, 100) }.signum(), sign);
            assert_eq!(unsafe { memcmp(q, p, 100) }.signum(), -sign);
            assert_eq!(unsafe { memcmp(p, q, i) }, 0);
            assert_eq!(unsafe { memchr(p, i as i32, 100) }, unsafe { p.add(i) });
            assert_eq!(unsafe { memrchr(p, i as i32, 100) }, unsafe { p.add(i) });
            assert!(unsafe { memchr(p, i as i32, i) }.is_null());
        }
        assert_eq!(unsafe { strlen(c"abc".as_ptr()) }, 3);
        assert_eq!(unsafe { strnlen(c"abc".as_ptr(), 2) }, 2);
        assert!(unsafe { strcmp(c"abc".as_ptr(), c"abd".as_ptr()) } < 0);
        assert_eq!(unsafe { strncmp(c"abc".as_ptr(), c"abd".as_ptr(), 2) }, 0);
    }
}
