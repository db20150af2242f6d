//! What was found becomes part of what is known: new leaders in known procedures, and
//! new procedures between the others.

use rayon::iter::Either;
use rayon::prelude::*;

use super::build::{Discovery, region_end};
use super::gaps::Followed;
use super::seeds::Seed;
use super::traverse::{Body, mark};
use super::{ProcKind, jump_table, pointers};
use crate::image::Image;
use crate::x86::branch::ENDBR64;
use crate::x86::plt;

/// An address in a known procedure to which control may come.
struct Leader {
    /// The number of the procedure's body.
    body: usize,
    target: u64,
    /// [`mark`] bits.
    bits: u8,
}

impl Discovery<'_> {
    /// Adds leaders and procedures; true if any code was new.
    pub(super) fn apply(&mut self, mut pending: Vec<(u64, u8)>) -> bool {
        pending.par_sort_unstable();
        pending.dedup();
        let this = &*self;
        let sort = |(target, bits): (u64, u8)| match this.body_at(target) {
            Some(body) => {
                let leader = Leader { body, target, bits };
                this.is_wanted(&leader).then_some(Either::Left(leader))
            }
            None => Some(Either::Right((target, bits))),
        };
        // Both in the order of addresses.
        let (leaders, outside): (Vec<Leader>, Vec<(u64, u8)>) = (pending.into_par_iter())
            .filter_map(sort)
            .partition_map(|either| either);
        let mut new_seeds = Vec::new();
        let mut followed = Followed::default();
        for (target, bits) in outside {
            if region_end(&self.regions, target).is_none() {
                continue;
            }
            let is_certain = bits & mark::ENTRY != 0 || self.has_endbr(target);
            if !is_certain && !self.may_be_code(target) {
                continue;
            }
            let callees = self.follow(target, &mut followed);
            if is_certain || callees.is_some() {
                new_seeds.push(target);
                // All starts at once: a procedure ends where the next one starts.
                new_seeds.extend(callees.unwrap_or_default());
            }
        }
        let image = self.image;
        let mut with_work = Vec::new();
        let (mut rest, mut first) = (&mut self.bodies[..], 0);
        for work in leaders.chunk_by(|a, b| a.body == b.body) {
            let i = work[0].body;
            let (body, others) = std::mem::take(&mut rest)[i - first..]
                .split_first_mut()
                .expect("work is for bodies");
            with_work.push((body, work));
            (rest, first) = (others, i + 1);
        }
        let fresh = with_work
            .into_par_iter()
            .map(|(body, work)| {
                let before = body.insts.len();
                let mut changed = false;
                body.tables_are_settled = false;
                if let Some((all, any)) = explore_together(image, body, work) {
                    *body = all;
                    body.finish();
                    return any;
                }
                for &Leader { target, bits, .. } in work {
                    let marks = body.mark_at(target);
                    changed |= marks & (bits | mark::LEADER) != bits | mark::LEADER;
                    if marks & mark::START == 0 && bits & (mark::ENTRY | mark::LANDING) == 0 {
                        // Only data says that this is code: believe it if it looks so throughout.
                        let mut trial = body.clone();
                        trial.explore(image, target);
                        if trial.obstacle.is_some() && body.obstacle.is_none()
                            || trial.disagrees_with(body, image.base)
                        {
                            continue;
                        }
                        *body = trial;
                    } else {
                        body.explore(image, target);
                    }
                    body.add_mark(target, bits);
                }
                if body.insts.len() != before {
                    body.finish();
                }
                changed
            })
            .reduce(|| false, |a, b| a | b);
        self.add_procs(new_seeds) | fresh
    }

    /// Whether something is new there, which also looks like code if only data says that it is.
    fn is_wanted(&self, leader: &Leader) -> bool {
        let Leader { body, target, bits } = *leader;
        if self.bodies[body].is_leader_with(target, bits) {
            return false;
        }
        bits & mark::INDIRECT == 0
            || jump_table::is_plausible(self.image, &self.bodies[body], target)
                && !self.is_plt_padding(body, target)
    }

    /// Adds procedures that start at these addresses, which lie in none;
    /// true if there were any.
    fn add_procs(&mut self, mut starts: Vec<u64>) -> bool {
        starts.sort_unstable();
        starts.dedup();
        if starts.is_empty() {
            return false;
        }
        // All starts first: each procedure ends where the next one starts.
        let new = starts.iter().map(|start| Seed::bare(*start)).collect();
        let bodies = starts.iter().map(|_| Body::default()).collect();
        let places: Vec<usize> = (starts.iter())
            .map(|start| self.seeds.partition_point(|s| s.start < *start))
            .collect();
        insert_all(&mut self.seeds, &places, new);
        insert_all(&mut self.bodies, &places, bodies);
        insert_all(&mut self.seen_refs, &places, vec![0; places.len()]);
        let mut bodies = std::mem::take(&mut self.bodies);
        let (this, image) = (&*self, self.image);
        let is_new = |(_, body): &(usize, &mut Body)| body.marks.is_empty();
        (bodies.par_iter_mut().enumerate().filter(is_new)).for_each(|(i, body)| {
            *body = this.empty_body(i);
            body.explore(image, body.start);
            body.finish();
            body.end_at_code();
        });
        self.bodies = bodies;
        self.index_bodies();
        true
    }

    /// Behind the jump of a PLT entry stands code only if it is bound lazily.
    fn is_plt_padding(&self, i: usize, address: u64) -> bool {
        self.seeds[i].kind == ProcKind::Plt
            && self
                .image
                .bytes_at(address, 2)
                .is_some_and(|b| b == plt::PADDING)
    }

    /// Whether the marker of indirect targets stands at an address.
    fn has_endbr(&self, address: u64) -> bool {
        self.image.bytes_at(address, ENDBR64.len()) == Some(&ENDBR64)
    }

    /// Whether an address outside all procedures, known only as a pointer,
    /// may be a procedure. Tables in the text of hand-written assembly look
    /// similar, and a pad there would destroy them: in doubt it is not.
    fn may_be_code(&self, address: u64) -> bool {
        if self.has_info_tables {
            return pointers::has_info_table(self.image, address);
        }
        let Some(end) = region_end(&self.regions, address) else {
            return false;
        };
        let next = self.seeds.partition_point(|s| s.start <= address);
        let end = self.seeds.get(next).map_or(end, |s| s.start.min(end));
        let next = self.data_refs.next_from(address);
        let is_read = next.is_some_and(|r| r < end);
        address.is_multiple_of(16) && !is_read
    }
}

