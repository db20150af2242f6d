//! Prototypes and calls.
//!
//! Arguments of a call follow a variable list; the prototype tells their types.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display, Formatter};
use std::sync::{Mutex, PoisonError};

use atom_tool::private::{MARK_ROUTINE, Type};
use atom_tool::{
    AccessSize, AccessSizeOf, ArgumentOf, BrCondValue, BranchTarget, Computed, Direction, EdgeKind,
    EffAddrOf, EffAddrValue, HighHalf, ImageAddress, Inst, LoadedValue, LoadedValueOf, NamedArg,
    OutcomeFor, OutcomeValue, Place, Placed, Reg, RegSum, RepCount, Result, ReturnAddress,
    ReturnValue, StoredValue, StoredValueOf, SystemCallArgument, SystemCallNumber,
    SystemCallResult, Way, read_memory,
};

use super::handles::{
    block, call_is_added, inst, place_of_call, primitives, proc, program, stop, word,
};
use super::placed::{Data, data};
use super::{paths, sites};
use crate::varargs::VaList;

/// Bit of a register's number that stands for its second 64 bits.
const HIGH_HALF: u32 = 0x100;

/// # Safety
/// `prototype` is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddCallProto(prototype: *const c_char) {
    const NAME: &str = "AddCallProto";
    // SAFETY: the caller's promise.
    let added = program().add_call_proto(unsafe { word(prototype, NAME) });
    added.unwrap_or_else(|e| {
        let text = e.to_string();
        match text.strip_suffix(MARK_ROUTINE) {
            Some(text) => stop(
                NAME,
                format!("{text}; it is a function of an analysis file that is not static"),
            ),
            None => stop(NAME, text),
        }
    });
    call_is_added();
}

crate::variadic! {
    /// `AddCallProgram(place, routine, ...)`
    #[unsafe(no_mangle)]
    AddCallProgram => to_program, 16, "rdx";
    /// `AddCallProc(proc, place, routine, ...)`
    #[unsafe(no_mangle)]
    AddCallProc => to_proc, 24, "rcx";
    /// `AddCallBlock(block, place, routine, ...)`
    #[unsafe(no_mangle)]
    AddCallBlock => to_block, 24, "rcx";
    /// `AddCallInst(inst, place, routine, ...)`
    #[unsafe(no_mangle)]
    AddCallInst => to_inst, 24, "rcx";
    /// `AddCallWay(block, way, routine, ...)`
    #[unsafe(no_mangle)]
    AddCallWay => to_way, 24, "rcx";
    /// `ReplaceProc(proc, routine, ...)`
    #[unsafe(no_mangle)]
    ReplaceProc => in_place_of, 16, "rdx";
}

/// The place with a number of `PlaceType`. The numbers of a scope begin at `first`.
fn place(number: c_int, first: c_int, primitive: &str) -> Place {
    const NAMES: [&str; 4] = ["Program", "Proc", "Block", "Inst"];
    match number - first {
        0 => Place::Before,
        1 => Place::After,
        _ => {
            let name = NAMES[first as usize / 2];
            stop(
                primitive,
                format!("the place is neither {name}Before nor {name}After"),
            )
        }
    }
}

/// # Safety
/// `routine` is a string of C; the list has the arguments that its prototype names.
unsafe extern "C" fn to_program(at: c_int, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "AddCallProgram";
    let at = place(at, 0, NAME);
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            program().add_call_named(at, name, args)
        })
    }
}

/// # Safety
/// As for [`to_program`].
unsafe extern "C" fn to_proc(to: usize, at: c_int, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "AddCallProc";
    let (to, at) = (proc(to, NAME), place(at, 2, NAME));
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            to.add_call_named(at, name, args)
        })
    }
}

/// # Safety
/// As for [`to_program`].
unsafe extern "C" fn to_block(to: usize, at: c_int, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "AddCallBlock";
    let (to, at) = (block(to, NAME), place(at, 4, NAME));
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            to.add_call_named(at, name, args)
        })
    }
}

