//! Checking the program's references.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;
use atom_tool::stacks::{FrameRule, FrameRules};
use atom_tool::{
    Direction, MemoryAccess, RepCount, SiteList, ThreadData, Times, Uninterrupted,
    lookups_may_fault,
};

use crate::caches::Cache;
use crate::errors::{self, Wrong};
use crate::names::is_libc;
use crate::requests::{self, Matcher};
use crate::{custom, functions, shadow, traces};

plain_data! {
    /// What is known of a checked reference.
    pub struct Checked {
        pub rule: FrameRule,
        /// Its place from the first reference of its group.
        offset: i32,
        pub size: u8,
        pub is_write: bool,
        /// It loads a vector, or more than 8 bytes.
        is_vector: bool,
        _unused: u8,
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

/// Which aligned loads are right if one of their bytes may be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Partly {
    /// Loads of vectors, and of more than 8 bytes.
    Vectors,
    /// Those of 4 and 8 bytes, too.
    All,
    None,
}

/// The program's choice of these, as a number.
static PARTLY: AtomicU64 = AtomicU64::new(Partly::Vectors as u64);

/// `partly` is the number of a [`Partly`].
pub fn begin(checked: Array<Checked>, partly: u64) {
    lookups_may_fault();
    PARTLY.store(partly, Relaxed);
    let _ = TABLE.set(Table(checked));
}

/// What is known of the checked reference with a number.
pub fn checked(number: u32) -> Option<&'static Checked> {
    TABLE.get()?.0.as_slice().get(number as usize)
}

/// Parts of the names of string routines for some processors, in static programs.
const VARIANTS: [&str; 6] = ["_sse", "_ssse3", "_avx", "_evex", "_erms", "_unaligned"];

/// True for a string routine of a static program.
fn is_string(symbol: &str) -> bool {
    functions::is_function(symbol) || VARIANTS.iter().any(|variant| symbol.contains(variant))
}

/// Adds the checks. `is_told` is as for [`requests::add_call`].
pub fn add(program: &Program<'_>, cache: ThreadData<Cache>, is_told: bool) -> References {
    let mut references = References::default();
    let is_static = program.objects().len() == 1;
    let mut has_requests = false;
    for proc in program.procs() {
        let is_own = proc.first_block().is_some() && !proc.is_stub();
        let is_excepted = is_libc(proc.object().name()) || is_static && is_string(proc.symbol());
        if !is_own || is_excepted {
            continue;
        }
        let rules = FrameRules::of(proc);
        let frame = proc.frame().and_then(|frame| frame.frame_reg());
        for block in proc.blocks() {
            references.check(block, &rules, frame == Some(Reg::Rbp));
            let mut requests = Matcher::default();
            for inst in block.insts() {
                references.check_strings(inst, &rules);
                if requests.ends(inst) {
                    let rule = rules.at(inst);
                    let number = references.push(inst, rule);
                    requests::add_call(inst, number, rule, cache, is_told);
                    has_requests = true;
                }
            }
        }
    }
    if has_requests {
        requests::add(program);
    }
    references
}

/// True for an operand that may be in the heap.
fn may_be_heap(access: &MemoryAccess, has_frame: bool) -> bool {
    let is_frame = access.base == Some(Reg::Rsp) || has_frame && access.base == Some(Reg::Rbp);
    let is_frame = is_frame && access.index.is_none();
    let is_fixed = access.base == Some(Reg::Pc) || access.address.is_some();
    !access.is_implicit() && access.segment.is_none() && !is_frame && !is_fixed
}

/// Largest distance from the first to the last byte of references that are checked at once. Between two blocks are as many
/// bytes of redzones, so if the first byte and the last one are in blocks, all are in the same one.
const SPAN: i64 = 32;

/// A reference that is to be checked.
struct Reference<'a> {
    inst: Inst<'a>,
    operand: u8,
    displacement: i64,
    size: u32,
    is_write: bool,
}

impl Reference<'_> {
    fn end(&self) -> i64 {
        self.displacement + i64::from(self.size)
    }
}

/// References of a block with the same registers, in which nothing was written in between.
struct Group<'a> {
    base: Option<Reg>,
    index: Option<Reg>,
    scale: u32,
    is_open: bool,
    references: Vec<Reference<'a>>,
}

impl<'a> Group<'a> {
    /// First byte and end, from the place that the registers give.
    fn span(&self) -> [i64; 2] {
        let first = self.references.iter().map(|r| r.displacement).min();
        let end = self.references.iter().map(Reference::end).max();
        [first.unwrap_or(0), end.unwrap_or(0)]
    }