/// Explores targets of which only data says that they are code, all in one trial,
/// where there are several: the body with them, and whether anything changed. `None`
/// if there is any doubt; then they are tried one by one.
fn explore_together(image: &Image, body: &Body, work: &[Leader]) -> Option<(Body, bool)> {
    let is_doubtful = |leader: &&Leader| {
        let is_known = body.mark_at(leader.target) & mark::START != 0;
        !is_known && leader.bits & (mark::ENTRY | mark::LANDING) == 0
    };
    if work.iter().filter(is_doubtful).count() < 2 {
        return None;
    }
    let mut trial = body.clone();
    let mut changed = false;
    for &Leader { target, bits, .. } in work {
        let marks = trial.mark_at(target);
        changed |= marks & (bits | mark::LEADER) != bits | mark::LEADER;
        trial.explore(image, target);
        trial.add_mark(target, bits);
    }
    let is_right = (trial.obstacle.is_none() || body.obstacle.is_some())
        && !trial.disagrees_anywhere(body, image.base);
    is_right.then_some((trial, changed))
}

/// Inserts items in front of those at these places, which are in order.
fn insert_all<T: Default>(all: &mut Vec<T>, places: &[usize], new: Vec<T>) {
    let mut from = all.len();
    all.resize_with(from + new.len(), T::default);
    let mut to = all.len();
    for (place, item) in places.iter().zip(new).rev() {
        while from > *place {
            (from, to) = (from - 1, to - 1);
            all.swap(from, to);
        }
        to -= 1;
        all[to] = item;
    }
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
