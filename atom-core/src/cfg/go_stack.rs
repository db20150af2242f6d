//! Functions of Go in which inserted code might find too little stack.
//!
//! Most functions of Go check at their entry that the goroutine's stack is large enough, and let it grow. Those marked
//! *nosplit* do not: they use what every check leaves free, 800 bytes together with the functions of this kind that they call. Go's
//! linker refuses programs with chains of calls that need more. Inserted code saves registers on the stack, too. So a
//! function at the end of a long chain stays in place if a chain with inserted code would exceed the limit.

use rustc_hash::FxHashMap;

use super::seeds::{FrameFacts, GoFunction};
use super::traverse::{Body, Ref};
use crate::x86::abi::RED_ZONE;

/// Bytes that a chain of such functions may use.
const LIMIT: u32 = 800;
/// Bytes that inserted code uses at most: saved registers, words for a stub, two return addresses, and rbp.
const INSERTED: u32 = 192;
/// Size in bytes of a return address.
const RETURN: u32 = 8;
/// What the names of the functions begin with that let the stack grow.
const GROWS: &str = "runtime.morestack";

/// A function without a check.
struct Unchecked {
    body: usize,
    /// Bytes of its own frame.
    frame: u32,
    /// The functions of this kind that it calls or jumps to.
    callees: Vec<usize>,
    /// Bytes above its frame that functions of this kind may use, its own return address included.
    above: u32,
}

/// Numbers of the bodies that must not get inserted code.
pub(super) fn tight(frames: &FrameFacts, bodies: &[Box<Body>]) -> Vec<usize> {
    if frames.go.is_empty() {
        return Vec::new();
    }
    let function = |start: u64| -> Option<&GoFunction> {
        let i = frames.go.binary_search_by_key(&start, |f| f.start).ok()?;
        Some(&frames.go[i])
    };
    let grows = |start: u64| function(start).is_some_and(|f| f.name.starts_with(GROWS));
    let target = |r: &Ref| match *r {
        Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => Some(t),
        _ => None,
    };
    let mut found: Vec<Unchecked> = Vec::new();
    let mut numbers = FxHashMap::default();
    for (i, body) in bodies.iter().enumerate() {
        let Some(function) = function(body.start) else {
            continue;
        };
        if !body.refs.iter().filter_map(target).any(grows) {
            numbers.insert(body.start, found.len());
            found.push(Unchecked {
                body: i,
                frame: function.frame,
                callees: Vec::new(),
                above: RETURN,
            });
        }
    }
    for one in &mut found {
        let targets = bodies[one.body].refs.iter().filter_map(target);
        one.callees = targets.filter_map(|t| numbers.get(&t).copied()).collect();
        one.callees.sort_unstable();
        one.callees.dedup();
    }
    // Chains that call themselves again end at the limit.
    let mut work: Vec<usize> = (0..found.len()).collect();
    while let Some(i) = work.pop() {
        let below = (found[i].above + found[i].frame + RETURN).min(2 * LIMIT);
        for callee in std::mem::take(&mut found[i].callees) {
            if found[callee].above < below {
                found[callee].above = below;
                work.push(callee);
            }
            found[i].callees.push(callee);
        }
    }
    // Callers of `duffzero` keep data below the return address, which inserted code leaves alone.
    let more = |one: &Unchecked| match function(bodies[one.body].start) {
        Some(f) if f.name.starts_with("runtime.duff") => RED_ZONE as u32,
        _ => 0,
    };
    let is_tight = |one: &&Unchecked| one.above + one.frame + INSERTED + more(one) > LIMIT;
    found.iter().filter(is_tight).map(|one| one.body).collect()
}
