//! Checking the program's references.

use atom_tool::prelude::*;
use atom_tool::stacks::{self, CallStacks, FrameRule, FrameRules};
use atom_tool::{MemoryAccess, SiteList};

use crate::errors::{self, Wrong};
use crate::{heap, shadow};

plain_data! {
    /// What is known of a checked reference.
    pub struct Checked {
        rule: FrameRule,
        size: u32,
        is_write: bool,
        /// It loads a vector, or more than 8 bytes.
        is_vector: bool,
        _unused: [u8; 2],
    }
}

/// The checked references, in the order of their numbers.
#[derive(Default)]
pub struct References {
    pub sites: SiteList,
    pub checked: Vec<Checked>,
}

/// The table of references, for the cold paths.
struct Table(Array<Checked>);
// SAFETY: a table that never changes, or is replaced as a whole.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}
static TABLE: std::sync::OnceLock<Table> = std::sync::OnceLock::new();

pub fn begin(checked: Array<Checked>) {
    let _ = TABLE.set(Table(checked));
}

/// Names of objects whose references are not checked: their string routines read too far on purpose.
fn is_libc(name: &str) -> bool {
    ["libc.so", "libc-", "ld-linux", "ld-musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Beginnings of the names of string routines in static programs.
const STRINGS: [&str; 10] = [
    "mem", "str", "stp", "wmem", "wcs", "__mem", "__str", "__wcs", "__wmem", "rawmem",
];

/// Adds the checks.
pub fn add(program: &Program<'_>) -> References {
    let mut references = References::default();
    for proc in program.procs() {
        let is_own = proc.first_block().is_some() && !proc.is_stub();
        let symbol = proc.symbol();
        let is_string = STRINGS.iter().any(|start| symbol.starts_with(start));
        if !is_own || is_string || is_libc(proc.object().name()) {
            continue;
        }
        let rules = FrameRules::of(proc);
        for inst in proc.blocks().flat_map(|block| block.insts()) {
            references.check(inst, &rules);
        }
    }
    references
}

/// True for an operand that may be in the heap.
fn may_be_heap(access: &MemoryAccess) -> bool {
    let is_frame = matches!(access.base, Some(Reg::Rsp | Reg::Rbp)) && access.index.is_none();
    let is_fixed = access.base == Some(Reg::Pc) || access.address.is_some();
    !access.is_implicit() && access.segment.is_none() && !is_frame && !is_fixed
}

impl References {
    fn check(&mut self, inst: Inst<'_>, rules: &FrameRules) {
        let types = [InstType::Load, InstType::Store];
        if !types.iter().any(|t| inst.is_type(*t)) {
            return;
        }
        for (operand, access) in inst.memory().iter().enumerate().take(4) {
            let is_simple = access.count == 1
                && !access.is_repeated()
                && access.bit_offset.is_none()
                && (1..=64).contains(&access.size);
            if !is_simple || !may_be_heap(access) {
                continue;
            }
            let address = EffAddrOf(operand as u8);
            if !inst.offers(Before, address) {
                continue;
            }
            let number = self.sites.push(inst) as u32;
            self.checked.push(Checked {
                rule: rules.at(inst),
                size: access.size,
                is_write: access.access.writes(),
                is_vector: access.size > 8,
                _unused: [0; 2],
            });
            let args = (
                address,
                u64::from(access.size) - 1,
                number,
                Reg::Rsp,
                Reg::Rbp,
            );
            if access.size <= 8 {
                inst.add_call(Before, narrow, args);
            } else {
                inst.add_call(Before, wide, args);
            }
        }
    }
}

/// A reference of up to 8 bytes: its last byte is looked at.
#[analysis]
fn narrow(address: u64, more: u64, access: u32, sp: u64, rbp: u64) {
    let last = address.wrapping_add(more);
    let at = std::ptr::with_exposed_provenance::<i8>(((last >> 3) + shadow::OFFSET) as usize);
    // SAFETY: the shadow is mapped as a whole.
    let shadow = unsafe { at.read() };
    if shadow != 0 && (last & 7) as i8 >= shadow {
        bad(address, access, sp, rbp);
    }
}

/// A larger reference: its first and last bytes are looked at.
#[analysis]
fn wide(address: u64, more: u64, access: u32, sp: u64, rbp: u64) {
    let last = address.wrapping_add(more);
    let at = |a: u64| std::ptr::with_exposed_provenance::<u8>(((a >> 3) + shadow::OFFSET) as usize);
    // SAFETY: the shadow is mapped as a whole.
    let (first, end) = unsafe { (at(address).read(), at(last).read()) };
    if first | end != 0 {
        bad(address, access, sp, rbp);
    }
}

#[cold]
#[inline(never)]
fn bad(address: u64, access: u32, sp: u64, rbp: u64) {
    let Some(checked) = TABLE
        .get()
        .and_then(|t| t.0.as_slice().get(access as usize))
    else {
        return;
    };
    let size = u64::from(checked.size);
    if !heap::has(address) && !heap::has(address.wrapping_add(size - 1)) {
        return;
    }
    let Some(closed) = shadow::first_closed(address, size) else {
        return;
    };
    let is_whole = checked.is_vector && !checked.is_write && address.is_multiple_of(size);
    if is_whole && (address..address + size).any(shadow::is_open) {
        return;
    }
    let mut calls = [0; errors::DEPTH];
    let count = stacks::at_inst(checked.rule, sp, rbp, &mut calls);
    errors::report(&Wrong::Access {
        access,
        is_write: checked.is_write,
        size,
        address: closed,
        stack: errors::intern(&calls[..count]),
    });
}

/// What a function of C's library does with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Function {
    Memcpy,
    Memmove,
    Memset,
    Strlen,
    Strcpy,
}

/// The functions by their symbols.
const FUNCTIONS: [(&str, Function); 9] = [
    ("memcpy", Function::Memcpy),
    ("__memcpy_chk", Function::Memcpy),
    ("memmove", Function::Memmove),
    ("__memmove_chk", Function::Memmove),
    ("memset", Function::Memset),
    ("__memset_chk", Function::Memset),
    ("strlen", Function::Strlen),
    ("strcpy", Function::Strcpy),
    ("__strcpy_chk", Function::Strcpy),
];

/// Adds checks where the program calls functions of C's library.
pub fn add_functions(program: &Program<'_>, calls: &CallStacks) {
    for proc in program.procs().filter(|proc| !proc.is_stub()) {
        let mut rules = None;
        for block in proc.blocks() {
            let last = block.last_inst();
            if !last.is_type(InstType::Call) {
                continue;
            }
            let name = last.entered_import().unwrap_or_default();
            let Some((_, function)) = FUNCTIONS.iter().find(|(symbol, _)| *symbol == name) else {
                continue;
            };
            let rules = rules.get_or_insert_with(|| FrameRules::of(proc));
            let rule = rules.at(last);
            let Some(number) = calls.number_of(last) else {
                continue;
            };

            let (a, b, c) = (Reg::Rdi, Reg::Rsi, Reg::Rdx);
            let args = (*function as u32, number, &rule, a, b, c, Reg::Rsp, Reg::Rbp);
            last.add_call(Before, called, args);
        }
    }
}

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
    let is = |other: Function| function == other as u32;
    let length = |from: u64| {
        let mut end = from;
        // SAFETY: the function is about to read the same bytes.
        while shadow::is_open(end)
            && unsafe { *std::ptr::with_exposed_provenance::<u8>(end as usize) } != 0
        {
            end += 1;
        }
        end - from + 1
    };
    let stack = || {
        let mut calls = [0; errors::DEPTH];
        calls[0] = site;
        let count = stacks::at_inst(*rule.get(), sp, rbp, &mut calls[1..]);
        errors::intern(&calls[..=count])
    };
    let check = |function: &'static str, is_write: bool, from: u64, size: u64| {
        if size != 0
            && heap::has(from)
            && let Some(address) = shadow::first_closed(from, size)
        {
            let stack = stack();
            errors::report(&Wrong::Range {
                function,
                is_write,
                size,
                address,
                stack,
            });
        }
    };
    if is(Function::Memcpy) || is(Function::Memmove) {
        let name = if is(Function::Memcpy) {
            "memcpy"
        } else {
            "memmove"
        };
        check(name, false, b, c);
        check(name, true, a, c);
        if is(Function::Memcpy) && a != b && a < b.wrapping_add(c) && b < a.wrapping_add(c) {
            let stack = stack();
            errors::report(&Wrong::Overlap {
                function: name,
                to: a,
                from: b,
                size: c,
                stack,
            });
        }
    } else if is(Function::Memset) {
        check("memset", true, a, c);
    } else if is(Function::Strlen) && heap::has(a) {
        check("strlen", false, a, length(a));
    } else if is(Function::Strcpy) && (heap::has(a) || heap::has(b)) {
        let size = length(b);
        check("strcpy", false, b, size);
        check("strcpy", true, a, size);
    }
}