/// # Safety
/// As for [`to_program`].
unsafe extern "C" fn to_inst(to: usize, at: c_int, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "AddCallInst";
    let (to, at) = (inst(to, NAME), place(at, 6, NAME));
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            to.add_call_named(at, name, args)
        })
    }
}

/// The way with a number of `WayType`.
fn way(number: c_int, primitive: &str) -> Way {
    match number {
        0 => Way::Entry,
        1 => Way::Falling,
        2 => Way::Taken,
        _ => stop(
            primitive,
            "the way is none of WayEntry, WayFalling, WayTaken",
        ),
    }
}

/// # Safety
/// As for [`to_program`].
unsafe extern "C" fn to_way(to: usize, on: c_int, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "AddCallWay";
    let (to, on) = (block(to, NAME), way(on, NAME));
    if !to.has_way(on) {
        stop(NAME, "control does not go this way; ask BlockHasWay");
    }
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            to.add_call_named_on(on, name, args)
        })
    }
}

/// # Safety
/// As for [`to_program`].
unsafe extern "C" fn in_place_of(to: usize, routine: *const c_char, list: *mut VaList) {
    const NAME: &str = "ReplaceProc";
    let to = proc(to, NAME);
    // SAFETY: the caller's promise.
    unsafe {
        add(NAME, routine, list, |name, args| {
            to.replace_named(name, args)
        })
    }
}

/// The way of an edge, by the number of its kind; -1 if no call can be added there.
#[unsafe(no_mangle)]
extern "C" fn EdgeWay(kind: c_int) -> c_int {
    match Way::of(EdgeKind::from_number(kind as u32)) {
        Some(Way::Entry) => 0,
        Some(Way::Falling) => 1,
        Some(Way::Taken) => 2,
        None => -1,
    }
}

/// Reads the arguments and adds the call.
///
/// # Safety
/// As for [`to_program`].
unsafe fn add(
    primitive: &str,
    routine: *const c_char,
    list: *mut VaList,
    add: impl FnOnce(&str, &[NamedArg<'_>]) -> Result,
) {
    // SAFETY: the caller's promise.
    let (name, list) = unsafe { (word(routine, primitive), &mut *list) };
    let Some(types) = program().parameters(name) else {
        stop(
            primitive,
            format!("no prototype of `{name}` was added; call AddCallProto first"),
        );
    };
    let is_marked = place_of_call().is_some();
    let count = types.len();
    let mut args = Vec::new();
    for (i, of) in types.into_iter().enumerate() {
        let parameter = Parameter {
            primitive,
            routine: name,
            number: i + 1,
            of,
        };
        // SAFETY: the caller's promise: there is an argument, or the mark of the end.
        if is_marked && unsafe { list.clone().word() } == END {
            stop(
                parameter,
                format!("it has no argument; the call has {i} of {count}"),
            );
        }
        // SAFETY: the caller's promise: the next argument has the type that the prototype names.
        args.push(unsafe { argument(list, parameter) });
    }
    // SAFETY: as above.
    if is_marked && unsafe { list.word() } != END {
        let reason = format!("the call has more arguments than the {count} parameters of `{name}`");
        stop(primitive, reason);
    }
    add(name, &args).unwrap_or_else(|e| stop(primitive, e));
    call_is_added();
}

/// What the macros of the header file put after the last argument.
const END: u64 = u64::from_be_bytes(*b"atom-end");

/// A parameter of a routine, as messages name it.
#[derive(Clone, Copy)]
struct Parameter<'a> {
    primitive: &'a str,
    routine: &'a str,
    /// Counted from 1.
    number: usize,
    of: Type,
}

impl Display for Parameter<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            primitive,
            routine,
            number,
            of,
        } = self;
        write!(
            f,
            "{primitive}: parameter {number} ({}) of `{routine}`",
            of.name()
        )
    }
}

