//! Parts of procedures that the compiler put elsewhere (`foo.cold`).

use std::collections::HashSet;

use super::ProcKind;
use super::build::Discovery;
use super::traverse::{Ref, mark};
use crate::ids::ProcId;

impl Discovery<'_> {
    /// Finds the procedure that each part put elsewhere belongs to: the one
    /// that jumps to it.
    pub(super) fn set_fragments(&mut self) {
        for i in 0..self.seeds.len() {
            if !self.seeds[i].looks_like_fragment || self.pointers.contains(&self.seeds[i].start) {
                continue;
            }
            self.seeds[i].kind = ProcKind::Fragment(None);
        }
        let mut parents = Vec::new();
        for (p, body) in self.bodies.iter().enumerate() {
            for r in &body.refs {
                let (Ref::Jump(t) | Ref::CondJump(t)) = r else {
                    continue;
                };
                if let Some(f) = self.body_at(*t)
                    && f != p
                    && matches!(self.seeds[f].kind, ProcKind::Fragment(_))
                    && !matches!(self.seeds[p].kind, ProcKind::Fragment(_))
                {
                    parents.push((f, p));
                }
            }
        }
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

    /// A jump between the parts of one procedure is no entry.
    pub(super) fn clear_entries_between_parts(&mut self) {
        let whole = |s: &Self, i: usize| match s.seeds[i].kind {
            ProcKind::Fragment(Some(p)) => p.index(),
            _ => i,
        };
        let mut outside: HashSet<u64> = HashSet::new();
        for (i, body) in self.bodies.iter().enumerate() {
            for r in &body.refs {
                let (Ref::Jump(t) | Ref::CondJump(t) | Ref::Call(t)) = r else {
                    continue;
                };
                if self
                    .body_at(*t)
                    .is_some_and(|j| whole(self, i) != whole(self, j) || matches!(r, Ref::Call(_)))
                {
                    outside.insert(*t);
                }
            }
        }
        for body in &mut self.bodies {
            let start = body.start;
            for (i, m) in body.marks.iter_mut().enumerate() {
                if *m & mark::ENTRY != 0 && !outside.contains(&(start + i as u64)) {
                    *m &= !mark::ENTRY;
                }
            }
        }
    }
}