    /// Takes a reference; gives it back if it does not fit.
    fn add(&mut self, access: &MemoryAccess, new: Reference<'a>) -> Option<Reference<'a>> {
        let is_like = self.base == access.base && self.index == access.index;
        if !self.is_open || !is_like || self.scale != access.scale {
            return Some(new);
        }
        let [first, end] = self.span();
        if end.max(new.end()) - first.min(new.displacement) > SPAN {
            return Some(new);
        }
        let is_known = self.references.iter().any(|old| {
            old.displacement == new.displacement
                && old.size == new.size
                && old.is_write == new.is_write
        });
        if !is_known {
            self.references.push(new);
        }
        None
    }
}

/// The groups of a block's references.
fn groups<'a>(block: Block<'a>, has_frame: bool) -> Vec<Group<'a>> {
    let types = [InstType::Load, InstType::Store];
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut requests = Matcher::default();
    for inst in block.insts() {
        let is_reference = types.iter().any(|t| inst.is_type(*t));
        let memory = if is_reference {
            inst.memory()
        } else {
            Vec::new()
        };
        for (operand, access) in memory.iter().enumerate().take(4) {
            let is_simple = access.count == 1
                && !access.is_repeated()
                && !access.access.is_conditional()
                && access.bit_offset.is_none()
                && (1..=64).contains(&access.size);
            let operand = operand as u8;
            let is_heap = is_simple && may_be_heap(access, has_frame);
            if !is_heap || !inst.offers(Before, EffAddrOf(operand)) {
                continue;
            }
            let mut left = Some(Reference {
                inst,
                operand,
                displacement: access.displacement,
                size: access.size,
                is_write: access.access.writes(),
            });
            let is_usual = access.size <= 8 && !access.has_32_bit_address();
            for group in groups.iter_mut().filter(|_| is_usual) {
                left = left.and_then(|reference| group.add(access, reference));
            }
            groups.extend(left.map(|reference| Group {
                base: access.base,
                index: access.index,
                scale: access.scale,
                is_open: is_usual,
                references: vec![reference],
            }));
        }
        let is_request = requests.ends(inst);
        let written = inst.reg_usage().updated;
        for group in &mut groups {
            let registers = [group.base, group.index];
            let is_changed = registers.iter().flatten().any(|reg| written.contains(*reg));
            group.is_open &= !is_changed && !is_request;
        }
    }
    groups
}

impl References {
    /// An instruction that is no reference, but has a number and a frame. Returns the number.
    fn push(&mut self, inst: Inst<'_>, rule: FrameRule) -> u32 {
        self.checked.push(Checked {
            rule,
            offset: 0,
            size: 0,
            is_write: false,
            is_vector: false,
            _unused: 0,
        });
        self.sites.push(inst) as u32
    }

    /// String instructions: `movs`, `stos`, `lods`, repeated or not. Of `cmps` and `scas` only the processor knows how far they
    /// go.
    fn check_strings(&mut self, inst: Inst<'_>, rules: &FrameRules) {
        let memory = inst.memory();
        if !memory.iter().any(MemoryAccess::is_string) {
            return;
        }
        let Some(references) = inst.references() else {
            return;
        };
        if ![Times::Once, Times::Repeated].contains(&references.times) {
            return;
        }
        for operand in references.operands {
            let Some(access) = memory.get(usize::from(operand)) else {
                continue;
            };
            let number = self.sites.push(inst) as u32;
            self.checked.push(Checked {
                rule: rules.at(inst),
                offset: 0,
                size: access.size as u8,
                is_write: access.access.writes(),
                is_vector: false,
                _unused: 0,
            });
            let address = EffAddrOf(operand);
            let size = u64::from(access.size);
            let (sp, rbp) = (Reg::Rsp, Reg::Rbp);
            if references.times == Times::Repeated {
                let args = (address, RepCount, size, Direction, number, sp, rbp);
                inst.add_call(Before, string, args);
            } else {
                let args = (address, 1u64, size, 0u64, number, sp, rbp);
                inst.add_call(Before, string, args);
            }
        }
    }

    fn check(&mut self, block: Block<'_>, rules: &FrameRules, has_frame: bool) {
        for group in groups(block, has_frame) {
            let [first, end] = group.span();
            let Some(leader) = group.references.first() else {
                continue;
            };
            let (inst, own) = (leader.inst, leader.displacement);
            let number = self.sites.len() as u32;
            for reference in &group.references {
                self.sites.push(reference.inst);
                self.checked.push(Checked {
                    rule: rules.at(inst),
                    offset: (reference.displacement - own) as i32,
                    size: reference.size as u8,
                    is_write: reference.is_write,
                    is_vector: reference.size > 8,
                    _unused: 0,
                });
            }
            let address = EffAddrOf(leader.operand);
            let (sp, rbp) = (Reg::Rsp, Reg::Rbp);
            let args = (address, address, number, sp, rbp);
            let last = (end - 1 - own) as u64;
            let count = group.references.len() as u32;
            let is_one = group
                .references
                .iter()
                .all(|reference| reference.displacement == own && reference.size == leader.size);
            match leader.size {
                _ if !is_one => {
                    let before = (own - first) as u64;
                    let args = (address, address, before, last, number, count, sp, rbp);
                    inst.add_call(Before, several, args);
                }
                1 => inst.add_call(Before, one, args),
                2 => inst.add_call(Before, two, args),
                4 => inst.add_call(Before, four, args),
                8 => inst.add_call(Before, eight, args),
                _ => inst.add_call(Before, wide, (address, address, last, number, sp, rbp)),
            }
        }
    }
}

