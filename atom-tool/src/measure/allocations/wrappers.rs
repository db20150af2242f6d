//! Procedures that allocate for others: `operator new`, `xmalloc`, `zmalloc`. A report names who called them.

use std::collections::{BTreeMap, HashSet};

use crate::calls::params::Array;
use crate::measure::paths::{CallPaths, Entered, entered, owner};
use crate::navigation::handle::{Block, Inst, Proc};
use crate::navigation::operands::Operand;
use crate::navigation::program::Program;
use crate::{InstType, Reg};

use super::Role;

/// Number of instructions that a procedure has at most to be known by its code.
const MOST: usize = 60;

/// Number of procedures in a row, none of which allocates for its callers, after which a call path has left the allocator.
const NEAR: usize = 3;

/// What may follow `alloc` in the name of an allocator.
const ENDINGS: [&str; 30] = [
    "0", "64", "a", "aligned", "array", "at", "ate", "debug", "die", "exact", "fast", "for", "in",
    "internal", "mem", "memory", "n", "nn", "nothrow", "or", "raw", "safe", "slow", "st", "try",
    "uninit", "usable", "x", "zero", "zeroed",
];

/// True for names that say that a procedure allocates for its caller: `xmalloc`, `zrealloc_usable`, `std::allocator<T>::allocate`.
pub fn is_allocator(name: &str) -> bool {
    if name.contains("operator new") {
        return true;
    }
    // The last name, without parameters and arguments, and without what the compiler appends to copies.
    let mut depth = 0;
    let outer = name.chars().filter(|c| {
        let was = depth;
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        was == 0 && depth == 0
    });
    let outer: String = outer.collect();
    let last = outer.rsplit("::").find(|part| !part.is_empty());
    let last = last
        .unwrap_or_default()
        .split('.')
        .next()
        .unwrap_or_default();
    let lower = last.to_ascii_lowercase();
    let Some(at) = lower.rfind("alloc") else {
        return false;
    };
    !lower[..at].ends_with("de") && is_made_of(&lower[at + "alloc".len()..])
}

/// True if a text is nothing but endings, perhaps with `_` between them.
fn is_made_of(text: &str) -> bool {
    let text = text.trim_start_matches('_');
    let rest = |ending: &&'static str| text.strip_prefix(*ending);
    text.is_empty() || ENDINGS.iter().filter_map(rest).any(is_made_of)
}

