//! Parameter types of analysis routines.
//!
//! ABI: every parameter is one eightbyte of class INTEGER in the C calling
//! convention, so `atom` can pass each of them in a general register or a stack slot without
//! knowing its type. Integers are extended to 64 bits according to their signedness. Strings and
//! arrays are pointers to records that are in the instrumented program as long as it runs.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::ops::Deref;

use atom_abi::{ArrayRecord, StrRecord};

/// A type that an analysis routine can take.
///
/// # Safety
/// The C calling convention must pass the type as one 64-bit integer, and `CODE` must be the
/// code of the type whose representation it has.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of an analysis routine",
    note = "parameters are integers, `bool`, `Value`, `RegV`, `Str`, `Strings`, `Array<T>`, `Record<T>`, `Counter`, `Counters`, `PerThread`, `ThreadRow` and `AllThreads`"
)]
pub unsafe trait Param: Copy + 'static {
    /// Code of the type, for checking prototypes; see [`code`].
    #[doc(hidden)]
    const CODE: u8;
}

/// Codes of parameter types: the kind, plus 16 times the binary logarithm of
/// the size in bytes of the integer or of the array's element.
pub(crate) mod code {
    pub const INT: u8 = 1;
    pub const VALUE: u8 = 2;
    pub const REGV: u8 = 3;
    pub const STR: u8 = 4;
    pub const C_POINTER: u8 = 5;
    pub const ARRAY: u8 = 6;
    pub const OTHER: u8 = 7;
    pub const SIGNED: u8 = 8;

    pub const fn sized(kind: u8, size: usize) -> u8 {
        kind | (size.ilog2() as u8) << 4
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        // SAFETY: the C calling convention passes integers in this way.
        unsafe impl Param for $type {
            const CODE: u8 = {
                let kind = if <$type>::MIN == 0 { code::INT } else { code::SIGNED };
                code::sized(kind, size_of::<$type>())
            };
        }
    )*};
}
integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

// SAFETY: it is passed as a byte of 0 or 1, and only such constants are arguments for it.
unsafe impl Param for bool {
    const CODE: u8 = code::OTHER;
}

macro_rules! pointers {
    ($($type:ty)*) => {$(
        // SAFETY: pointers are passed as 64-bit integers.
        unsafe impl Param for *const $type {
            const CODE: u8 = code::sized(code::C_POINTER, size_of::<$type>());
        }
    )*};
}
// Null-terminated strings (`char*`), and arrays without their length.
pointers!(c_char u8 i16 u16 i32 u32 i64 u64);

/// A value that is known only when the program runs: whether a branch is
/// taken, or an effective address.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value(pub u64);

impl Value {
    /// True if it is not 0: the branch will be taken.
    #[inline(always)]
    pub const fn is_true(self) -> bool {
        self.0 != 0
    }
}

// SAFETY: transparent over u64.
unsafe impl Param for Value {
    const CODE: u8 = code::VALUE;
}

/// The contents of a register at the point of the call.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegV(pub u64);

// SAFETY: transparent over u64.
unsafe impl Param for RegV {
    const CODE: u8 = code::REGV;
}

/// What a routine decides that changes the program. The argument is [`OutcomeValue`](crate::OutcomeValue) in place of a
/// procedure (see [`Proc::replace`](crate::Proc::replace)), and [`OutcomeFor`](crate::OutcomeFor) a register at an instruction.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Outcome(*mut [u64; 2]);

// SAFETY: transparent over a pointer.
unsafe impl Param for Outcome {
    const CODE: u8 = code::OTHER;
}

impl Outcome {
    /// The procedure returns `result` to its caller without having run, or the register gets it. Without this call nothing
    /// changes.
    pub fn returns(self, result: u64) {
        // SAFETY: only `atom` makes values of this type. They lead to two words of the point's stack, which nothing else
        // accesses while the routine runs.
        unsafe { *self.0 = [1, result] };
    }
}

