//! Jump tables that may lead to more code, round by round.
//!
//! In most procedures nothing changes from one round to the next, and to examine all tables in each round takes most of
//! the time where a program has many tables whose sizes are not known. So what was found in a procedure is kept with what it
//! depends on, and the procedure is examined again when that has changed: the procedure itself, the number of entries that
//! may be taken, references to data inside of a table, code elsewhere to which an entry leads.

use std::sync::Arc;

use rayon::prelude::*;

use super::discovery::{Discovery, where_true};
use super::examined::{Examined, JumpUses, Place};
use super::jump_table::{self, Elsewhere, Surroundings, Tables};
use super::regions::region_end;
use super::traverse::{Body, mark};
use crate::parallel::AT_ONCE;

/// Most bytes that are decoded to find out whether there may be code.
const DECODED: u64 = 4096;

impl Body {
    /// True if its jump tables may give new targets.
    pub(super) fn has_open_tables(&self) -> bool {
        let is_settled = self.examined.is_settled && self.examined.changes == Some(self.changes);
        !self.indirect_jumps.is_empty() && !is_settled
    }
}

impl Discovery<'_> {
    /// Targets of tables that may not have been followed yet.
    pub(super) fn find_open_tables(&mut self, unbounded_limit: usize) -> Vec<(u64, u8)> {
        let this = &*self;
        let is_open = |i: &usize| self.bodies[*i].has_open_tables();
        let new = where_true(&self.news.tables).into_iter();
        let (open, settled): (Vec<usize>, Vec<usize>) = new.partition(is_open);
        let found: Vec<(usize, Option<Examined>, Vec<u64>)> = (open.into_par_iter())
            .with_max_len(AT_ONCE)
            .map(|i| {
                let body = &this.bodies[i];
                let anew = (!this.is_as_before(body, unbounded_limit))
                    .then(|| this.examine(body, unbounded_limit));
                let targets = &anew.as_ref().unwrap_or(&body.examined).targets;
                let new = this.not_followed(body, targets);
                (i, anew, new)
            })
            .collect();
        for i in settled {
            self.news.tables[i] = false;
        }
        let mut targets = Vec::new();
        for (i, anew, new) in found {
            let body = &mut self.bodies[i];
            if let Some(anew) = anew {
                body.examined = anew;
            }
            targets.extend(new.iter().map(|t| (*t, mark::INDIRECT)));
            body.examined.is_settled = body.examined.are_complete && new.is_empty();
            body.examined.targets = new;
        }
        targets
    }

    /// Has all tables examined again that may give new targets.
    pub(super) fn forget_open_tables(&mut self) {
        let open = self.bodies.iter_mut().filter(|b| b.has_open_tables());
        open.for_each(|body| body.examined = Examined::default());
    }

    /// The jump tables of all procedures.
    pub(super) fn find_tables(&self, unbounded_limit: usize) -> Vec<jump_table::FoundTable> {
        let bodies = self.bodies.par_iter().with_max_len(AT_ONCE);
        let found: Vec<Tables> = bodies
            .filter(|body| !body.indirect_jumps.is_empty())
            .map(|body| self.tables_of(body, &self.jumps_of(body), unbounded_limit))
            .collect();
        found.into_iter().flat_map(|t| t.found).collect()
    }

    /// True if the tables of a body are those that were found when it was examined last.
    fn is_as_before(&self, body: &Body, unbounded_limit: usize) -> bool {
        let before = &body.examined;
        let is_cut = |&(first, last): &(u64, u64)| {
            self.data_refs.any_in(first, last) || self.guessed_refs.any_in(first, last)
        };
        before.changes == Some(body.changes)
            && (before.limit == unbounded_limit || !before.depends.is_limited)
            && !before.depends.uncut.iter().any(is_cut)
            && self
                .places(&before.depends.outside)
                .eq(before.outside.iter().copied())
    }

    /// What is at some addresses.
    fn places(&self, addresses: &[u64]) -> impl Iterator<Item = Place> {
        addresses.iter().map(|address| {
            let body = &self.bodies[self.body_at(*address)?];
            Some((body.start, body.changes))
        })
    }

    /// Examines the tables of a body.
    fn examine(&self, body: &Body, unbounded_limit: usize) -> Examined {
        let jumps = self.jumps_of(body);
        let tables = self.tables_of(body, &jumps, unbounded_limit);
        let mut depends = tables.depends;
        depends.outside.sort_unstable();
        depends.outside.dedup();
        Examined {
            changes: Some(body.changes),
            jumps,
            is_settled: false,
            are_complete: tables.are_complete,
            limit: unbounded_limit,
            targets: tables.found.into_iter().flat_map(|t| t.targets).collect(),
            outside: self.places(&depends.outside).collect(),
            depends,
        }
    }

    /// The targets of a body's tables at which the code does not know yet that control may come there.
    fn not_followed(&self, body: &Body, targets: &[u64]) -> Vec<u64> {
        let is_new = |target: &u64| {
            let owner = if body.contains(*target) {
                Some(body)
            } else {
                self.body_at(*target).map(|i| &*self.bodies[i])
            };
            owner.is_none_or(|owner| !owner.is_leader_with(*target, mark::INDIRECT))
        };
        let mut new: Vec<u64> = targets.iter().copied().filter(is_new).collect();
        new.sort_unstable();
        new.dedup();
        new
    }

    /// What the jumps of a body do.
    fn jumps_of(&self, body: &Body) -> Arc<JumpUses> {
        if body.examined.changes == Some(body.changes) {
            Arc::clone(&body.examined.jumps)
        } else {
            Arc::new(jump_table::uses_of(self.image, body))
        }
    }

    /// The tables of a body.
    fn tables_of(&self, body: &Body, jumps: &JumpUses, unbounded_limit: usize) -> Tables {
        let other_part = |body: &Body, address: u64, certain: bool| {
            let is_fragment = |i: usize| self.seeds[i].looks_like_fragment;
            let Some(i) = self.body_at(address) else {
                return if self.may_continue(body, address) {
                    Elsewhere::Perhaps
                } else {
                    Elsewhere::Not
                };
            };
            let other = &self.bodies[i];
            if other.mark_at(address) & mark::START != 0 {
                return Elsewhere::Code;
            }
            let own = self.body_at(body.start);
            let is_part = (certain || is_fragment(i) || own.is_some_and(is_fragment))
                && jump_table::is_plausible(self.image, other, address);
            if is_part {
                Elsewhere::Perhaps
            } else {
                Elsewhere::Not
            }
        };
        let around = Surroundings {
            data_refs: &self.data_refs,
            guessed_refs: &self.guessed_refs,
            other_part: &other_part,
            unbounded_limit,
        };
        jump_table::find(self.image, body, jumps, &around)
    }

    /// True if a procedure may have code at an address after its known code, in no procedure: nothing states where it
    /// ends, and between are at most parts that tables have shown.
    fn may_continue(&self, body: &Body, address: u64) -> bool {
        let next = self.bodies_up_to(address);
        let (Some(own), Some(end)) = (
            self.body_at(body.start),
            region_end(&self.regions, body.start),
        ) else {
            return false;
        };
        let is_next = self.seeds[own].end.is_none() && (body.end..end).contains(&address);
        let are_own = || {
            let mut between = self.seeds[own + 1..next].iter();
            between.all(|seed| seed.looks_like_fragment)
        };
        if !is_next || !are_own() {
            return false;
        }
        let after = self.bodies.get(next).map_or(end, |body| body.start);
        let mut rest = Body::new(address, after.min(end).min(address + DECODED));
        self.data.mark(&mut rest);
        jump_table::is_plausible(self.image, &rest, address)
    }
}
