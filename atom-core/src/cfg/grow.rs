//! Adds found targets to the known code: new leaders in known procedures, and
//! new procedures between the known ones.

use rayon::iter::Either;
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::discovery::{Discovery, News, chosen};
use super::gaps::Followed;
use super::regions::region_end;
use super::seeds::Seed;
use super::traverse::{Body, Others, mark};
use super::{ProcKind, jump_table, pointers};
use crate::image::Image;
use crate::x86::branch::ENDBR64;
use crate::x86::plt;

/// An address in a known procedure to which control may come.
struct Leader {
    /// Number of the procedure's body.
    body: usize,
    /// The address.
    target: u64,
    /// [`mark`] bits.
    bits: u8,
}

impl Discovery<'_> {
    /// Adds leaders and procedures. `pending` are addresses with [`mark`] bits. Returns true if any code was new.
    pub(super) fn apply(&mut self, mut pending: Vec<(u64, u8)>) -> bool {
        pending.par_sort_unstable();
        pending.dedup();
        let this = &*self;
        let sort = |(target, bits): (u64, u8)| match this.body_at(target) {
            Some(body) => {
                let is_known = this.bodies[body].mark_at(target) & mark::START != 0;
                if bits & mark::DOUBTFUL != 0 && !is_known && !this.is_proven(target) {
                    return Some(Either::Right((target, bits)));
                }
                let bits = bits & !mark::DOUBTFUL;
                let leader = Leader { body, target, bits };
                this.is_wanted(&leader).then_some(Either::Left(leader))
            }
            None => Some(Either::Right((target, bits))),
        };
        // Both lists stay in the order of addresses.
        let (leaders, outside): (Vec<Leader>, Vec<(u64, u8)>) = (pending.into_par_iter())
            .filter_map(sort)
            .partition_map(|either| either);
        let mut new_seeds = Vec::new();
        // New seeds to which nothing but jump tables is known to lead.
        let mut parts = FxHashSet::default();
        let mut candidates = Vec::new();
        for (target, bits) in outside {
            if region_end(&self.regions, target).is_none() {
                continue;
            }
            if bits & mark::DOUBTFUL != 0 && !self.is_proven(target) {
                self.doubtful.push(target);
                continue;
            }
            let is_certain = bits & (mark::ENTRY | mark::CERTAIN) != 0 || self.has_endbr(target);
            if is_certain || self.may_be_code(target) {
                candidates.push((target, bits, is_certain));
            }
        }
        let addresses: Vec<u64> = candidates.iter().map(|(target, ..)| *target).collect();
        let followed = self.follow_all(&addresses, &mut Followed::new(self.image));
        for ((target, bits, is_certain), callees) in candidates.into_iter().zip(followed) {
            if is_certain || callees.is_some() {
                new_seeds.push(target);
                if bits == mark::INDIRECT && !self.pointers.contains(target) {
                    parts.insert(target);
                } else {
                    parts.remove(&target);
                }
                // The callees are added at the same time, because a procedure ends where the next one starts.
                new_seeds.extend(callees.unwrap_or_default());
            }
        }
        let image = self.image;
        let work: Vec<&[Leader]> = leaders.chunk_by(|a, b| a.body == b.body).collect();
        for leaders in &work {
            self.news.note(leaders[0].body);
        }
        let with_work = chosen(&mut self.bodies, &work, |leaders| leaders[0].body);
        let fresh = with_work
            .into_par_iter()
            .map(|(body, work)| {
                let before = body.insts.len();
                let mut changed = false;
                if let Some(any) = explore_together(image, body, work) {
                    body.finish();
                    return any;
                }
                for &Leader { target, bits, .. } in *work {
                    let is_new = !body.is_leader_with(target, bits);
                    if is_doubtful(body, target, bits) {
                        // Only data tells that there is code, so the target counts if all of its code is plausible.
                        let explore = |body: &mut Body| body.explore(image, target);
                        if !body.attempt(image.base, Others::Earlier, explore) {
                            body.refuse(target);
                            continue;
                        }
                    } else {
                        body.explore(image, target);
                    }
                    body.add_mark(target, bits);
                    changed |= is_new;
                }
                if body.insts.len() != before {
                    body.finish();
                }
                changed
            })
            .reduce(|| false, |a, b| a | b);
        let added = self.add_procs(new_seeds, false);
        self.note_parts(&parts);
        added | fresh
    }

    /// Notes that seeds are parts of other procedures.
    fn note_parts(&mut self, parts: &FxHashSet<u64>) {
        if parts.is_empty() {
            return;
        }
        for seed in &mut self.seeds {
            seed.looks_like_fragment |= parts.contains(&seed.start);
        }
    }

    /// True if a leader is new. If only data names its address, the bytes must also be plausible code.
    fn is_wanted(&self, leader: &Leader) -> bool {
        let Leader { body, target, bits } = *leader;
        let own = &self.bodies[body];
        if own.is_leader_with(target, bits)
            || is_doubtful(own, target, bits) && own.has_refused(target)
        {
            return false;
        }
        bits & mark::INDIRECT == 0
            || jump_table::is_plausible(self.image, own, target)
                && !self.is_plt_padding(body, target)
    }

    /// Adds procedures that start at these addresses, which are in no known procedure; `is_doubtful` tells that
    /// nothing proves that there is code. Returns true if there were any.
    pub(super) fn add_procs(&mut self, mut starts: Vec<u64>, is_doubtful: bool) -> bool {
        starts.par_sort_unstable();
        starts.dedup();
        if starts.is_empty() {
            return false;
        }
        // All seeds are added before any body, because each procedure ends where the next one starts.
        let new = |start: &u64| {
            Box::new(Seed {
                is_doubtful,
                ..Seed::bare(*start)
            })
        };
        let new = starts.iter().map(new).collect();
        let bodies = starts.iter().map(|_| Box::default()).collect();
        let places: Vec<usize> = (starts.iter())
            .map(|start| self.seeds.partition_point(|s| s.start < *start))
            .collect();
        insert_all(&mut self.seeds, &places, new);
        self.index.insert(&places, self.image.base, &starts);
        insert_all(&mut self.bodies, &places, bodies);
        let News {
            refs,
            tables,
            traps,
        } = &mut self.news;
        for news in [refs, tables, traps] {
            insert_all(news, &places, vec![true; places.len()]);
        }
        let mut bodies = std::mem::take(&mut self.bodies);
        let (this, image) = (&*self, self.image);
        let numbers: Vec<usize> = (places.iter().zip(0..))
            .map(|(place, before)| place + before)
            .collect();
        let new = chosen(&mut bodies, &numbers, |number| *number);
        new.into_par_iter().for_each(|(body, number)| {
            *body = this.empty_body(*number);
            body.explore(image, body.start);
            body.finish();
            body.end_at_code();
        });
        self.bodies = bodies;
        true
    }

    /// True if the bytes after the jump of a PLT entry are padding; an entry that is bound lazily has code there.
    fn is_plt_padding(&self, i: usize, address: u64) -> bool {
        self.seeds[i].kind == ProcKind::Plt
            && self
                .image
                .bytes_at(address, 2)
                .is_some_and(|b| b == plt::PADDING)
    }

    /// True if `endbr64`, the marker of indirect targets, is at an address.
    pub(super) fn has_endbr(&self, address: u64) -> bool {
        self.image.bytes_at(address, ENDBR64.len()) == Some(&ENDBR64)
    }

    /// True if an address outside of all procedures, which is no target of direct control,
    /// may start a procedure.
    fn may_be_code(&self, address: u64) -> bool {
        if self.has_info_tables {
            pointers::has_info_table(self.image, address)
        } else {
            !self.data.contains(address)
        }
    }
}

