//! The ranges that functions of C's library mean.
//!
//! String routines read too far on purpose, so their own references are not checked. What a function is about to read and write
//! follows from its arguments and from the bytes there; it is checked where its procedure is entered, whoever calls it and in
//! whichever way. A function that is chosen when the program starts (an `IFUNC`) has several procedures, whose addresses
//! are in the code that chooses.

use std::collections::HashMap;
use std::ptr::with_exposed_provenance;

use atom_tool::Uninterrupted;
use atom_tool::prelude::*;
use atom_tool::stacks::{CallStacks, FrameRule, FrameRules};

use crate::errors::{self, Wrong};
use crate::names::is_libc;
use crate::{custom, shadow, traces};

/// What a function does with its arguments `a`, `b`, `c`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// Copies `c` from `b` to `a`; the ranges must not overlap.
    Copy,
    /// They may.
    Move,
    /// Sets `c` at `a`; for `Clear` it is `b`.
    Set,
    Clear,
    /// Reads the string `a`, of at most `b`.
    Length,
    LengthLimited,
    /// Copies the string `b` to `a`; at most `c`, and writes as many.
    CopyString,
    CopyStringLimited,
    /// Appends the string `b` to the string `a`; at most `c`.
    Append,
    AppendLimited,
    /// Compares the strings `a` and `b`; at most `c`.
    Compare,
    CompareLimited,
    /// Compares `c` at `a` and `b`.
    CompareMemory,
    /// Looks for `b` in the string `a`; to its end.
    Find,
    /// Looks for `b` in `c` at `a`; in as many as there are.
    FindLimited,
    FindAnyway,
}

use Means as M;

/// A function: its symbol, its name in messages, what it does, and the size of its characters.
struct Function(&'static str, &'static str, Means, u64);

#[rustfmt::skip]
const FUNCTIONS: [Function; 50] = [
    Function("memcpy", "memcpy", M::Copy, 1),
    Function("__memcpy_chk", "memcpy", M::Copy, 1),
    Function("mempcpy", "mempcpy", M::Copy, 1),
    Function("__mempcpy", "mempcpy", M::Copy, 1),
    Function("__mempcpy_chk", "mempcpy", M::Copy, 1),
    Function("memmove", "memmove", M::Move, 1),
    Function("__memmove_chk", "memmove", M::Move, 1),
    Function("memset", "memset", M::Set, 1),
    Function("__memset_chk", "memset", M::Set, 1),
    Function("bzero", "bzero", M::Clear, 1),
    Function("strlen", "strlen", M::Length, 1),
    Function("strnlen", "strnlen", M::LengthLimited, 1),
    Function("strcpy", "strcpy", M::CopyString, 1),
    Function("__strcpy_chk", "strcpy", M::CopyString, 1),
    Function("stpcpy", "stpcpy", M::CopyString, 1),
    Function("__stpcpy", "stpcpy", M::CopyString, 1),
    Function("__stpcpy_chk", "stpcpy", M::CopyString, 1),
    Function("strncpy", "strncpy", M::CopyStringLimited, 1),
    Function("__strncpy_chk", "strncpy", M::CopyStringLimited, 1),
    Function("stpncpy", "stpncpy", M::CopyStringLimited, 1),
    Function("__stpncpy", "stpncpy", M::CopyStringLimited, 1),
    Function("strcat", "strcat", M::Append, 1),
    Function("__strcat_chk", "strcat", M::Append, 1),
    Function("strncat", "strncat", M::AppendLimited, 1),
    Function("__strncat_chk", "strncat", M::AppendLimited, 1),
    Function("strcmp", "strcmp", M::Compare, 1),
    Function("strncmp", "strncmp", M::CompareLimited, 1),
    Function("memcmp", "memcmp", M::CompareMemory, 1),
    Function("bcmp", "bcmp", M::CompareMemory, 1),
    Function("__memcmpeq", "memcmp", M::CompareMemory, 1),
    Function("strchr", "strchr", M::Find, 1),
    Function("index", "index", M::Find, 1),
    Function("strchrnul", "strchrnul", M::Find, 1),
    Function("strrchr", "strrchr", M::Length, 1),
    Function("rindex", "rindex", M::Length, 1),
    Function("memchr", "memchr", M::FindLimited, 1),
    Function("rawmemchr", "rawmemchr", M::FindAnyway, 1),
    Function("__rawmemchr", "rawmemchr", M::FindAnyway, 1),
    Function("wcslen", "wcslen", M::Length, 4),
    Function("wcsnlen", "wcsnlen", M::LengthLimited, 4),
    Function("wcscpy", "wcscpy", M::CopyString, 4),
    Function("wcscmp", "wcscmp", M::Compare, 4),
    Function("wcsncmp", "wcsncmp", M::CompareLimited, 4),
    Function("wcschr", "wcschr", M::Find, 4),
    Function("wcsrchr", "wcsrchr", M::Length, 4),
    Function("wmemset", "wmemset", M::Set, 4),
    Function("__wmemset_chk", "wmemset", M::Set, 4),
    Function("wmemcmp", "wmemcmp", M::CompareMemory, 4),
    Function("wmemchr", "wmemchr", M::FindLimited, 4),
    Function("wcscat", "wcscat", M::Append, 4),
];

