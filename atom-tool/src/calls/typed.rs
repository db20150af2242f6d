//! Typed calls: the handle of a routine, and the arguments that fit its parameters.

use std::ffi::c_char;
use std::marker::PhantomData;

use atom_abi::host::{self, ANY_OPERAND, ArgKind, NO_REGISTER, Reg, SYSTEM_CALL_RESULT};

use crate::calls::params::{Array, Element, Outcome, Param, Params, RegV, Str, Value};

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

// SAFETY: it holds the address of code, which never changes.
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

/// A name of a routine with parameters `P`: its handle, or the function that
/// [`#[analysis]`](crate::analysis) defines under the routine's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an analysis routine",
    note = "mark the function with `#[analysis]` and pass its name"
)]
pub trait AsRoutine<P> {
    /// The handle of the routine.
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

/// Makes a handle from an address.
///
/// # Safety
/// `address` must be the address of an `extern "C"` function with parameters `P`.
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

/// Stands for the effective address of one of the instruction's memory operands. They are
/// counted from 0 in the order of [`Inst::text`](crate::Inst::text); operands that the text does
/// not show (the stack of `push`) come last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EffAddrOf(pub u8);

/// Stands for the number of bytes that the instruction accesses at [`EffAddrValue`]. Of a
/// repeated instruction it is the size of one access (see [`RepCount`]), of a gather or scatter
/// the size of one element, of a masked instruction the size of all elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessSize;

/// As [`AccessSize`], of the memory operand with this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessSizeOf(pub u8);

/// Stands for the value that the instruction reads from memory: its first 64 bits, extended by
/// zeros. Fits before an instruction that reads memory,
/// and after one that moves the value to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadedValue;

/// As [`LoadedValue`], of the memory operand with this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadedValueOf(pub u8);

/// Stands for the value that the instruction writes to memory: its first 64 bits, extended by
/// zeros. Fits before an instruction that only copies
/// the value (`mov`, `push`, `call`), and after one that computes it; ask
/// [`Inst::offers`](crate::Inst::offers).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredValue;

/// As [`StoredValue`], of the memory operand with this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredValueOf(pub u8);

/// Stands for the number of times that a string instruction is to be repeated: `rcx` with a
/// repeat prefix, which may be 0, else 1. `cmps` and `scas` may stop earlier.
/// Fits before an instruction that accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepCount;

/// Stands for the direction flag: all ones if string instructions go to lower addresses, else 0.
/// It costs much less than [`Reg::Flags`], for which inserted code must keep all flags
/// everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direction;

/// Stands for the address that a jump, call or return goes to, if it is taken. It is an address
/// of the original program. Fits before the instruction,
/// and after a jump or return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchTarget;

/// Stands for the value that a procedure returns in `rax`. Fits after a procedure that
/// ends in returns only, and at a return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReturnValue;

/// Stands for an integer or a pointer that is an argument of a procedure, counted from 0, by the System V ABI: the first six are in registers, the others on
/// the stack. Fits before a procedure, and in place of one. Arguments that are floating-point numbers or structures are not counted.
///
/// A routine reads the stack for a seventh argument: ask for it only of a procedure with seven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgumentOf(pub u8);

/// Stands for the address to which a procedure returns, in the original program: that after the call by which it was entered. Fits before a
/// procedure, and in place of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReturnAddress;

/// Stands for the number of a system call. Fits before the instruction `syscall`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCallNumber;

/// Stands for an argument of a system call, 0 to 5. Fits before the instruction `syscall`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCallArgument(pub u8);

/// Stands for the result of a system call; -4095 to -1 are errors. Fits after the instruction `syscall`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCallResult;

/// Stands for the outcome of a call in place of a procedure; see [`Proc::replace`](crate::Proc::replace).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutcomeValue;

impl Arg<Outcome> for OutcomeValue {
    fn to_host(&self) -> host::Arg {
        let (kind, value) = self.kind();
        computed(kind, value)
    }
}

/// Stands for the outcome of a call before or after an instruction: the tool changes the program. If the routine calls
/// [`Outcome::returns`], the general register has that value from here on.
///
/// Other calls at the same place see the register as it is when their turn comes. After an instruction that transfers
/// control to another place than a callee there is no such call, and none that changes `rsp`. Ask
/// [`Inst::offers`](crate::Inst::offers).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutcomeFor(pub Reg);

impl Arg<Outcome> for OutcomeFor {
    fn to_host(&self) -> host::Arg {
        let (kind, value) = self.kind();
        computed(kind, value)
    }
}

/// Stands for the second 64 bits of a vector register; the register itself stands for the first
/// 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HighHalf(pub Reg);

/// Stands for a sum of registers, as an address has it: base + index * scale + displacement. Fits before an instruction,
/// also for the address of another instruction of its block, as long as the registers do not change in between. It costs
/// least where that instruction follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegSum {
    /// A general register.
    pub base: Option<Reg>,
    /// A general register other than rsp, and 1, 2, 4 or 8.
    pub index: Option<(Reg, u8)>,
    /// In bytes.
    pub displacement: i32,
}

