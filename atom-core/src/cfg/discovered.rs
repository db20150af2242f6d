//! What discovery has found, with all that does not depend on which procedures have to stay in place.
//!
//! Whether a procedure can move shows in part only when the places of pads are known, which needs the graph. So the graph is
//! made again with more procedures that stay, and discovery, which takes most of the time, is done once.

use rayon::prelude::*;

use super::discovery::Discovery;
use super::jump_table::FoundTable;
use super::obstacles::{Described, Reasons};
use super::seeds::FrameFacts;
use super::traverse::mark;
use super::{Kept, Returns};
use crate::image::Image;
use crate::memory;

/// The procedures of an object, from which graphs are made.
pub struct Discovered<'a> {
    pub(super) discovery: Discovery<'a>,
    /// The jump tables of all procedures.
    pub(super) tables: Vec<FoundTable>,
    /// Why a procedure stays in place.
    pub(super) reasons: Reasons,
    /// What procedures that can move lack.
    pub(super) gaps: Vec<Option<String>>,
    /// The return addresses of each procedure's calls.
    pub(super) returns: Vec<Returns>,
    /// See [`Cfg::text_references`](super::Cfg::text_references).
    pub(super) text_references: Vec<u64>,
}

impl<'a> Discovered<'a> {
    /// Finds all procedures. `requested` are the return addresses of procedures that need no particular ones.
    pub fn new(image: &'a Image, frames: &FrameFacts, requested: Returns) -> Self {
        let mut discovery = Discovery::complete(image, frames);
        let bodies = discovery.bodies.par_iter_mut();
        bodies.for_each(|body| body.finish());
        let (tables, described) = rayon::join(
            || discovery.find_tables(usize::MAX),
            || discovery.described(),
        );
        let reasons = discovery.obstacles(frames, &tables, &described);
        if !described.on_small_stacks {
            discovery.unmark_described(&described, &tables);
        }
        let returns = discovery.returns(&described, requested);
        let text_references = discovery.text_references();
        discovery.mark_entries_from_unreached();
        discovery.set_fragments();
        discovery.clear_entries_between_parts();
        let gaps = (0..discovery.seeds.len())
            .map(|i| discovery.gap(i))
            .collect();
        // The graph is made beside the bodies, which is when most memory is in use.
        image.release_pages();
        memory::give_back();
        Self {
            gaps,
            discovery,
            tables,
            reasons,
            returns,
            text_references,
        }
    }

    /// Gives the memory back, which takes half a second where there are a million procedures, while the caller continues.
    pub fn release(self) {
        let bodies = self.discovery.bodies;
        rayon::spawn(move || drop(bodies));
    }

    /// Notes the procedures that stay in place for other reasons than their code, and marks the addresses by which
    /// procedures that stay reach others.
    pub(super) fn keep(&mut self, frames: &FrameFacts, kept: &Kept) {
        let discovery = &mut self.discovery;
        for (start, reason) in kept {
            if let Some(i) = discovery.body_at(*start) {
                self.reasons[i].get_or_insert_with(|| reason.clone());
            }
        }
        discovery.mark_landing_pads(frames, &self.reasons, &self.returns);
        discovery.mark_entries_from_opaque(&self.reasons);
    }
}

impl Discovery<'_> {
    /// Says for each body whether its calls push return addresses of the new text or of the original. `requested` is the choice
    /// for bodies that work with both.
    fn returns(&self, described: &Described, requested: Returns) -> Vec<Returns> {
        let seeds = self.seeds.iter().enumerate();
        let of_bodies = seeds.map(|(i, seed)| match seed.is_go {
            true => Returns::New,
            false if described.bodies.contains(&i) => Returns::Original,
            false => requested,
        });
        of_bodies.collect()
    }

    /// Marks landing pads to which the unwinder comes by original addresses. A procedure that stays keeps its exception
    /// table, and unwinding by original return addresses uses that table, too.
    fn mark_landing_pads(
        &mut self,
        frames: &FrameFacts,
        reasons: &[Option<String>],
        returns: &[Returns],
    ) {
        for (range, pad) in &frames.landing_pads {
            let owner = self.body_at(frames.ranges[*range].start);
            if owner.is_some_and(|i| reasons[i].is_some() || returns[i] != Returns::New)
                && let Some(i) = self.body_at(*pad)
            {
                self.body_mut(i).add_mark(*pad, mark::INDIRECT);
            }
        }
    }
}