/// True for a function that reads and writes memory by itself.
pub fn is_function(symbol: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.0 == symbol)
}

/// A system call in a function of C's library: the buffer is `b` with `c` bytes.
struct Call(&'static str, &'static str);

const CALLS: [Call; 18] = [
    Call("read", "read(buf)"),
    Call("__read", "read(buf)"),
    Call("__read_nocancel", "read(buf)"),
    Call("write", "write(buf)"),
    Call("__write", "write(buf)"),
    Call("__write_nocancel", "write(buf)"),
    Call("pread", "pread64(buf)"),
    Call("pread64", "pread64(buf)"),
    Call("__pread64", "pread64(buf)"),
    Call("pwrite", "pwrite64(buf)"),
    Call("pwrite64", "pwrite64(buf)"),
    Call("__pwrite64", "pwrite64(buf)"),
    Call("recv", "socketcall.recvfrom(buf)"),
    Call("recvfrom", "socketcall.recvfrom(buf)"),
    Call("send", "socketcall.sendto(msg)"),
    Call("__send", "socketcall.sendto(msg)"),
    Call("sendto", "socketcall.sendto(msg)"),
    Call("getdents64", "getdents64(dirp)"),
];

/// Adds the checks.
pub fn add(program: &Program<'_>, calls: &CallStacks) {
    let is_static = program.objects().len() == 1;
    let is_library = |proc: &Proc<'_>| {
        !proc.is_stub() && !proc.is_opaque() && (is_static || is_libc(proc.object().name()))
    };
    let mut added = std::collections::HashSet::new();
    for (number, function) in FUNCTIONS.iter().enumerate() {
        let procs = program.procs_named(function.0).into_iter();
        for proc in procs.filter(is_library) {
            let procs = if proc.can_be_replaced() {
                vec![proc]
            } else {
                chosen(program, proc)
            };
            for proc in procs {
                if !proc.is_opaque() && added.insert(proc.index()) {
                    let (a, b, c) = (Reg::Rdi, Reg::Rsi, Reg::Rdx);
                    let args = (number as u32, a, b, c, Reg::Rsp, Reg::Rbp);
                    proc.add_call(Before, entered, args);
                }
            }
        }
    }
    for (number, call) in CALLS.iter().enumerate() {
        let procs = program.procs_named(call.0).into_iter();
        for proc in procs.filter(is_library) {
            if added.insert(proc.index()) {
                let args = (number as u32, Reg::Rsi, Reg::Rdx, Reg::Rsp, Reg::Rbp);
                proc.add_call(Before, system_call, args);
            }
        }
    }
    overlaps(program, calls);
}