/// Instrument side: the numbers of the procedures, as [`CallPaths::procs`] has them, that allocate for their callers, in
/// ascending order. Such have a name that says so; or they call nothing but allocators, get the size from their
/// callers, and write to no memory but to the stack and to variables.
pub fn wrappers(
    program: &Program<'_>,
    allocators: &[(Proc<'_>, Role)],
    paths: &CallPaths,
) -> Vec<u32> {
    let is_allocating = |role: Role| match role {
        Role::Known(known) => !known.is_mapping() && known.is_allocating(),
        Role::Sized(_) => true,
        Role::Frees => false,
    };
    let mut known: HashSet<usize> = (allocators.iter())
        .filter(|(_, role)| is_allocating(*role))
        .map(|(proc, _)| proc.index())
        .collect();
    let followed = || {
        program
            .procs()
            .filter(|proc| paths.place_of(*proc).is_some())
    };
    known.extend(
        followed()
            .filter(|proc| is_allocator(proc.name()))
            .map(|proc| proc.index()),
    );
    let small: Vec<Proc<'_>> = followed().filter(|proc| is_small(*proc)).collect();
    let mut calls: BTreeMap<usize, Option<Calls<'_>>> = BTreeMap::new();
    loop {
        let before = known.len();
        for proc in &small {
            let calls = calls
                .entry(proc.index())
                .or_insert_with(|| calls_of(program, *proc));
            let Some(found) = calls else { continue };
            let callees = &found.callees;
            if callees.is_empty() || !callees.iter().all(|callee| known.contains(callee)) {
                continue;
            }
            // Operands are looked at for the few procedures that get here.
            if found.parts.iter().any(|part| writes_elsewhere(*part)) {
                *calls = None;
            } else {
                known.insert(proc.index());
            }
        }
        if known.len() == before {
            break;
        }
    }
    let numbers = followed().filter(|proc| known.contains(&proc.index()));
    let mut numbers: Vec<u32> = numbers.filter_map(|proc| paths.place_of(proc)).collect();
    numbers.sort_unstable();
    numbers
}

fn is_small(proc: Proc<'_>) -> bool {
    let mut count = 0;
    for block in proc.blocks() {
        count += block.insts().count();
        if count > MOST {
            return false;
        }
    }
    count > 0
}

/// What a procedure enters.
struct Calls<'a> {
    /// The numbers of the procedures.
    callees: Vec<usize>,
    /// The procedure itself, and parts of it that the compiler split off.
    parts: Vec<Proc<'a>>,
}

/// True if a procedure writes to memory other than the stack and variables.
fn writes_elsewhere(proc: Proc<'_>) -> bool {
    let frame = proc.frame().and_then(|frame| frame.frame_reg());
    let is_own =
        |base: Option<Reg>| matches!(base, None | Some(Reg::Pc | Reg::Rsp)) || base == frame;
    let insts = proc.blocks().flat_map(|block| block.insts());
    let mut accesses = insts.flat_map(|inst| inst.memory());
    accesses.any(|memory| memory.access.writes() && !is_own(memory.base))
}

/// What a procedure enters; `None` if it calls as no wrapper does.
fn calls_of<'a>(program: &Program<'a>, proc: Proc<'a>) -> Option<Calls<'a>> {
    let mut found = Calls {
        callees: Vec::new(),
        parts: vec![proc],
    };
    for block in proc.blocks() {
        let last = block.last_inst();
        let leaves = block
            .successors()
            .iter()
            .any(|edge| edge.block.is_none_or(|to| to.proc() != proc));
        let is_call = last.is_type(InstType::Call);
        let is_here = |to: Block<'_>| owner(to.proc()) == owner(proc);
        if is_call
            && !block
                .successors()
                .iter()
                .any(|edge| edge.block.is_some_and(is_here))
        {
            // It ends the process.
            continue;
        }
        let enters = is_call || leaves && last.target_pc().is_some();
        if !enters {
            continue;
        }
        let callee = match entered(program, last) {
            Entered::Proc(callee) => callee,
            // A hook, such as a caller's own allocator.
            Entered::Any => continue,
            Entered::Nothing => return None,
        };
        if !is_call && owner(callee) == owner(proc) && !is_allocator(callee.name()) {
            // A part that the compiler split off, or the way back from one.
            if owner(proc) == proc && callee != proc {
                let of_part = calls_of(program, callee)?;
                found.callees.extend(of_part.callees);
                found.parts.extend(of_part.parts);
            }
            continue;
        }
        if has_constant_size(last) {
            return None;
        }
        found.callees.push(callee.index());
    }
    Some(found)
}

/// True if the arguments of a call are constants: what is allocated is then known to the procedure and not to its caller.
fn has_constant_size(call: Inst<'_>) -> bool {
    // For each of the first two arguments: whether it is a constant, if it is set in the block.
    let mut arguments = [None; 2];
    for inst in call
        .block()
        .insts()
        .take_while(|inst| inst.index() != call.index())
    {
        let reg = inst.operand_reg(0);
        let Some(argument) = [Reg::Rdi, Reg::Rsi]
            .iter()
            .position(|arg| reg == Some(*arg))
        else {
            continue;
        };
        let is_constant = |operand: &Operand| matches!(operand, Operand::Constant(_));
        let is_move = inst.mnemonic() == "mov";
        arguments[argument] = Some(is_move && inst.operands().iter().any(is_constant));
    }
    arguments[0] == Some(true) && arguments[1] != Some(false)
}

/// Analysis side: the numbers of [`wrappers`].
#[derive(Clone, Copy)]
pub struct Wrappers(pub Array<u32>);

impl Wrappers {
    /// How many of the callers of an allocator, the innermost first, belong to an allocator themselves: those that allocate
    /// for their callers, and what is inside of these. A caller is the number of a procedure, if it is known. 0 if no caller is
    /// outside of an allocator.
    pub fn inner(&self, callers: impl Iterator<Item = Option<usize>>) -> usize {
        let wrappers = self.0.as_slice();
        inner(callers, |proc| {
            wrappers.binary_search(&(proc as u32)).is_ok()
        })
    }
}

fn inner(
    callers: impl Iterator<Item = Option<usize>>,
    is_wrapper: impl Fn(usize) -> bool,
) -> usize {
    let mut inner = 0;
    for (at, caller) in callers.enumerate() {
        match caller {
            Some(proc) if is_wrapper(proc) => inner = at + 1,
            Some(_) if at - inner + 1 < NEAR => {}
            Some(_) => return inner,
            // The begin of a thread.
            None => return if at > inner { inner } else { 0 },
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{inner, is_allocator};

    #[test]
    fn what_is_inside_of_an_allocator_belongs_to_it() {
        let of = |callers: &[usize]| {
            let callers = callers.iter().map(|n| Some(*n)).chain([None]);
            inner(callers, |proc| proc < 10)
        };
        assert_eq!(of(&[20, 30]), 0);
        assert_eq!(of(&[1, 2, 20, 30]), 2);
        assert_eq!(of(&[20, 1, 21, 2, 30, 31]), 4);
        assert_eq!(of(&[20, 21, 22, 1, 30]), 0);
        assert_eq!(of(&[1, 2]), 0);
    }

    #[test]
    fn names_of_allocators() {
        for name in [
            "xmalloc",
            "zrealloc_usable",
            "g_malloc0_n",
            "operator new(unsigned long)",
            "sqlite3DbMallocRawNN",
            "PyObject_Malloc",
            "Perl_safesysrealloc",
            "xmalloc.constprop.0",
            "__rust_alloc_zeroed",
            "std::__new_allocator<std::pair<int, int> >::allocate(unsigned long, void const*)",
            "zmalloc_usable_internal",
            "alloc::raw_vec::RawVec<T,A>::try_allocate_in",
            "apr_palloc",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in [
            "main",
            "list_dealloc",
            "allocator_init",
            "alloc_page_of(int)",
            "f<my_alloc>::push(my_alloc)",
            "reallocated_row",
            "list_deallocate",
            "",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }
}
