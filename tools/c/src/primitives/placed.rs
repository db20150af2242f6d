//! Data that the instrument routine places in the program, and what analysis routines do with it.

use std::ffi::{c_char, c_int, c_long};
use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use atom_tool::paths::CallPaths;
use atom_tool::private::{first_copy, next_copy, thread_of_copy};
use atom_tool::threads::watch_bytes;
use atom_tool::{
    Address, CounterTable, MarkTable, NamedArg, SiteList, StringList, ThreadBytes, read_memory,
};

use atom_tool::report::ReportFiles;

use super::handles::{program, stop};

/// What a handle stands for.
#[derive(Clone, Copy)]
pub enum Data {
    Counters(CounterTable<1>),
    Marks(MarkTable),
    Thread(ThreadBytes),
    /// A counter or a mark.
    Row(NamedArg<'static>),
    Files(&'static ReportFiles),
    List(&'static Mutex<List>),
    Paths(&'static Mutex<CallPaths>),
}

/// A list that an instrument routine fills, until a call is added with it.
pub enum Growing<T: 'static> {
    Open(T),
    Given(&'static T),
}

impl<T: Default> Growing<T> {
    /// The list, to which nothing is added any more.
    pub fn give(&mut self) -> &'static T {
        if let Self::Open(list) = self {
            *self = Self::Given(Box::leak(Box::new(std::mem::take(list))));
        }
        match self {
            Self::Given(list) => list,
            Self::Open(_) => unreachable!("it was given above"),
        }
    }

    /// The list, to add to it.
    pub fn open(&mut self, primitive: &str) -> &mut T {
        match self {
            Self::Open(list) => list,
            Self::Given(_) => stop(primitive, "a call has been added with this list before"),
        }
    }
}

/// A list of either kind.
pub enum List {
    Sites(Growing<SiteList>),
    Strings(Growing<StringList>),
}

static ALL: Mutex<Vec<Data>> = Mutex::new(Vec::new());

/// The handle of data.
pub fn keep(data: Data) -> usize {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(data);
    all.len()
}

/// The data with a handle.
pub fn data(handle: usize, primitive: impl Display) -> Data {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get(handle.wrapping_sub(1)) {
        Some(data) => *data,
        None => stop(primitive, "this is no data that a function has made"),
    }
}

/// A number of items.
fn count(n: c_long, primitive: &str) -> usize {
    match usize::try_from(n) {
        Ok(n) => n,
        Err(_) => stop(primitive, format!("the number is {n}")),
    }
}

#[unsafe(no_mangle)]
extern "C" fn MakeCounters(n: c_long) -> usize {
    keep(Data::Counters(program().counters(count(n, "MakeCounters"))))
}

#[unsafe(no_mangle)]
extern "C" fn CounterAt(handle: usize, n: c_long) -> usize {
    const NAME: &str = "CounterAt";
    let row = count(n, NAME);
    match data(handle, NAME) {
        Data::Counters(table) if row < table.len() => keep(Data::Row(table.at(row).into())),
        Data::Counters(table) => stop(NAME, format!("counter {n} of {}", table.len())),
        _ => stop(NAME, "this is no table of counters"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn MakeMarks(n: c_long) -> usize {
    keep(Data::Marks(program().marks(count(n, "MakeMarks"))))
}

#[unsafe(no_mangle)]
extern "C" fn MarkAt(handle: usize, n: c_long) -> usize {
    const NAME: &str = "MarkAt";
    let row = count(n, NAME);
    match data(handle, NAME) {
        Data::Marks(table) if row < table.len() => keep(Data::Row(table.at(row).into())),
        Data::Marks(table) => stop(NAME, format!("mark {n} of {}", table.len())),
        _ => stop(NAME, "this is no table of marks"),
    }
}

/// # Safety
/// `initial` is NULL, for zeros, or `size` bytes that can be read.
#[unsafe(no_mangle)]
unsafe extern "C" fn MakeThreadData(initial: *const u8, size: c_long) -> usize {
    let size = count(size, "MakeThreadData");
    let mut bytes = vec![0; size];
    if !initial.is_null() {
        // SAFETY: the caller's promise.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(initial, size) };
    }
    keep(Data::Thread(program().thread_bytes(&bytes)))
}

// From here on: functions for analysis routines.

/// # Safety
/// `all` is an argument of type `THREADS`; `copy` is NULL or a copy of the same data.
#[unsafe(no_mangle)]
unsafe extern "C" fn NextThreadData(all: *const u64, copy: *const u8) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if copy.is_null() {
            first_copy(all)
        } else {
            next_copy(copy)
        }
    }
}

/// # Safety
/// `copy` is an argument of type `THREAD` or a result of `NextThreadData`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ThreadNumber(copy: *const u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { thread_of_copy(copy) as c_int }
}

/// Writes an address as people read it, with a null, cut off where the buffer ends. Returns the buffer.
///
/// # Safety
/// `size` bytes may be written at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn AddressText(pc: u64, to: *mut u8, size: c_long) -> *mut c_char {
    let size = usize::try_from(size).unwrap_or(0);
    if size > 0 {
        // SAFETY: the caller's promise.
        let buffer = unsafe { std::slice::from_raw_parts_mut(to, size) };
        buffer.fill(0);
        let mut rest = &mut buffer[..size - 1];
        // A text that is too long is cut off.
        write!(rest, "{}", Address(pc)).unwrap_or_default();
    }
    to.cast()
}

#[unsafe(no_mangle)]
extern "C" fn RunTimeAddress(pc: u64) -> i64 {
    Address(pc).at_run_time().unwrap_or(0) as i64
}

#[unsafe(no_mangle)]
extern "C" fn AddressOf(run_time: u64) -> i64 {
    Address::of_run_time(run_time).map_or(0, |a| a.0) as i64
}

/// # Safety
/// `size` bytes may be written at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ReadMemory(run_time: u64, to: *mut u8, size: c_long) -> c_long {
    match usize::try_from(size) {
        // SAFETY: the caller's promise.
        Ok(size @ 1..) => unsafe {
            read_memory(run_time, std::slice::from_raw_parts_mut(to, size)) as c_long
        },
        _ => 0,
    }
}

/// # Safety
/// `data` is an argument of type `THREAD`.
#[unsafe(no_mangle)]
unsafe extern "C" fn OnThreads(
    data: *mut u8,
    begin: extern "C" fn(*mut u8),
    end: extern "C" fn(*mut u8),
) {
    // SAFETY: the caller's promise.
    unsafe { watch_bytes(data, begin, end) };
}

#[unsafe(no_mangle)]
extern "C" fn OnFork(function: Option<extern "C" fn()>) {
    static FUNCTION: std::sync::OnceLock<extern "C" fn()> = std::sync::OnceLock::new();
    if let Some(function) = function {
        // A second function is the tool's mistake, and changes nothing.
        let _ = FUNCTION.set(function);
        let call = || {
            if let Some(function) = FUNCTION.get() {
                function();
            }
        };
        // Call paths have a function of their own, which calls this one.
        atom_tool::paths::in_child(call);
        if !atom_tool::paths::has_begun() {
            atom_tool::forks::in_child(call);
        }
    }
}
