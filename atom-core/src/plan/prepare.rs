//! What is found out of the calls before any of them is planned: the facts of their routines, and the
//! registers that they look at.

use std::collections::HashMap;

use rayon::prelude::*;

use super::Clobbers;
use super::data::Data;
use crate::cfg::Cfg;
use crate::error::{Error, Result};
use crate::ids::InstId;
use crate::image::Image;
use crate::live::{EffectsOf, RegSet};
use crate::tool::calls::NO_REGISTER;
use crate::tool::{Argument, Call, CallPlace, Calls, Scope};

/// Facts about a routine that is called.
#[derive(Clone, Copy)]
pub struct Routine {
    /// What it may change.
    pub clobbers: Clobbers,
    /// Mask of the arguments that are the same in all calls.
    pub common: u64,
}

/// Number of calls in one piece of parallel work.
const CALLS: usize = 8192;

/// Arguments of a routine's first call, and a mask of those that are the same in all its calls.
type Common<'a> = (&'a [Argument], u64);

/// Mask of the arguments that are the same in both calls.
fn same(first: &[Argument], args: &[Argument]) -> u64 {
    let pairs = first.iter().zip(args).take(64).enumerate();
    let differ = pairs.filter(|(_, (a, b))| a != b);
    !differ.fold(0, |bits, (i, _)| bits | 1 << i)
}

/// Facts about all routines that are called, by their addresses.
pub fn routines(
    calls: &Calls,
    clobbers: &dyn Fn(u64) -> Clobbers,
) -> Result<HashMap<u64, Routine>> {
    let common = |some: &[Call]| -> Option<Vec<(u64, Common<'_>)>> {
        let mut found: Vec<(u64, Common<'_>)> = Vec::new();
        let mut last = 0;
        for call in some {
            let range = call.args.start as usize..call.args.end as usize;
            let args = calls.args.get(range)?;
            // Mostly the same routine is called again.
            let routine = call.routine.get();
            if found.get(last).is_none_or(|f| f.0 != routine) {
                let known = found.iter().position(|f| f.0 == routine);
                last = known.unwrap_or(found.len());
                if known.is_none() {
                    found.push((routine, (args, !0)));
                }
            }
            let (first, bits) = &mut found[last].1;
            *bits &= same(first, args);
        }
        Some(found)
    };
    let parts: Option<Vec<_>> = calls.calls.par_chunks(CALLS).map(common).collect();
    let Some(parts) = parts else {
        let reason = "a call's arguments are out of range";
        return Err(Error::new("planning calls", reason));
    };
    let mut routines: HashMap<u64, Common<'_>> = HashMap::new();
    for (routine, (first, bits)) in parts.into_iter().flatten() {
        let known = routines.entry(routine).or_insert((first, !0));
        // Arguments that only later calls have are not common.
        let own = (1u64 << known.0.len().min(63)) - 1;
        known.1 &= (bits & same(known.0, first)) | !own;
    }
    let routine = |(at, (_, common)): (u64, Common<'_>)| {
        let clobbers = clobbers(at);
        (at, Routine { clobbers, common })
    };
    Ok(routines.into_iter().map(routine).collect())
}

/// Drops the calls that are not made, and the contents that have been copied to `data`.
pub fn forget(calls: &mut Calls, data: &mut Data, is_dropped: impl Fn(usize) -> bool) {
    calls.placed = Vec::new();
    let mut kept = Calls::default();
    let mut offsets = Vec::new();
    for (_, call) in calls
        .calls
        .iter()
        .enumerate()
        .filter(|(i, _)| !is_dropped(*i))
    {
        let range = call.args.start as usize..call.args.end as usize;
        let start = kept.args.len() as u32;
        kept.args.extend_from_slice(&calls.args[range.clone()]);
        offsets.extend_from_slice(&data.offsets[range]);
        kept.calls.push(Call {
            args: start..kept.args.len() as u32,
            ..call.clone()
        });
    }
    if kept.calls.len() < calls.calls.len() {
        calls.calls = kept.calls;
        calls.args = kept.args;
        data.offsets = offsets;
    }
}

/// The registers that calls take as arguments. Such an argument is the program's own value, also of a
/// register that the program does not read again. So no point may leave another value in it. A register
/// that the call's own instruction reads, or has just written, is right anyway.
pub fn seen(image: &Image, cfg: &Cfg, calls: &Calls) -> RegSet {
    let of = |argument: &Argument| match *argument {
        Argument::Regv(n @ 0..=15) => RegSet::gpr(n.into()),
        Argument::Regv(17) => RegSet::FLAGS,
        Argument::Regv(n @ 32..=47) | Argument::RegvHigh(n @ 32..=47) => {
            RegSet::xmm(usize::from(n) - 32)
        }
        Argument::ReturnValue => RegSet::gpr(0),
        _ => RegSet::EMPTY,
    };
    let seen_by = |effects: &mut EffectsOf, call: &Call, seen: RegSet| {
        let args = calls
            .args
            .get(call.args.start as usize..call.args.end as usize);
        let args = args.unwrap_or_default().iter();
        let mut mine = args.map(of).fold(RegSet::EMPTY, RegSet::with);
        let sums =
            (call.args.start..call.args.end).filter_map(|i| sum(calls.args.get(i as usize)?));
        let sums = sums.fold(RegSet::EMPTY, RegSet::with).without(seen);
        let unread = if sums.is_empty() {
            sums
        } else {
            unread(effects, (image, cfg), InstId(call.id), sums)
        };
        if call.scope == Scope::Inst && !mine.without(seen).is_empty() {
            let effects = effects.of(&cfg.decode(image, InstId(call.id)));
            mine = mine.without(effects.uses);
            if call.place == CallPlace::After {
                mine = mine.without(effects.kills);
            }
        }
        seen | mine | unread
    };
    let chunks = calls.calls.par_chunks(CALLS);
    let parts = chunks.map_init(EffectsOf::new, |effects, some| {
        some.iter()
            .fold(RegSet::EMPTY, |seen, call| seen_by(effects, call, seen))
    });
    parts.reduce(|| RegSet::EMPTY, RegSet::with)
}

/// The registers of a sum.
fn sum(argument: &Argument) -> Option<RegSet> {
    let Argument::Sum(base, index, ..) = *argument else {
        return None;
    };
    let register = |number: u8| match number {
        NO_REGISTER => RegSet::EMPTY,
        number => RegSet::gpr(number.into()),
    };
    Some(register(base) | register(index))
}

/// Those of some registers that the rest of the block, from an instruction on, does not certainly read before it
/// changes them. The others keep the program's values up to there.
fn unread(
    effects: &mut EffectsOf,
    (image, cfg): (&Image, &Cfg),
    from: InstId,
    some: RegSet,
) -> RegSet {
    let (mut waiting, mut unread) = (some, RegSet::EMPTY);
    let block = cfg.block(cfg.block_of(from)).insts();
    for inst in block.filter(|inst| inst.0 >= from.0) {
        let effects = effects.of(&cfg.decode(image, inst));
        waiting = waiting.without(effects.uses);
        let kept = waiting.without(effects.kills);
        unread |= waiting.without(kept);
        waiting = kept;
        if waiting.is_empty() {
            break;
        }
    }
    unread | waiting
}