/// True if only data tells that there is code at an address of a body.
fn is_doubtful(body: &Body, address: u64, bits: u8) -> bool {
    body.mark_at(address) & mark::START == 0 && bits & (mark::ENTRY | mark::LANDING) == 0
}

/// Explores several targets that only data names, all in one trial. Returns true if anything changed; `None` if there is any
/// doubt or only one target, and the body is as before. The caller then tries the targets one by one.
fn explore_together(image: &Image, body: &mut Body, work: &[Leader]) -> Option<bool> {
    let doubtful = work
        .iter()
        .filter(|leader| is_doubtful(body, leader.target, leader.bits));
    if doubtful.count() < 2 {
        return None;
    }
    let mut changed = false;
    let is_right = body.attempt(image.base, Others::All, |body| {
        for &Leader { target, bits, .. } in work {
            changed |= !body.is_leader_with(target, bits);
            body.explore(image, target);
            body.add_mark(target, bits);
        }
    });
    is_right.then_some(changed)
}

/// Inserts new items in front of the items at `places`, which ascend.
pub(super) fn insert_all<T>(all: &mut Vec<T>, places: &[usize], new: Vec<T>) {
    let Some(&first) = places.first() else {
        return;
    };
    let mut after = all.split_off(first).into_iter();
    all.reserve(after.len() + new.len());
    let mut taken = first;
    for (&place, item) in places.iter().zip(new) {
        all.extend(after.by_ref().take(place - taken));
        all.push(item);
        taken = place;
    }
    all.extend(after);
}

#[cfg(test)]
mod tests {
    use super::insert_all;

    #[test]
    fn items_go_in_front_of_their_places() {
        let mut all = vec!["b", "d", "e"];
        insert_all(&mut all, &[0, 1, 1, 3], vec!["a", "c", "c2", "f"]);
        assert_eq!(all, ["a", "b", "c", "c2", "d", "e", "f"]);
        insert_all(&mut all, &[], Vec::new());
        assert_eq!(all.len(), 7);
        let mut none: Vec<u32> = Vec::new();
        insert_all(&mut none, &[0, 0], vec![1, 2]);
        assert_eq!(none, [1, 2]);
    }
}