/// The procedures whose addresses a choosing procedure loads.
fn chosen<'a>(program: &Program<'a>, chooser: Proc<'a>) -> Vec<Proc<'a>> {
    let mut found = Vec::new();
    for inst in chooser.blocks().flat_map(|block| block.insts()) {
        let target = match inst.bytes() {
            // lea r64, [rip + x]
            [0x48 | 0x4c, 0x8d, modrm, a, b, c, d] if modrm & 0xc7 == 5 => {
                let next = inst.pc() + inst.size() as u64;
                next.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into())
            }
            // mov r64, x
            [0x48 | 0x49, 0xc7, _, a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]).into(),
            // mov r32, x
            [0xb8..=0xbf, a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]).into(),
            _ => continue,
        };
        let proc = program.proc_at(target).filter(|proc| proc.pc() == target);
        found.extend(proc);
    }
    found
}

/// Where the program calls functions by name whose ranges must not overlap: the same procedure may be another function, too.
fn overlaps(program: &Program<'_>, calls: &CallStacks) {
    let by_name: HashMap<&str, usize> = (FUNCTIONS.iter().enumerate())
        .filter(|(_, f)| {
            matches!(
                f.2,
                M::Copy | M::CopyString | M::CopyStringLimited | M::Append | M::AppendLimited
            )
        })
        .map(|(number, function)| (function.0, number))
        .collect();
    for proc in program.procs().filter(|proc| !proc.is_stub()) {
        let mut rules = None;
        for block in proc.blocks() {
            let last = block.last_inst();
            let Some(function) = last.entered_import().and_then(|name| by_name.get(name)) else {
                continue;
            };
            let is_call = last.is_type(InstType::Call);
            let rules = rules.get_or_insert_with(|| FrameRules::of(proc));
            let rule = rules.at(last);
            let number = calls.number_of(last).filter(|_| is_call);
            let number = number.map_or(u32::MAX, |number| number);
            let (a, b, c) = (Reg::Rdi, Reg::Rsi, Reg::Rdx);
            let args = (*function as u32, number, &rule, a, b, c, Reg::Rsp, Reg::Rbp);
            last.add_call(Before, called, args);
        }
    }
}

/// What is at an address.
fn load<T>(at: u64) -> T {
    // SAFETY: the function is about to read it.
    unsafe { with_exposed_provenance::<T>(at as usize).read_unaligned() }
}

/// A character.
fn unit(at: u64, width: u64) -> u64 {
    match width {
        1 => load::<u8>(at).into(),
        _ => load::<u32>(at).into(),
    }
}

fn is_open(at: u64, width: u64) -> bool {
    shadow::is_open(at) && (width == 1 || shadow::is_open(at + width - 1))
}

/// True if one of eight bytes is this one.
fn has_byte(word: u64, byte: u8) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = word ^ (ONES * u64::from(byte));
    word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
}

/// The end of what is read from `start` on: the first character that is `stop` (included), the first one that is not
/// addressable (included), or the limit in characters.
fn read_until(start: u64, limit: u64, width: u64, stop: impl Fn(u64) -> bool, bytes: &[u8]) -> u64 {
    let mut at = start;
    let end = start.saturating_add(limit.saturating_mul(width));
    while at < end {
        if width == 1 && at.is_multiple_of(8) {
            while at + 8 <= end && shadow::is_whole(at) {
                let word: u64 = load(at);
                if bytes.iter().any(|byte| has_byte(word, *byte)) {
                    break;
                }
                at += 8;
            }
            if at >= end {
                break;
            }
        }
        if !is_open(at, width) || stop(unit(at, width)) {
            return at + width;
        }
        at += width;
    }
    at.min(end)
}

/// Length in bytes of the string at an address, with its end, or up to a limit in characters.
fn length(start: u64, limit: u64, width: u64) -> u64 {
    read_until(start, limit, width, |c| c == 0, &[0]) - start
}

/// Bytes that are looked at first.
const NEXT: u64 = 64;

/// True if one of two bytes is among the next ones, which are all addressable: then nothing can be wrong.
fn ends_soon(at: u64, width: u64, bytes: [u8; 2]) -> bool {
    let [one, other] = bytes;
    let is_end = |word: u64| has_byte(word, one) || has_byte(word, other);
    width == 1
        && shadow::is_range_open(at, NEXT)
        && (0..NEXT).step_by(8).any(|i| is_end(load(at + i)))
}

