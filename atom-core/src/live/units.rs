//! Units of assembly that run on stacks of a language's runtime.
//!
//! The code of a language's runtime that goes from compiled code's stack to the C stack and back is entered on either
//! (Poly/ML, MIT Scheme). The stack of compiled code may have as little as some hundred bytes left, and no page that
//! guards its end: the compiler knows what such an entry needs. Which of the entries are reached on which stack does not
//! show in their own code. So all procedures of such a unit count as procedures in which rsp may lead to data.
//!
//! A unit is a sequence of neighbours without frame descriptions, one of which loads rsp from elsewhere. An object in
//! which much code has no frame descriptions has no such units.

use std::ops::Range;

use crate::cfg::{Cfg, Proc, ProcKind};
use crate::ids::ProcId;
use crate::image::Image;
use crate::x86::InstructionInfoFactory;

use super::foreign::Foreign;

/// Largest size in bytes of a unit.
const MOST_BYTES: u64 = 16 << 10;

/// Largest number of bytes between neighbours: padding.
const MOST_PADDING: u64 = 64;

/// The procedures of such units, as ranges of their numbers, in order.
#[derive(Debug)]
pub struct Units(Vec<Range<usize>>);

impl Units {
    /// Finds the units of an object.
    pub fn of(image: &Image, cfg: &Cfg) -> Self {
        let is_part = |proc: &Proc| !proc.is_described && !proc.is_go && proc.kind != ProcKind::Plt;
        let are_neighbours = |a: &Proc, b: &Proc| {
            is_part(a) && is_part(b) && b.start.saturating_sub(a.end) <= MOST_PADDING
        };
        let mut info = InstructionInfoFactory::new();
        let mut first = 0;
        let mut units = Vec::new();
        for procs in cfg.procs.chunk_by(are_neighbours) {
            let numbers = first..first + procs.len();
            first = numbers.end;
            let size = procs[procs.len() - 1].end - procs[0].start;
            let mut ids = numbers.clone().map(ProcId::from_index);
            if is_part(&procs[0])
                && size <= MOST_BYTES
                && ids.any(|id| !Foreign::of(image, cfg, id, &mut info).is_empty())
            {
                units.push(numbers);
            }
        }
        Self(units)
    }

    /// True if a procedure is in one of them.
    pub fn contains(&self, id: ProcId) -> bool {
        let after = self.0.partition_point(|unit| unit.start <= id.index());
        after > 0 && self.0[after - 1].contains(&id.index())
    }
}