/// The next argument, of a type of the prototype.
///
/// # Safety
/// The list has one of this type; strings and arrays live for `'a`.
unsafe fn argument<'a>(list: &mut VaList, parameter: Parameter<'_>) -> NamedArg<'a> {
    // SAFETY: the caller's promise.
    unsafe {
        match parameter.of {
            Type::Int(8) => (list.word() as i64).into(),
            Type::Int(_) => list.int().into(),
            Type::Str => {
                let text = list.pointer::<c_char>();
                check_memory(text.cast(), 1, parameter);
                match CStr::from_ptr(text).to_str() {
                    Ok(text) => text.into(),
                    Err(_) => stop(parameter, "a string is not UTF-8"),
                }
            }
            Type::Array(size, n) => array((size, n as usize), list.pointer(), parameter),
            Type::Regv => register(list.int() as u32, parameter),
            Type::Value => value(list.int() as u32, parameter),
            Type::Address => ImageAddress(list.word()).into(),
            Type::Placed(_) => placed(list.word() as usize, parameter),
        }
    }
}

/// Refuses a pointer to memory that cannot be read: a number in the place of a pointer.
fn check_memory(at: *const u8, size: usize, parameter: Parameter<'_>) {
    let mut byte = [0];
    let is_readable = |at: *const u8| read_memory(at as u64, &mut byte) == 1;
    if at.is_null() {
        stop(parameter, "it is NULL");
    }
    let last = at.wrapping_add(size.saturating_sub(1));
    if ![at, last].into_iter().all(is_readable) {
        stop(parameter, format!("no memory is at {:#x}", at as usize));
    }
}

/// The data as an argument.
fn placed(handle: usize, parameter: Parameter<'_>) -> NamedArg<'static> {
    let is_all = parameter.of.is_of_all_threads();
    match data(handle, parameter) {
        Data::Counters(table) => table.into(),
        Data::Marks(table) => table.into(),
        Data::Thread(bytes) if is_all => Placed::all_threads(bytes).into(),
        Data::Thread(bytes) => Placed::this_thread(bytes).into(),
        Data::Row(row) => row,
        Data::Files(files) => files.into(),
        Data::List(list) => sites::argument(list),
        Data::Paths(followed) => paths::argument(followed, is_all).into(),
    }
}

/// An array of `n` elements of `size` bytes.
///
/// # Safety
/// They can be read for `'a`.
unsafe fn array<'a>(
    (size, n): (u8, usize),
    at: *const u8,
    parameter: Parameter<'_>,
) -> NamedArg<'a> {
    check_memory(at, usize::from(size) * n, parameter);
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => std::slice::from_raw_parts(at, n).into(),
            4 => std::slice::from_raw_parts(at.cast::<i32>(), n).into(),
            _ => std::slice::from_raw_parts(at.cast::<i64>(), n).into(),
        }
    }
}

