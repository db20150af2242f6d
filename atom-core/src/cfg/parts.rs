//! Relations between procedures: parts that the compiler put elsewhere
//! (`foo.cold`), and entries elsewhere than at the start.

use rayon::prelude::*;

use super::ProcKind;
use super::discovery::Discovery;
use super::seeds::FrameFacts;
use super::traverse::{Body, Ref, mark};
use crate::ids::ProcId;

impl Discovery<'_> {
    /// Finds for each part put elsewhere the procedure to which it belongs, which is the procedure
    /// that jumps to it.
    pub(super) fn set_fragments(&mut self) {
        for i in 0..self.seeds.len() {
            if !self.seeds[i].looks_like_fragment || self.pointers.contains(self.seeds[i].start) {
                continue;
            }
            self.seeds[i].kind = ProcKind::Fragment(None);
        }
        let this = &*self;
        let is_fragment = |i: usize| matches!(this.seeds[i].kind, ProcKind::Fragment(_));
        let parents: Vec<(usize, usize)> = (this.bodies.par_iter().enumerate())
            .filter(|(p, _)| !is_fragment(*p) && !this.seeds[*p].is_doubtful)
            .flat_map_iter(|(p, body)| {
                body.refs.iter().filter_map(move |r| {
                    let (Ref::Jump(t) | Ref::CondJump(t)) = r else {
                        return None;
                    };
                    let f = this.body_at(*t)?;
                    is_fragment(f).then_some((f, p))
                })
            })
            .collect();
        for (f, p) in parents {
            if self.seeds[f].kind == ProcKind::Fragment(None) {
                self.seeds[f].kind = ProcKind::Fragment(Some(ProcId::from_index(p)));
                if self.seeds[f].name.is_none()
                    && let Some(name) = self.seeds[p].name.clone()
                {
                    self.seeds[f].name = Some(format!("{name}.cold"));
                }
            }
        }
    }

    /// Marks the targets of procedures that stay in place. They jump to original addresses, and such an
    /// address needs a pad if it is not a procedure's start.
    pub(super) fn mark_entries_from_opaque(&mut self, reasons: &[Option<String>]) {
        let mut entries = Vec::new();
        for (i, body) in self.bodies.iter().enumerate() {
            if reasons[i].is_some() {
                entries.extend(self.middles(i, body).map(|(_, t)| t));
            }
        }
        for t in entries {
            if let Some(i) = self.body_at(t)
                && self.bodies[i].mark_at(t) & mark::START != 0
            {
                self.body_mut(i).add_mark(t, mark::INDIRECT);
            }
        }
    }

    /// Pairs of procedures that move together or not at all, see [`super::Cfg::together`].
    pub(super) fn together(
        &self,
        frames: &FrameFacts,
        reasons: &[Option<String>],
    ) -> Vec<(ProcId, ProcId)> {
        let parts = self
            .seeds
            .iter()
            .enumerate()
            .filter_map(|(i, s)| match s.kind {
                ProcKind::Fragment(Some(parent)) => Some((i, parent.index())),
                _ => None,
            });
        let pads = frames.landing_pads.iter().filter_map(|(range, pad)| {
            let owner = self.body_at(frames.ranges[*range].start)?;
            Some((owner, self.body_at(*pad)?))
        });
        let middles: Vec<(usize, usize)> = (self.bodies.par_iter().enumerate())
            .flat_map_iter(|(i, body)| self.middles(i, body).map(move |(j, _)| (i, j)))
            .collect();
        let mut pairs: Vec<(ProcId, ProcId)> = parts
            .chain(pads)
            .chain(middles)
            .filter(|(a, b)| a != b && reasons[*a].is_none() && reasons[*b].is_none())
            .map(|(a, b)| (ProcId::from_index(a.min(b)), ProcId::from_index(a.max(b))))
            .collect();
        pairs.par_sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Entries of other bodies elsewhere than at their starts by direct jumps and calls of body `i`: number
    /// of the other body, and address.
    fn middles<'s>(&'s self, i: usize, body: &'s Body) -> impl Iterator<Item = (usize, u64)> + 's {
        body.refs.iter().filter_map(move |r| {
            let (Ref::Jump(t) | Ref::CondJump(t) | Ref::Call(t)) = *r else {
                return None;
            };
            let j = self.body_at(t)?;
            (j != i && self.bodies[j].start != t).then_some((j, t))
        })
    }

    /// Clears the entry marks at targets of jumps between the parts of one procedure, which are no entries.
    pub(super) fn clear_entries_between_parts(&mut self) {
        let whole = |s: &Self, i: usize| match s.seeds[i].kind {
            ProcKind::Fragment(Some(p)) => p.index(),
            _ => i,
        };
        let this = &*self;
        let mut outside: Vec<u64> = (this.bodies.par_iter().enumerate())
            .flat_map_iter(|(i, body)| {
                body.refs.iter().filter_map(move |r| {
                    let (Ref::Jump(t) | Ref::CondJump(t) | Ref::Call(t)) = r else {
                        return None;
                    };
                    let j = this.body_at(*t)?;
                    let is_entry = whole(this, i) != whole(this, j) || matches!(r, Ref::Call(_));
                    is_entry.then_some(*t)
                })
            })
            .collect();
        outside.par_sort_unstable();
        self.bodies.par_iter_mut().for_each(|body| {
            let start = body.start;
            for (i, m) in body.marks.iter_mut().enumerate() {
                if *m & mark::ENTRY != 0 && outside.binary_search(&(start + i as u64)).is_err() {
                    *m &= !mark::ENTRY;
                }
            }
        });
    }
}
