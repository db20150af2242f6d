//! The functions of `<stdlib.h>`, `<assert.h>` and `<time.h>` that the runtime does not have.
//!
//! SAFETY of all of them: C's contract.

use std::cmp::Ordering as Order;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::ctype::is_space;
use super::{float, set_errno};
use crate::varargs::bytes;

unsafe extern "C" {
    fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn exit(code: c_int) -> !;
    fn abort() -> !;
    fn clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int;
}

/// A number in a text: its magnitude, whether it is negative, whether it is too large, and the number of bytes
/// that it takes, 0 without a number.
pub struct Number {
    pub magnitude: u64,
    pub is_negative: bool,
    pub is_too_large: bool,
    pub length: usize,
}

/// Reads a number, by a base of 2 to 36, or 0 for the base that the number's prefix names.
pub fn number(text: &[u8], base: u32) -> Number {
    let space = text.iter().take_while(|b| is_space(**b)).count();
    let (is_negative, sign) = match text.get(space) {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let start = space + sign;
    let digit = |i: usize, base: u32| {
        let digit = text.get(i).and_then(|b| (*b as char).to_digit(36));
        digit.filter(|d| *d < base)
    };
    let has_mark = matches!(text.get(start..start + 2), Some(b"0x" | b"0X"));
    let is_hexadecimal = has_mark && matches!(base, 0 | 16) && digit(start + 2, 16).is_some();
    let (base, first) = match base {
        _ if is_hexadecimal => (16, start + 2),
        0 if text.get(start) == Some(&b'0') => (8, start),
        0 => (10, start),
        _ => (base, start),
    };
    let (mut magnitude, mut is_too_large, mut at) = (0u64, false, first);
    while let Some(digit) = digit(at, base) {
        let next = magnitude
            .checked_mul(base.into())
            .and_then(|n| n.checked_add(digit.into()));
        is_too_large |= next.is_none();
        magnitude = next.unwrap_or(u64::MAX);
        at += 1;
    }
    Number {
        magnitude,
        is_negative,
        is_too_large,
        length: if at == first { 0 } else { at },
    }
}

impl Number {
    /// As a signed number, at most the largest.
    pub fn signed(&self) -> (i64, bool) {
        let limit = (1u64 << 63) - u64::from(!self.is_negative);
        let is_too_large = self.is_too_large || self.magnitude > limit;
        let magnitude = self.magnitude.min(limit) as i64;
        let value = if self.is_negative {
            magnitude.wrapping_neg()
        } else {
            magnitude
        };
        (value, is_too_large)
    }

    /// As an unsigned number; a negative one wraps around.
    pub fn unsigned(&self) -> u64 {
        if self.is_negative && !self.is_too_large {
            self.magnitude.wrapping_neg()
        } else {
            self.magnitude
        }
    }
}

unsafe fn read(text: *const c_char, end: *mut *mut c_char, base: c_int) -> Number {
    unsafe {
        let number = number(bytes(text), base as u32);
        if !end.is_null() {
            *end = text.add(number.length).cast_mut();
        }
        number
    }
}

pub unsafe extern "C" fn strtol(text: *const c_char, end: *mut *mut c_char, base: c_int) -> c_long {
    let (value, is_too_large) = unsafe { read(text, end, base) }.signed();
    if is_too_large {
        set_errno(libc::ERANGE);
    }
    value
}

pub unsafe extern "C" fn strtoul(text: *const c_char, end: *mut *mut c_char, base: c_int) -> u64 {
    let number = unsafe { read(text, end, base) };
    if number.is_too_large {
        set_errno(libc::ERANGE);
    }
    number.unsigned()
}

/// Reads a floating-point number: `of` makes it of what is found, and says whether it is out of range.
unsafe fn read_float<T>(
    text: *const c_char,
    end: *mut *mut c_char,
    of: impl Fn(&float::Parsed<'_>) -> (T, bool),
) -> T {
    unsafe {
        let all = bytes(text);
        let space = all.iter().take_while(|b| is_space(**b)).count();
        let found = float::parse(&all[space..]);
        if !end.is_null() {
            let taken = match found.length {
                0 => 0,
                length => space + length,
            };
            *end = text.add(taken).cast_mut();
        }
        let (value, is_out_of_range) = of(&found);
        if is_out_of_range {
            set_errno(libc::ERANGE);
        }
        value
    }
}

pub unsafe extern "C" fn strtod(text: *const c_char, end: *mut *mut c_char) -> f64 {
    unsafe { read_float(text, end, |found| found.double()) }
}

pub unsafe extern "C" fn strtof(text: *const c_char, end: *mut *mut c_char) -> f32 {
    unsafe { read_float(text, end, |found| found.single()) }
}

pub unsafe extern "C" fn atol(text: *const c_char) -> c_long {
    unsafe { strtol(text, std::ptr::null_mut(), 10) }
}

pub unsafe extern "C" fn atoi(text: *const c_char) -> c_int {
    unsafe { atol(text) as c_int }
}

pub unsafe extern "C" fn atof(text: *const c_char) -> f64 {
    unsafe { strtod(text, std::ptr::null_mut()) }
}

type Compare = unsafe extern "C" fn(*const u8, *const u8) -> c_int;
type CompareWith = unsafe extern "C" fn(*const u8, *const u8, *mut c_void) -> c_int;

/// The numbers below `n`, merged from runs of 1, 2, 4 and so on. All that is asked is whether one may be in front of
/// another that is after it, as by the system's C library: functions that only tell what is larger are common, and
/// so are ones that are no order at all, of which any result is right.
fn merged(n: usize, may_lead: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut from: Vec<usize> = (0..n).collect();
    let mut length = 1;
    while length < n {
        let mut to = Vec::with_capacity(n);
        for runs in from.chunks(2 * length) {
            let (mut first, mut second) = runs.split_at(length.min(runs.len()));
            while let (Some(a), Some(b)) = (first.first(), second.first()) {
                let taken = if may_lead(*a, *b) {
                    &mut first
                } else {
                    &mut second
                };
                to.push(taken[0]);
                *taken = &taken[1..];
            }
            to.extend_from_slice(first);
            to.extend_from_slice(second);
        }
        from = to;
        length *= 2;
    }
    from
}

/// Sorts by the elements' numbers, then moves the elements: the order of equal ones stays.
unsafe fn sort(
    first: *mut u8,
    n: usize,
    size: usize,
    compare: impl Fn(*const u8, *const u8) -> c_int,
) {
    if n < 2 || size == 0 {
        return;
    }
    // SAFETY: C's contract: `n` elements of `size` bytes.
    let copy = unsafe { std::slice::from_raw_parts(first, n * size) }.to_vec();
    let element = |i: usize| copy[i * size..].as_ptr();
    let order = merged(n, |a, b| compare(element(a), element(b)) <= 0);
    for (to, from) in order.into_iter().enumerate() {
        unsafe {
            first
                .add(to * size)
                .copy_from_nonoverlapping(element(from), size)
        };
    }
}

pub unsafe extern "C" fn qsort(first: *mut u8, n: usize, size: usize, compare: Compare) {
    unsafe { sort(first, n, size, |a, b| compare(a, b)) };
}

pub unsafe extern "C" fn qsort_r(
    first: *mut u8,
    n: usize,
    size: usize,
    compare: CompareWith,
    with: *mut c_void,
) {
    unsafe { sort(first, n, size, |a, b| compare(a, b, with)) };
}

pub unsafe extern "C" fn bsearch(
    key: *const u8,
    first: *const u8,
    n: usize,
    size: usize,
    compare: Compare,
) -> *mut u8 {
    let (mut from, mut to) = (0, n);
    while from < to {
        let middle = from + (to - from) / 2;
        let at = first.wrapping_add(middle * size);
        match unsafe { compare(key, at) }.cmp(&0) {
            Order::Equal => return at.cast_mut(),
            Order::Less => to = middle,
            Order::Greater => from = middle + 1,
        }
    }
    std::ptr::null_mut()
}

pub unsafe extern "C" fn reallocarray(block: *mut c_void, n: usize, size: usize) -> *mut c_void {
    match n.checked_mul(size) {
        Some(total) => unsafe { realloc(block, total) },
        None => {
            set_errno(libc::ENOMEM);
            std::ptr::null_mut()
        }
    }
}

pub extern "C" fn abs(n: c_int) -> c_int {
    n.wrapping_abs()
}

pub extern "C" fn labs(n: c_long) -> c_long {
    n.wrapping_abs()
}

/// C's `div_t`.
#[repr(C)]
pub struct Quotient<T>(T, T);

pub extern "C" fn div(a: c_int, b: c_int) -> Quotient<c_int> {
    Quotient(a / b, a % b)
}

pub extern "C" fn ldiv(a: c_long, b: c_long) -> Quotient<c_long> {
    Quotient(a / b, a % b)
}

/// State of the generator of random numbers.
static SEED: AtomicU64 = AtomicU64::new(1);

/// The next random number of 31 bits.
fn next(seed: u64) -> (u64, c_int) {
    let seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (seed, (seed >> 33) as c_int)
}

pub extern "C" fn rand() -> c_int {
    let (seed, value) = next(SEED.load(Ordering::Relaxed));
    SEED.store(seed, Ordering::Relaxed);
    value
}

pub extern "C" fn random() -> c_long {
    rand().into()
}

pub extern "C" fn srand(seed: c_uint) {
    SEED.store(seed.into(), Ordering::Relaxed);
}

pub unsafe extern "C" fn rand_r(seed: *mut c_uint) -> c_int {
    unsafe {
        let (_, value) = next((*seed).into());
        *seed = value as c_uint;
        value
    }
}

/// Functions of `atexit`, each with its argument.
static AT_EXIT: [[AtomicUsize; 2]; 32] = [const { [const { AtomicUsize::new(0) }; 2] }; 32];
static AT_EXIT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// What `atexit` calls, which the system's C library links into each shared object.
pub extern "C" fn cxa_atexit(
    function: extern "C" fn(*mut c_void),
    argument: usize,
    _object: *mut c_void,
) -> c_int {
    match AT_EXIT.get(AT_EXIT_COUNT.fetch_add(1, Ordering::Relaxed)) {
        Some([place, with]) => {
            with.store(argument, Ordering::Relaxed);
            place.store(function as usize, Ordering::Release);
            0
        }
        None => -1,
    }
}

pub extern "C" fn atexit(function: extern "C" fn(*mut c_void)) -> c_int {
    cxa_atexit(function, 0, std::ptr::null_mut())
}

/// Runs the functions of `atexit`, the last first, each once.
pub fn run_at_exit() {
    for [place, with] in AT_EXIT.iter().rev() {
        let function = place.swap(0, Ordering::AcqRel);
        if function != 0 {
            let argument = std::ptr::with_exposed_provenance_mut(with.load(Ordering::Relaxed));
            // SAFETY: only `cxa_atexit` stores there. A function without a parameter does not look at the argument.
            let function: extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(function) };
            function(argument);
        }
    }
}

pub unsafe extern "C" fn assert_fail(
    what: *const c_char,
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
) -> ! {
    unsafe {
        let [what, file, function] =
            [what, file, function].map(|text| String::from_utf8_lossy(bytes(text)));
        eprintln!("{file}:{line}: {function}: Assertion `{what}' failed.");
        abort()
    }
}

/// For compilers that check the stack; a tool's file that was compiled elsewhere may.
pub unsafe extern "C" fn stack_check_fail() -> ! {
    eprintln!("an analysis routine has written behind the end of an array on its stack");
    unsafe { abort() }
}

pub unsafe extern "C" fn quick_exit(code: c_int) -> ! {
    unsafe { exit(code) }
}

pub extern "C" fn clock() -> c_long {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

pub unsafe extern "C" fn gettimeofday(to: *mut libc::timeval, _zone: *mut c_void) -> c_int {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe {
        clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
        (*to).tv_sec = time.tv_sec;
        (*to).tv_usec = time.tv_nsec / 1000;
    }
    0
}

pub extern "C" fn difftime(a: c_long, b: c_long) -> f64 {
    (a - b) as f64
}

pub extern "C" fn setlocale(_category: c_int, name: *const c_char) -> *const c_char {
    // There is one locale: C's own.
    match unsafe { bytes(name) } {
        b"" | b"C" | b"POSIX" => c"C".as_ptr(),
        _ => std::ptr::null(),
    }
}
