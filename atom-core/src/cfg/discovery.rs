//! What discovery knows of the program so far: procedures with their code, and addresses with what leads there.
//!
//! `build` begins with the seeds and runs rounds. In a round `open_tables` reads jump tables, `evidence` judges bytes of
//! which it is not certain that they are code, `gaps` looks at code outside of all procedures, `traps` at what follows
//! traps, and `grow` adds what was found. In the end `obstacles` says which procedures have to stay.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Starts;
use super::addresses::Addresses;
use super::regions::region_end;
use super::seeds::Seed;
use super::text_data::TextData;
use super::traverse::Body;
use crate::image::Image;
use crate::image::imports::Imports;

/// What was met where an address was searched for proofs in vain.
pub(super) struct Tested {
    /// Targets of calls and jumps; if procedures start there, they are proofs.
    pub targets: Box<[u64]>,
}

/// Which bodies a round has to look at. In most rounds few change, and to look at each of a million takes longer than the
/// rest of a round.
#[derive(Default)]
pub(super) struct News {
    /// By body: true if it may have references that have not been processed.
    pub refs: Vec<bool>,
    /// By body: true if its jump tables may give new targets.
    pub tables: Vec<bool>,
    /// By body: true if it may have traps with code after them.
    pub traps: Vec<bool>,
}

impl News {
    /// Everything in a number of bodies is new.
    pub(super) fn all(bodies: usize) -> Self {
        Self {
            refs: vec![true; bodies],
            tables: vec![true; bodies],
            traps: vec![true; bodies],
        }
    }

    /// Notes that a body has changed.
    pub(super) fn note(&mut self, body: usize) {
        self.refs[body] = true;
        self.tables[body] = true;
        self.traps[body] = true;
    }
}

/// The numbers of the bodies for which something is true.
pub(super) fn where_true(of_bodies: &[bool]) -> Vec<usize> {
    let all = of_bodies.iter().enumerate();
    all.filter_map(|(i, is_new)| is_new.then_some(i)).collect()
}

/// Bodies with what is to be done to each. `work` is in the order of the bodies, whose numbers `number` tells.
pub(super) fn chosen<'b, 'w, W>(
    mut bodies: &'b mut [Box<Body>],
    work: &'w [W],
    number: impl Fn(&W) -> usize,
) -> Vec<(&'b mut Body, &'w W)> {
    let mut first = 0;
    let mut chosen = Vec::with_capacity(work.len());
    for one in work {
        let i = number(one);
        let (body, others) = std::mem::take(&mut bodies)[i - first..]
            .split_first_mut()
            .expect("work is for bodies");
        chosen.push((&mut **body, one));
        (bodies, first) = (others, i + 1);
    }
    chosen
}

/// The state of discovery.
pub(super) struct Discovery<'a> {
    pub(super) image: &'a Image,
    pub(super) regions: Vec<(u64, u64)>,
    #[expect(clippy::vec_box, reason = "as for the bodies")]
    pub(super) seeds: Vec<Box<Seed>>,
    #[expect(
        clippy::vec_box,
        reason = "new ones are put between the others, which moves as many as there are behind"
    )]
    pub(super) bodies: Vec<Box<Body>>,
    /// What of the bodies is new.
    pub(super) news: News,
    /// Code addresses found in data or relocations that are not processed yet, each with true if it
    /// is certainly an address.
    pub(super) data_pointers: Vec<(u64, bool)>,
    /// Those of them that are certainly addresses, in order.
    pub(super) stored: Vec<u64>,
    /// Addresses of code that are in data, relocations or operands.
    pub(super) pointers: Addresses,
    /// Data addresses that code refers to.
    pub(super) data_refs: Addresses,
    /// Data addresses to which code may refer that is not known yet.
    pub(super) guessed_refs: Addresses,
    /// Index to find bodies by address.
    pub(super) index: Starts,
    /// The slots that the dynamic loader binds.
    pub(super) imports: Imports<'a>,
    /// True if code is after info tables, see [`has_info_table`](super::pointers::has_info_table).
    pub(super) has_info_tables: bool,
    /// Bytes of the text that are data.
    pub(super) data: TextData,
    /// Addresses to which no direct control leads, and of which nothing proves that they are code.
    pub(super) doubtful: Vec<u64>,
    /// Words of data that may be addresses of code where none is known, or any numbers.
    pub(super) lone: Vec<u64>,
    /// Those of them that were searched for proofs.
    pub(super) tested: FxHashMap<u64, Tested>,
    /// Number of bodies when `doubtful` was last searched for proofs.
    pub(super) bodies_at_last_proof: usize,
    /// By first address of a body: an address in it where there may be code or data.
    pub(super) ambiguous: FxHashMap<u64, u64>,
    /// By first address of a body: an address in it where there may be code that runs in place.
    pub(super) uncounted: FxHashMap<u64, u64>,
}

impl Discovery<'_> {
    /// An empty body over the range that seed `i` may cover: up to its stated end, the next seed
    /// or the end of its section.
    pub(super) fn empty_body(&self, i: usize) -> Body {
        let mut body = Body::new(self.seeds[i].start, self.region_of(&self.seeds, i));
        self.data.mark(&mut body);
        body
    }

    /// End of the range that seed `i` may cover.
    pub(super) fn region_of(&self, seeds: &[Box<Seed>], i: usize) -> u64 {
        let seed = &seeds[i];
        let region = region_end(&self.regions, seed.start).expect("seeds lie in regions");
        let next = seeds.get(i + 1).map_or(u64::MAX, |s| s.start);
        seed.end.unwrap_or(u64::MAX).min(next).min(region)
    }

    pub(super) fn body_at(&self, address: u64) -> Option<usize> {
        let i = self.bodies_up_to(address).checked_sub(1)?;
        self.bodies[i].contains(address).then_some(i)
    }

    /// Number of bodies that start at an address or before it.
    pub(super) fn bodies_up_to(&self, address: u64) -> usize {
        let offset = address.checked_sub(self.image.base).map(u32::try_from);
        match offset {
            None => 0,
            Some(Ok(offset)) if self.index.covers(self.bodies.len()) => self.index.up_to(offset),
            Some(_) => self.bodies.partition_point(|b| b.start <= address),
        }
    }

    /// A body that is to be changed.
    pub(super) fn body_mut(&mut self, i: usize) -> &mut Body {
        self.news.note(i);
        &mut self.bodies[i]
    }

    /// The range of the body at an address with its marks, or the range between bodies.
    pub(super) fn around(&self, address: u64) -> (Range<u64>, Option<&[u8]>) {
        let after = self.bodies_up_to(address);
        let before = after.checked_sub(1).map(|i| &self.bodies[i]);
        if let Some(body) = before.filter(|b| b.contains(address)) {
            return (body.start..body.end, Some(&body.marks));
        }
        let next = self.bodies.get(after).map_or(u64::MAX, |b| b.start);
        (before.map_or(0, |b| b.end)..next, None)
    }

    /// Makes the index of bodies.
    pub(super) fn index_bodies(&mut self) {
        let starts = self.seeds.iter().map(|seed| seed.start);
        self.index = Starts::of(self.image.base, starts);
    }
}