/// True if two ranges differ soon, or strings end, and all bytes until then are addressable.
fn differ_soon(a: u64, b: u64, is_string: bool) -> bool {
    shadow::is_range_open(a, NEXT)
        && shadow::is_range_open(b, NEXT)
        && (0..NEXT).step_by(8).any(|i| {
            let word: u64 = load(a + i);
            word != load(b + i) || is_string && has_byte(word, 0)
        })
}

/// Bytes of two ranges up to the first difference.
fn compared(a: u64, b: u64, limit: u64, width: u64, is_string: bool) -> u64 {
    let mut done = 0;
    while done < limit.saturating_mul(width) {
        let (x, y) = (a + done, b + done);
        let is_far = width == 1 && limit.saturating_sub(done) >= 8;
        if is_far && shadow::is_range_open(x, 8) && shadow::is_range_open(y, 8) {
            let (x, y) = (load::<u64>(x), load::<u64>(y));
            if x == y && !(is_string && has_byte(x, 0)) {
                done += 8;
                continue;
            }
        }
        done += width;
        if !is_open(x, width) || !is_open(y, width) {
            break;
        }
        let (x, y) = (unit(x, width), unit(y, width));
        if x != y || is_string && x == 0 {
            break;
        }
    }
    done
}

/// True if a small number of characters can be read, whatever the function needs of them.
fn is_open_for(from: u64, count: u64, width: u64) -> bool {
    const FEW: u64 = 256;
    count == 0 || count <= FEW && shadow::is_range_open(from, count * width)
}

/// A function that was entered.
#[derive(Clone, Copy)]
struct Entered {
    function: &'static Function,
    sp: u64,
    rbp: u64,
}