/// The shadow of an address.
#[inline(always)]
fn shadow_of(address: u64) -> *const i8 {
    std::ptr::with_exposed_provenance(((address >> 3) + shadow::OFFSET) as usize)
}

/// True if a byte cannot be accessed, for code that is apart.
#[inline(always)]
fn is_closed(at: u64) -> bool {
    // SAFETY: the shadow is mapped as a whole.
    let shadow = unsafe { shadow_of(at).read_volatile() };
    shadow != 0 && (at & 7) as i8 >= shadow
}

/// Looks at the last byte of a reference. `again` is its address once more: code that is apart computes it anew, so that the
/// usual way needs one register.
#[inline(always)]
fn look(address: u64, again: u64, more: u64, access: u32, sp: u64, rbp: u64) {
    // SAFETY: the shadow is mapped as a whole.
    if unsafe { shadow_of(address.wrapping_add(more)).read() } != 0
        && is_closed(again.wrapping_add(more))
    {
        bad(again, access, sp, rbp);
    }
}

#[analysis]
fn one(address: u64, again: u64, access: u32, sp: u64, rbp: u64) {
    look(address, again, 0, access, sp, rbp);
}

#[analysis]
fn two(address: u64, again: u64, access: u32, sp: u64, rbp: u64) {
    look(address, again, 1, access, sp, rbp);
}

#[analysis]
fn four(address: u64, again: u64, access: u32, sp: u64, rbp: u64) {
    look(address, again, 3, access, sp, rbp);
}

#[analysis]
fn eight(address: u64, again: u64, access: u32, sp: u64, rbp: u64) {
    look(address, again, 7, access, sp, rbp);
}

/// A reference of another size: its first and last bytes are looked at.
#[analysis]
fn wide(address: u64, again: u64, more: u64, access: u32, sp: u64, rbp: u64) {
    // SAFETY: the shadow is mapped as a whole.
    if unsafe { shadow_of(address).read() | shadow_of(address.wrapping_add(more)).read() } != 0
        && (is_closed(again) || is_closed(again.wrapping_add(more)))
    {
        bad(again, access, sp, rbp);
    }
}

/// References of a string instruction.
#[analysis]
fn string(address: u64, count: u64, size: u64, down: u64, access: u32, sp: u64, rbp: u64) {
    let len = count.wrapping_mul(size);
    let first = match down {
        0 => address,
        _ => address.wrapping_sub(len).wrapping_add(size),
    };
    if len != 0 && custom::may_have(address) && !shadow::is_range_open(first, len) {
        bad_string(first, len, access, sp, rbp);
    }
}

#[cold]
#[inline(never)]
fn bad_string(first: u64, len: u64, access: u32, sp: u64, rbp: u64) {
    if let Some(address) = shadow::first_closed(first, len) {
        bad(address, access, sp, rbp);
    }
}

/// References of a group: the first byte and the last one are looked at.
#[analysis]
fn several(
    address: u64,
    again: u64,
    before: u64,
    last: u64,
    number: u32,
    count: u32,
    sp: u64,
    rbp: u64,
) {
    let (first, end) = (address.wrapping_sub(before), address.wrapping_add(last));
    // SAFETY: the shadow is mapped as a whole.
    if unsafe { shadow_of(first).read() | shadow_of(end).read() } != 0
        && (is_closed(again.wrapping_sub(before)) || is_closed(again.wrapping_add(last)))
    {
        bad_group(again, number, count, sp, rbp);
    }
}

#[cold]
#[inline(never)]
fn bad_group(address: u64, number: u32, count: u32, sp: u64, rbp: u64) {
    for access in number..number + count {
        bad(address, access, sp, rbp);
    }
}

#[cold]
#[inline(never)]
fn bad(address: u64, access: u32, sp: u64, rbp: u64) {
    let Some(checked) = checked(access) else {
        return;
    };
    let size = u64::from(checked.size);
    let address = address.wrapping_add_signed(checked.offset.into());
    let is_heap = custom::may_have(address) || custom::may_have(address.wrapping_add(size - 1));
    if !is_heap && !shadow::is_null(address) {
        return;
    }
    let Some(closed) = shadow::first_closed(address, size) else {
        return;
    };
    let partly = PARTLY.load(Relaxed);
    let may_be_partly = match size {
        _ if checked.is_write || partly == Partly::None as u64 => false,
        4.. if partly == Partly::All as u64 => true,
        _ => checked.is_vector,
    };
    let is_whole = may_be_partly && address.is_multiple_of(size);
    if is_whole && (address..address + size).any(shadow::is_open) {
        return;
    }
    // The rest needs little of the program's stack, so that it can be called there.
    Uninterrupted::run(|_| {
        errors::report(&Wrong::Access {
            access,
            is_write: checked.is_write,
            size,
            address: closed,
            stack: traces::at_inst(None, checked.rule, sp, rbp),
        });
    });
}