/// A string argument; use it as a `&'static str`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Str(*const StrRecord);

// SAFETY: transparent over a pointer.
unsafe impl Param for Str {
    const CODE: u8 = code::STR;
}

// SAFETY: the record and the bytes are never written.
unsafe impl Send for Str {}
// SAFETY: as above.
unsafe impl Sync for Str {}

impl Str {
    /// The string.
    pub fn as_str(self) -> &'static str {
        // SAFETY: only `atom` makes values of this type. They point to a record of a string that
        // the tool passed as `&str`.
        unsafe {
            let record = &*self.0;
            std::str::from_utf8_unchecked(std::slice::from_raw_parts(record.ptr, record.len))
        }
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl std::fmt::Display for Str {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// What arrays and [`Record`](crate::Record)s may consist of: numbers, `bool`, arrays of
/// these, and what [`plain_data!`](crate::plain_data) defines.
///
/// # Safety
/// Plain data without padding and without pointers: its bytes are copied into
/// the instrumented program. The alignment must not exceed 16.
pub unsafe trait Element: Copy + 'static {}

macro_rules! elements {
    ($($type:ty)*) => {$(
        // SAFETY: plain data.
        unsafe impl Element for $type {}
    )*};
}
elements!(bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);
// SAFETY: arrays of plain data are plain data.
unsafe impl<T: Element, const N: usize> Element for [T; N] {}

/// An array argument; use it as a `&'static [T]`.
#[repr(transparent)]
pub struct Array<T> {
    record: *const ArrayRecord,
    element: PhantomData<T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<T> {}

// SAFETY: transparent over a pointer.
unsafe impl<T: Element> Param for Array<T> {
    const CODE: u8 = if size_of::<T>().is_power_of_two() && size_of::<T>() <= 8 {
        code::sized(code::ARRAY, size_of::<T>())
    } else {
        code::OTHER
    };
}

// SAFETY: the record and the elements are never written.
unsafe impl<T: Element> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Array<T> {}

impl<T: Element> Array<T> {
    /// The elements.
    pub fn as_slice(self) -> &'static [T] {
        // SAFETY: only `atom` makes values of this type. They point to a record of an array that
        // the tool passed as `&[T]`.
        unsafe {
            let record = &*self.record;
            std::slice::from_raw_parts(record.ptr.cast(), record.len)
        }
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

/// Most parameters that a typed handle can have.
pub(crate) const MAX_PARAMS: usize = 12;

/// The parameter types of a routine, exported beside it as `atom_params_NAME`
/// so that calls by name can be checked.
#[doc(hidden)]
#[repr(C)]
pub struct ParamList {
    pub(crate) count: u32,
    pub(crate) codes: [u8; MAX_PARAMS],
}

impl ParamList {
    /// The list of a tuple's types.
    pub const fn of<P: Params>() -> Self {
        P::LIST
    }
}

/// Parameter lists: tuples of [`Param`]s.
pub trait Params: 'static {
    /// Codes of the types.
    #[doc(hidden)]
    const LIST: ParamList;
}

macro_rules! params {
    ($($name:ident)*) => {
        impl<$($name: Param),*> Params for ($($name,)*) {
            const LIST: ParamList = {
                let given: &[u8] = &[$($name::CODE),*];
                let mut codes = [0; MAX_PARAMS];
                let mut i = 0;
                while i < given.len() {
                    codes[i] = given[i];
                    i += 1;
                }
                ParamList { count: given.len() as u32, codes }
            };
        }
    };
}
params!();
params!(A);
params!(A B);
params!(A B C);
params!(A B C D);
params!(A B C D E);
params!(A B C D E F);
params!(A B C D E F G);
params!(A B C D E F G H);
params!(A B C D E F G H I);
params!(A B C D E F G H I J);
params!(A B C D E F G H I J K);
params!(A B C D E F G H I J K L);
