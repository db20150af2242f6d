//! Typed calls: a routine's handle, and what fits its parameters.

use std::ffi::c_char;
use std::marker::PhantomData;

use atom_abi::host::{self, ArgKind, Reg};

use crate::params::{Array, Element, Param, Params, RegV, Str, Value};

/// Handle of an analysis routine with parameters `P`, a tuple of types.
/// [`#[analysis]`](crate::analysis) makes it.
pub struct Routine<P> {
    address: *const (),
    name: &'static str,
    parameters: PhantomData<fn(P)>,
}

impl<P> Clone for Routine<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Routine<P> {}

// SAFETY: the address of code.
unsafe impl<P> Send for Routine<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Routine<P> {}

impl<P> Routine<P> {
    /// The routine's name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    pub(crate) const fn address(self) -> *const () {
        self.address
    }
}

/// What names a routine with parameters `P`: its handle, or the function that
/// [`#[analysis]`](crate::analysis) leaves under the routine's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an analysis routine",
    note = "mark the function with `#[analysis]` and pass its name"
)]
pub trait AsRoutine<P> {
    /// The handle.
    fn as_routine(&self) -> Routine<P>;
}

impl<P> AsRoutine<P> for Routine<P> {
    fn as_routine(&self) -> Routine<P> {
        *self
    }
}

impl<P, F: Fn() -> Routine<P>> AsRoutine<P> for F {
    fn as_routine(&self) -> Routine<P> {
        self()
    }
}

/// A handle from an address.
///
/// # Safety
/// `address` must be that of an `extern "C"` function with parameters `P`.
#[doc(hidden)]
pub const unsafe fn routine<P: Params>(address: *const (), name: &'static str) -> Routine<P> {
    Routine {
        address,
        name,
        parameters: PhantomData,
    }
}

/// Stands for "non-zero if the conditional branch will be taken, else 0".
/// Fits only before a conditional branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrCondValue;

/// Stands for the effective address of the instruction's memory operand.
/// Fits only before an instruction that accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EffAddrValue;

/// An argument that fits a parameter of type `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument for a parameter of type `{P}`",
    note = "an integer must have the parameter's own type; `Value` takes `BrCondValue` and `EffAddrValue`, `RegV` takes a `Reg`"
)]
pub trait Arg<P: Param> {
    /// As it crosses the border. Borrows from `self`.
    #[doc(hidden)]
    fn to_host(&self) -> host::Arg;
}

pub(crate) fn constant(value: u64) -> host::Arg {
    host::Arg {
        kind: ArgKind::Const,
        elem_size: 0,
        value,
        ptr: std::ptr::null(),
    }
}

pub(crate) fn computed(kind: ArgKind, value: u64) -> host::Arg {
    host::Arg {
        kind,
        elem_size: 0,
        value,
        ptr: std::ptr::null(),
    }
}

pub(crate) fn string(kind: ArgKind, text: &str) -> host::Arg {
    host::Arg {
        kind,
        elem_size: 0,
        value: text.len() as u64,
        ptr: text.as_ptr(),
    }
}

pub(crate) fn array<T: Element>(kind: ArgKind, elements: &[T]) -> host::Arg {
    host::Arg {
        kind,
        elem_size: size_of::<T>() as u32,
        value: elements.len() as u64,
        ptr: elements.as_ptr().cast(),
    }
}

macro_rules! integers {
    ($($type:ty as $wide:ty;)*) => {$(
        impl Arg<$type> for $type {
            fn to_host(&self) -> host::Arg {
                constant(*self as $wide as u64)
            }
        }
    )*};
}
// Signed types are extended by their sign first.
integers! {
    u8 as u64; u16 as u64; u32 as u64; u64 as u64; usize as u64; bool as u64;
    i8 as i64; i16 as i64; i32 as i64; i64 as i64; isize as i64;
}

macro_rules! computed {
    ($($param:ty, $arg:ty => $kind:ident;)*) => {$(
        impl Arg<$param> for $arg {
            fn to_host(&self) -> host::Arg {
                computed(ArgKind::$kind, 0)
            }
        }
    )*};
}
computed! {
    Value, BrCondValue => BrCondValue;
    Value, EffAddrValue => EffAddrValue;
    u64, BrCondValue => BrCondValue;
    u64, EffAddrValue => EffAddrValue;
}

impl Arg<RegV> for Reg {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Regv, *self as u64)
    }
}

impl Arg<u64> for Reg {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Regv, *self as u64)
    }
}

impl<S: AsRef<str> + ?Sized> Arg<Str> for &S {
    fn to_host(&self) -> host::Arg {
        string(ArgKind::Str, (*self).as_ref())
    }
}

impl Arg<Str> for String {
    fn to_host(&self) -> host::Arg {
        string(ArgKind::Str, self)
    }
}

impl<S: AsRef<str> + ?Sized> Arg<*const c_char> for &S {
    fn to_host(&self) -> host::Arg {
        string(ArgKind::CStr, (*self).as_ref())
    }
}

impl<T: Element, A: AsRef<[T]> + ?Sized> Arg<Array<T>> for &A {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, (*self).as_ref())
    }
}

impl<T: Element> Arg<Array<T>> for Vec<T> {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, self)
    }
}

/// Arguments, as a tuple, that fit parameters `P`, a tuple of types.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not fit a routine with parameters `{P}`",
    note = "arguments are a tuple, also a single one: `(a,)`"
)]
pub trait ArgList<P: Params> {
    /// Calls `then` with the arguments as they cross the border.
    #[doc(hidden)]
    fn with_host<R>(&self, then: impl FnOnce(&[host::Arg]) -> R) -> R;
}

macro_rules! arg_list {
    ($($arg:ident $param:ident $index:tt)*) => {
        impl<$($arg: Arg<$param>, $param: Param),*> ArgList<($($param,)*)> for ($($arg,)*) {
            fn with_host<R>(&self, then: impl FnOnce(&[host::Arg]) -> R) -> R {
                then(&[$(self.$index.to_host()),*])
            }
        }
    };
}
arg_list!();
arg_list!(A P 0);
arg_list!(A P 0 B Q 1);
arg_list!(A P 0 B Q 1 C R_ 2);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6 H W 7);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6 H W 7 I X 8);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6 H W 7 I X 8 J Y 9);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6 H W 7 I X 8 J Y 9 K Z 10);
arg_list!(A P 0 B Q 1 C R_ 2 D S 3 E T 4 F U 5 G V 6 H W 7 I X 8 J Y 9 K Z 10 L O 11);