impl Entered {
    /// Reports a range that is not addressable.
    #[inline]
    fn check(self, is_write: bool, from: u64, len: u64) {
        if len != 0 && custom::may_have(from) && !shadow::is_range_open(from, len) {
            self.wrong(is_write, from, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong(self, is_write: bool, from: u64, len: u64) {
        let Some(address) = shadow::first_closed(from, len) else {
            return;
        };
        let stack = traces::at_entry_anew(self.sp, self.rbp);
        let Function(_, function, _, size) = *self.function;
        let wrong = Wrong::Range {
            function,
            is_write,
            size,
            len,
            address,
            stack,
        };
        Uninterrupted::run(|_| errors::report(&wrong));
    }
}

#[analysis]
fn entered(function: u32, a: u64, b: u64, c: u64, sp: u64, rbp: u64) {
    if custom::may_have(a) || custom::may_have(b) {
        check(function, a, b, c, sp, rbp);
    }
}

#[inline(never)]
fn check(function: u32, a: u64, b: u64, c: u64, sp: u64, rbp: u64) {
    let Some(function) = FUNCTIONS.get(function as usize) else {
        return;
    };
    let entered = Entered { function, sp, rbp };
    let (read, write) = (
        |from, len| entered.check(false, from, len),
        |from, len| entered.check(true, from, len),
    );
    let Function(_, _, means, width) = *function;
    match means {
        M::Copy | M::Move => {
            read(b, c);
            write(a, c);
        }
        M::Set => write(a, c.saturating_mul(width)),
        M::Clear => write(a, b),
        M::Length if custom::may_have(a) && !ends_soon(a, width, [0, 0]) => {
            read(a, length(a, u64::MAX, width))
        }
        M::LengthLimited if custom::may_have(a) && !is_open_for(a, b, width) => {
            read(a, length(a, b, width));
        }
        M::CopyString => {
            let len = length(b, u64::MAX, width);
            read(b, len);
            write(a, len);
        }
        M::CopyStringLimited => {
            if !is_open_for(b, c, width) {
                read(b, length(b, c, width));
            }
            write(a, c.saturating_mul(width));
        }
        M::Append | M::AppendLimited => {
            let own = length(a, u64::MAX, width);
            read(a, own);
            let limit = if means == M::Append { u64::MAX } else { c };
            let len = length(b, limit, width);
            read(b, len);
            let has_end =
                len != 0 && is_open(b + len - width, width) && unit(b + len - width, width) == 0;
            let more = if has_end { 0 } else { width };
            write(a + own - width, len + more);
        }
        M::CompareLimited | M::CompareMemory
            if is_open_for(a, c, width) && is_open_for(b, c, width) => {}
        M::Compare if differ_soon(a, b, width == 1) => {}
        M::Compare | M::CompareLimited | M::CompareMemory => {
            let limit = if means == M::Compare { u64::MAX } else { c };
            let len = compared(a, b, limit, width, means != M::CompareMemory);
            read(a, len);
            read(b, len);
        }
        M::Find if custom::may_have(a) => find(entered, a, b, u64::MAX, true),
        M::FindLimited if custom::may_have(a) && !is_open_for(a, c, width) => {
            find(entered, a, b, c, false)
        }
        M::FindAnyway if custom::may_have(a) => find(entered, a, b, u64::MAX, false),
        _ => {}
    }
}

/// A search for a character: in a string, or in memory.
fn find(entered: Entered, a: u64, wanted: u64, limit: u64, is_string: bool) {
    let width = entered.function.3;
    let wanted = match width {
        1 => wanted & 0xff,
        _ => wanted & 0xffff_ffff,
    };
    let byte = wanted as u8;
    let ends = if is_string { [byte, 0] } else { [byte, byte] };
    if ends_soon(a, width, ends) {
        return;
    }
    let is_end = |c| c == wanted || is_string && c == 0;
    let end = read_until(a, limit, width, is_end, &ends);
    entered.check(false, a, end - a);
}

#[analysis]
fn system_call(call: u32, from: u64, len: u64, sp: u64, rbp: u64) {
    if custom::may_have(from) && len != 0 && !shadow::is_range_open(from, len) {
        wrong_call(call, from, len, sp, rbp);
    }
}

#[cold]
#[inline(never)]
fn wrong_call(call: u32, from: u64, len: u64, sp: u64, rbp: u64) {
    if let Some(Call(_, what)) = CALLS.get(call as usize)
        && let Some(address) = shadow::first_closed(from, len)
    {
        let stack = traces::at_entry_anew(sp, rbp);
        let wrong = Wrong::Param {
            what,
            address,
            stack,
        };
        Uninterrupted::run(|_| errors::report(&wrong));
    }
}

/// Farthest that ranges which overlap are apart, for functions that are not given a length.
const NEAR: u64 = 1 << 20;

#[analysis]
fn called(
    function: u32,
    site: u32,
    rule: Record<FrameRule>,
    a: u64,
    b: u64,
    c: u64,
    sp: u64,
    rbp: u64,
) {
    if a.abs_diff(b) < NEAR {
        overlap(function, site, rule, [a, b, c], [sp, rbp]);
    }
}

/// Reports ranges that overlap.
#[inline(never)]
fn overlap(function: u32, site: u32, rule: Record<FrameRule>, args: [u64; 3], regs: [u64; 2]) {
    let Some(Function(_, name, means, width)) = FUNCTIONS.get(function as usize) else {
        return;
    };
    let [to, from, size] = args;
    let (to_len, from_len) = match means {
        M::Copy => (size, size),
        M::CopyStringLimited => (size.saturating_mul(*width), length(from, size, *width)),
        M::CopyString => {
            let len = length(from, u64::MAX, *width);
            (len, len)
        }
        _ => {
            let limit = if *means == M::Append { u64::MAX } else { size };
            let own = length(to, u64::MAX, *width);
            let len = length(from, limit, *width);
            (own + len - width, len)
        }
    };
    let is_over = to_len != 0
        && from_len != 0
        && to < from.saturating_add(from_len)
        && from < to.saturating_add(to_len);
    let is_same = to == from && *means == M::Copy;
    if !is_over || is_same {
        return;
    }
    Uninterrupted::run(|_| {
        let stack = match site {
            u32::MAX => traces::at_entry_anew(regs[0], regs[1]),
            site => traces::at_inst(Some(site), *rule.get(), regs[0], regs[1]),
        };
        let has_size = matches!(means, M::Copy | M::CopyStringLimited | M::AppendLimited);
        errors::report(&Wrong::Overlap {
            function: name,
            to,
            from,
            size: has_size.then_some(size),
            stack,
        });
    });
}