fn register(number: u32, parameter: Parameter<'_>) -> NamedArg<'static> {
    match (Reg::from_number(number & !HIGH_HALF), number & HIGH_HALF) {
        (Some(reg), 0) => reg.into(),
        (Some(reg), _) => HighHalf(reg).into(),
        (None, _) => stop(parameter, format!("there is no register {}", number as i32)),
    }
}

/// Calls `then` with the value that a number of `ValueType` stands for: the kind, and from bit 8 on the number of a memory operand
/// plus 1, or 0 for no operand in particular; for an outcome the number of a register plus 1.
fn with_value<R>(number: u32, primitive: impl Display, then: impl ValueVisitor<R>) -> R {
    if let Some(sum) = number.checked_sub(FIRST_SUM) {
        let sums = SUMS.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = sums.get(sum as usize).copied();
        drop(sums);
        return match sum {
            Some(sum) => then.visit(sum),
            None => stop(primitive, format!("there is no value {number:#x}")),
        };
    }
    let operand = (number >> 8).checked_sub(1).map(|n| n as u8);
    match (number & 0xff, operand) {
        (1, None) => then.visit(BrCondValue),
        (2, None) => then.visit(EffAddrValue),
        (2, Some(n)) => then.visit(EffAddrOf(n)),
        (3, None) => then.visit(LoadedValue),
        (3, Some(n)) => then.visit(LoadedValueOf(n)),
        (4, None) => then.visit(StoredValue),
        (4, Some(n)) => then.visit(StoredValueOf(n)),
        (5, None) => then.visit(AccessSize),
        (5, Some(n)) => then.visit(AccessSizeOf(n)),
        (6, None) => then.visit(RepCount),
        (7, None) => then.visit(Direction),
        (8, None) => then.visit(BranchTarget),
        (9, None) => then.visit(ReturnValue),
        (11, Some(n)) => then.visit(ArgumentOf(n)),
        (12, None) => then.visit(ReturnAddress),
        (13, None) => then.visit(SystemCallNumber),
        (14, Some(n)) => then.visit(SystemCallArgument(n)),
        (15, None) => then.visit(SystemCallResult),
        (10, None) => then.visit(OutcomeValue),
        (10, Some(n)) => match Reg::from_number(n.into()) {
            Some(reg) => then.visit(OutcomeFor(reg)),
            None => stop(primitive, format!("there is no register {n}")),
        },
        _ => stop(primitive, format!("there is no value {number:#x}")),
    }
}

/// Number of the first value that is a sum of registers.
const FIRST_SUM: u32 = 1 << 24;

/// The sums of registers by their numbers after [`FIRST_SUM`].
static SUMS: Mutex<Vec<RegSum>> = Mutex::new(Vec::new());

/// The number of `ValueType` for base + index * scale + displacement. A register that is -1 is left out.
#[unsafe(no_mangle)]
extern "C" fn ValueOfSum(base: c_int, index: c_int, scale: c_int, displacement: c_int) -> c_int {
    const NAME: &str = "ValueOfSum";
    let general = |number: c_int| match number {
        -1 => None,
        0..16 => Reg::from_number(number as u32),
        _ => stop(NAME, format!("{number} is no general register")),
    };
    let (base, index) = (general(base), general(index));
    if index.is_some() && (![1, 2, 4, 8].contains(&scale) || index == Some(Reg::Rsp)) {
        stop(
            NAME,
            "an index is a general register other than rsp; its scale is 1, 2, 4 or 8",
        );
    }
    let sum = RegSum {
        base,
        index: index.map(|reg| (reg, scale as u8)),
        displacement,
    };
    let mut sums = SUMS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = sums.iter().position(|known| *known == sum);
    let at = known.unwrap_or_else(|| {
        sums.push(sum);
        sums.len() - 1
    });
    (FIRST_SUM + at as u32) as c_int
}

/// What is done with a value of any of the types.
trait ValueVisitor<R> {
    fn visit(self, value: impl Computed + Into<NamedArg<'static>>) -> R;
}

/// Makes the argument of a call.
struct AsArgument;

impl ValueVisitor<NamedArg<'static>> for AsArgument {
    fn visit(self, value: impl Computed + Into<NamedArg<'static>>) -> NamedArg<'static> {
        value.into()
    }
}

fn value(number: u32, parameter: Parameter<'_>) -> NamedArg<'static> {
    with_value(number, parameter, AsArgument)
}

/// Asks whether a call at a place of an instruction can have the value.
struct Offers(Inst<'static>, Place);

impl ValueVisitor<bool> for Offers {
    fn visit(self, value: impl Computed + Into<NamedArg<'static>>) -> bool {
        self.0.offers(self.1, value)
    }
}

primitives! {
    fn BlockHasWay(b: block, on: c_int) -> c_int { b.has_way(way(on, NAME)).into() }
    fn CanReplaceProc(p: proc) -> c_int { p.can_be_replaced().into() }
    fn InstOffers(i: inst, at: c_int, what: u32) -> c_int { with_value(what, NAME, Offers(i, place(at, 6, NAME))).into() }
}
