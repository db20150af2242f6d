//! Kinds of characters, in C's own locale.

use std::ffi::c_int;

macro_rules! kinds {
    ($($name:ident => $is:expr;)*) => {$(
        pub extern "C" fn $name(c: c_int) -> c_int {
            let is: fn(u8) -> bool = $is;
            u8::try_from(c).is_ok_and(is).into()
        }
    )*};
}

kinds! {
    isalpha => |c| c.is_ascii_alphabetic();
    isdigit => |c| c.is_ascii_digit();
    isalnum => |c| c.is_ascii_alphanumeric();
    isspace => is_space;
    isupper => |c| c.is_ascii_uppercase();
    islower => |c| c.is_ascii_lowercase();
    isxdigit => |c| c.is_ascii_hexdigit();
    ispunct => |c| c.is_ascii_punctuation();
    iscntrl => |c| c.is_ascii_control();
    isgraph => |c| c.is_ascii_graphic();
    isprint => |c| c.is_ascii_graphic() || c == b' ';
    isblank => |c| c == b' ' || c == b'\t';
    isascii => |c| c.is_ascii();
}

/// True for white space, which includes the vertical tabulator.
pub fn is_space(c: u8) -> bool {
    c.is_ascii_whitespace() || c == 0x0b
}

pub extern "C" fn toupper(c: c_int) -> c_int {
    u8::try_from(c).map_or(c, |c| c.to_ascii_uppercase().into())
}

pub extern "C" fn tolower(c: c_int) -> c_int {
    u8::try_from(c).map_or(c, |c| c.to_ascii_lowercase().into())
}

/// Entries of the tables that the macros of `<ctype.h>` read: for -128 to 255.
const ENTRIES: usize = 384;

/// A table, and the address of its entry for 0.
#[repr(transparent)]
pub struct Zero<T>(*const T);

// SAFETY: the pointer leads into an immutable static.
unsafe impl<T> Sync for Zero<T> {}

/// Bits of a character in the table, as `<ctype.h>` numbers them.
const fn bits(c: u8) -> u16 {
    const KINDS: [u32; 12] = [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3];
    let is = [
        c.is_ascii_uppercase(),
        c.is_ascii_lowercase(),
        c.is_ascii_alphabetic(),
        c.is_ascii_digit(),
        c.is_ascii_hexdigit(),
        c.is_ascii_whitespace() || c == 0x0b,
        c.is_ascii_graphic() || c == b' ',
        c.is_ascii_graphic(),
        c == b' ' || c == b'\t',
        c.is_ascii_control(),
        c.is_ascii_punctuation(),
        c.is_ascii_alphanumeric(),
    ];
    let (mut bits, mut i) = (0, 0);
    while i < KINDS.len() {
        bits |= (is[i] as u16) << KINDS[i];
        i += 1;
    }
    bits
}

static KINDS: [u16; ENTRIES] = {
    let (mut table, mut c) = ([0; ENTRIES], 0);
    while c < 128 {
        table[128 + c] = bits(c as u8);
        c += 1;
    }
    table
};

static UPPER: [i32; ENTRIES] = cases(true);
static LOWER: [i32; ENTRIES] = cases(false);

const fn cases(is_upper: bool) -> [i32; ENTRIES] {
    let (mut table, mut i) = ([0; ENTRIES], 0);
    while i < ENTRIES {
        let c = i as i32 - 128;
        table[i] = match c {
            0..128 if is_upper => (c as u8).to_ascii_uppercase() as i32,
            0..128 => (c as u8).to_ascii_lowercase() as i32,
            _ => c,
        };
        i += 1;
    }
    table
}

static KINDS_AT: Zero<u16> = Zero(&raw const KINDS[128]);
static UPPER_AT: Zero<i32> = Zero(&raw const UPPER[128]);
static LOWER_AT: Zero<i32> = Zero(&raw const LOWER[128]);

pub extern "C" fn kinds() -> *const Zero<u16> {
    &raw const KINDS_AT
}

pub extern "C" fn upper() -> *const Zero<i32> {
    &raw const UPPER_AT
}

pub extern "C" fn lower() -> *const Zero<i32> {
    &raw const LOWER_AT
}