/// Stands for the run-time address of the byte at this address of the program's file. A
/// position-independent program is loaded at another address in each run. `ImageAddress(0)` is the
/// load bias: run-time address minus address in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageAddress(pub u64);

/// Types that stand for a value or a register that only the running program knows.
pub trait Computed {
    /// The argument's kind and number, as they cross the border.
    #[doc(hidden)]
    fn kind(&self) -> (ArgKind, u64);
}

/// An argument that fits a parameter of type `P`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument for a parameter of type `{P}`",
    note = "an integer must have the parameter's own type; `Value` takes `BrCondValue`, `EffAddrValue` and their like, `RegV` takes a `Reg`"
)]
pub trait Arg<P: Param> {
    /// The argument as it crosses the border. It borrows from `self`.
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
// Signed types are extended by their sign to 64 bits first.
integers! {
    u8 as u64; u16 as u64; u32 as u64; u64 as u64; usize as u64; bool as u64;
    i8 as i64; i16 as i64; i32 as i64; i64 as i64; isize as i64;
}

/// A function or data that the tool's shared object exports under a C name; found by
/// [`Program::exported`](crate::Program::exported). In calls before and after the
/// program, a parameter of type `usize` gets its run-time address, or 0 for none.
#[derive(Clone, Copy, Debug)]
pub struct Exported(pub(crate) *const ());

impl Arg<usize> for Option<Exported> {
    fn to_host(&self) -> host::Arg {
        match self {
            None => constant(0),
            Some(exported) => host::Arg {
                kind: ArgKind::Exported,
                elem_size: 0,
                value: 0,
                ptr: exported.0.cast(),
            },
        }
    }
}

macro_rules! computed {
    ($($arg:ty => $kind:ident $value:expr;)*) => {$(
        impl Computed for $arg {
            fn kind(&self) -> (ArgKind, u64) {
                let number: fn(&Self) -> u64 = $value;
                (ArgKind::$kind, number(self))
            }
        }

        impl Arg<Value> for $arg {
            fn to_host(&self) -> host::Arg {
                let (kind, value) = self.kind();
                computed(kind, value)
            }
        }

        impl Arg<u64> for $arg {
            fn to_host(&self) -> host::Arg {
                Arg::<Value>::to_host(self)
            }
        }
    )*};
}
computed! {
    BrCondValue => BrCondValue |_| 0;
    EffAddrValue => EffAddrValue |_| 0;
    EffAddrOf => EffAddr |n| n.0.into();
    AccessSize => AccessSize |_| ANY_OPERAND;
    AccessSizeOf => AccessSize |n| n.0.into();
    LoadedValue => LoadedValue |_| ANY_OPERAND;
    LoadedValueOf => LoadedValue |n| n.0.into();
    StoredValue => StoredValue |_| ANY_OPERAND;
    StoredValueOf => StoredValue |n| n.0.into();
    RepCount => RepCount |_| 0;
    Direction => Direction |_| 0;
    RegSum => Sum RegSum::bits;
    BranchTarget => BranchTarget |_| 0;
    ReturnValue => ReturnValue |_| 0;
    ArgumentOf => FunctionArgument |n| n.0.into();
    ReturnAddress => ReturnAddress |_| 0;
    SystemCallNumber => SystemCall |_| 0;
    SystemCallArgument => SystemCall |n| 1 + u64::from(n.0);
    SystemCallResult => SystemCall |_| SYSTEM_CALL_RESULT;
}

impl RegSum {
    /// The bits of [`ArgKind::Sum`].
    fn bits(&self) -> u64 {
        let number = |reg: Option<Reg>| reg.map_or(NO_REGISTER, |reg| reg as u64 & 0xff);
        let (index, scale) = match self.index {
            Some((reg, scale)) => (Some(reg), scale),
            None => (None, 1),
        };
        let displacement = u64::from(self.displacement as u32) << 32;
        number(self.base) | number(index) << 8 | u64::from(scale) << 16 | displacement
    }
}

impl Computed for Reg {
    fn kind(&self) -> (ArgKind, u64) {
        (ArgKind::Regv, *self as u64)
    }
}

impl Computed for OutcomeValue {
    fn kind(&self) -> (ArgKind, u64) {
        (ArgKind::Outcome, 0)
    }
}

impl Computed for OutcomeFor {
    fn kind(&self) -> (ArgKind, u64) {
        (ArgKind::Outcome, self.0 as u64)
    }
}

impl Computed for HighHalf {
    fn kind(&self) -> (ArgKind, u64) {
        (ArgKind::RegvHigh, self.0 as u64)
    }
}

impl Arg<RegV> for HighHalf {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::RegvHigh, self.0 as u64)
    }
}

impl Arg<u64> for HighHalf {
    fn to_host(&self) -> host::Arg {
        Arg::<RegV>::to_host(self)
    }
}

impl Arg<u64> for ImageAddress {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::ImageAddress, self.0)
    }
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
