//! Ends that may turn out to be none.
//!
//! A process that is about to become another program by `exec` has to complete its data file before,
//! but `exec` may fail. Then recording goes on where it was, and what was written only because of that end, such as
//! executions that were still open, is taken back.
use std::sync::atomic::Ordering;

use crate::record::ThreadRecorder;
use crate::record::session::{Collected, Session, lock};
use crate::record::thread::{Frame, Ghost, Store};
use crate::record::tree::Node;
use crate::unrecorded;
use crate::value::Area;

/// What a [`ThreadRecorder`] knows at one time.
pub struct Saved {
    frames: Vec<Frame>,
    ghosts: Vec<Ghost>,
    ghost_floor: usize,
    nodes: Vec<Node>,
    areas: Vec<Area>,
    sums: Option<Store>,
}

impl ThreadRecorder {
    /// What it knows, so that it can go back to that with [`restore`](Self::restore). Records of executions
    /// that have ended go to the file.
    pub fn save(&mut self) -> Saved {
        self.flush();
        Saved {
            frames: self.frames.clone(),
            ghosts: self.ghosts.clone(),
            ghost_floor: self.ghost_floor,
            nodes: self.tree.nodes.clone(),
            areas: self.areas.clone(),
            sums: match &self.store {
                Store::Average(sums) => Some(Store::Average(sums.clone())),
                Store::Histogram(sums) => Some(Store::Histogram(sums.clone())),
                Store::All(_) | Store::Playback(_) => None,
            },
        }
    }

    /// Goes back to what it knew. No section may have been entered since then.
    pub fn restore(&mut self, saved: Saved) {
        self.frames = saved.frames;
        self.ghosts = saved.ghosts;
        self.ghost_floor = saved.ghost_floor;
        self.tree.nodes = saved.nodes;
        self.areas = saved.areas;
        match (saved.sums, &mut self.store) {
            (Some(sums), store) => *store = sums,
            // Records that are not in the file belong to that end; the next ones begin a new block.
            (None, Store::All(encoder)) => encoder.clear(),
            (None, _) => {}
        }
    }
}

/// What a [`Session`] knows at one time.
pub struct Mark {
    collected: Collected,
    left_out: unrecorded::All,
    samples: u64,
    notes: usize,
    position: u64,
}

impl Session {
    /// What it knows now, so that it can go back to that after [`finish`](Self::finish). Recorders have been
    /// [saved](ThreadRecorder::save) before.
    pub fn mark(&self) -> Mark {
        let shared = &*self.shared;
        let output = lock(&shared.sink);
        Mark {
            collected: lock(&shared.collected).clone(),
            left_out: lock(&shared.left_out).clone(),
            samples: shared.samples.load(Ordering::Relaxed),
            notes: output.info.len(),
            position: output.sink.as_ref().map_or(0, |sink| sink.position()),
        }
    }

    /// The end was none: recording goes on as at that mark. The file stays what it is
    /// until there is more to write, or the next end.
    pub fn go_on(&self, mark: Mark) {
        let shared = &*self.shared;
        let mut output = lock(&shared.sink);
        *lock(&shared.collected) = mark.collected;
        *lock(&shared.left_out) = mark.left_out;
        shared.samples.store(mark.samples, Ordering::Relaxed);
        output.info.truncate(mark.notes);
        output.finished = false;
        output.sink = output.done.take();
        if let Some(sink) = &mut output.sink {
            sink.cut_off(mark.position);
        }
    }
}
