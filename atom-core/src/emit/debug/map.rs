//! Maps from addresses in debug information to addresses of the output.

use crate::analysis::AnalysisImage;
use crate::cfg::Cfg;
use crate::layout::Layout;
use crate::plan::Plan;

/// Unclaimed bytes between procedures up to this many are taken for padding.
const PADDING: u64 = 64;

/// A map of addresses.
pub(super) trait CodeMap: Sync {
    /// New start of code that began at an address.
    fn start(&self, old: u64) -> u64;
    /// New return address of a call that returned to an address.
    fn return_to(&self, old: u64) -> u64;
    /// The new places of a range, as pieces in the order of the original. Adjoining pieces are
    /// joined.
    fn pieces(&self, from: u64, to: u64, out: &mut Vec<Piece>);
    /// The new value of an address that is no address of code, or that keeps its value.
    fn data(&self, old: u64) -> u64;
}

/// A part of a range, and its new place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Original start.
    pub old: u64,
    /// New start.
    pub from: u64,
    /// New end.
    pub to: u64,
    /// True if the part was moved.
    pub is_moved: bool,
}

/// The range that represents several pieces: from the first moved piece to the last.
pub(super) fn hull(pieces: &[Piece]) -> Option<(u64, u64)> {
    let moved = pieces.iter().filter(|p| p.is_moved);
    let range = moved.fold(None, |range: Option<(u64, u64)>, p| match range {
        None => Some((p.from, p.to)),
        Some((from, to)) => Some((from.min(p.from), to.max(p.to))),
    });
    range.or_else(|| Some((pieces.first()?.from, pieces.last()?.to)))
}

/// The map of the program: moved procedures have new addresses, everything else keeps its address.
pub(super) struct Moved<'a> {
    pub cfg: &'a Cfg,
    pub plan: &'a Plan,
    pub layout: &'a Layout,
}

impl Moved<'_> {
    /// The file's addresses are shifted where new text is below the image.
    fn shift(&self, address: u64) -> u64 {
        address.wrapping_add(self.layout.region.shift)
    }
}

impl CodeMap for Moved<'_> {
    fn start(&self, old: u64) -> u64 {
        let moved = self
            .cfg
            .proc_at(old)
            .and_then(|p| self.layout.at_or_after(self.cfg, self.plan, p, old));
        match moved {
            Some(new) => self.shift(new),
            None => self.data(old),
        }
    }

    fn return_to(&self, old: u64) -> u64 {
        let call = self
            .cfg
            .proc_at(old.wrapping_sub(1))
            .and_then(|p| self.layout.return_address(self.cfg, self.plan, p, old));
        call.map_or_else(|| self.start(old), |new| self.shift(new))
    }

    fn pieces(&self, from: u64, to: u64, out: &mut Vec<Piece>) {
        let procs = &self.cfg.procs;
        let mut i = procs.partition_point(|p| p.end <= from);
        let mut at = from;
        let mut add = |piece: Piece| match out.last_mut() {
            _ if piece.from == piece.to => {}
            // The procedures of new text are in order, with padding between them.
            Some(last)
                if last.is_moved == piece.is_moved
                    && last.to <= piece.from
                    && piece.from - last.to <= PADDING =>
            {
                last.to = piece.to;
            }
            _ => out.push(piece),
        };
        let still = |from: u64, to: u64| Piece {
            old: from,
            from: self.shift(from),
            to: self.shift(to),
            is_moved: false,
        };
        while at < to {
            let Some(proc) = procs.get(i).filter(|p| p.start < to) else {
                if to - at > PADDING {
                    add(still(at, to));
                }
                return;
            };
            if at < proc.start {
                if proc.start - at > PADDING {
                    add(still(at, proc.start));
                }
                at = proc.start;
            }
            let end = proc.end.min(to);
            let id = crate::ids::ProcId::from_index(i);
            let new = |old| self.layout.at_or_after(self.cfg, self.plan, id, old);
            let moved = new(at).zip(new(end));
            match moved {
                Some((new_from, new_to)) => add(Piece {
                    old: at,
                    from: self.shift(new_from),
                    to: self.shift(new_to),
                    is_moved: true,
                }),
                None => add(still(at, end)),
            }
            at = end;
            i += 1;
        }
    }

    fn data(&self, old: u64) -> u64 {
        // Addresses of what the linker dropped are 0 or close to it.
        match old {
            0 | 1 => old,
            _ if old >= u64::MAX - 1 => old,
            _ => self.shift(old),
        }
    }
}

/// The map of the tool: all addresses are shifted by one distance.
pub(super) struct Slid<'a> {
    pub analysis: &'a AnalysisImage,
    /// Address in the output's file at which the tool's address 0 is.
    pub base: u64,
}

impl CodeMap for Slid<'_> {
    fn start(&self, old: u64) -> u64 {
        self.data(old)
    }

    fn return_to(&self, old: u64) -> u64 {
        self.data(old)
    }

    fn pieces(&self, from: u64, to: u64, out: &mut Vec<Piece>) {
        // Code that the linker dropped has addresses where there is none.
        if self.analysis.is_code(from) && from < to {
            out.push(Piece {
                old: from,
                from: self.data(from),
                to: self.data(to),
                is_moved: true,
            });
        }
    }

    fn data(&self, old: u64) -> u64 {
        match old {
            0 | 1 => old,
            _ if old > self.analysis.end() => old,
            _ => self.base.wrapping_add(old),
        }
    }
}
