//! Undoing the end of a recording.
//!
//! A process has to complete its data file before it becomes another program by `exec`, but `exec` may fail.
//! Recording then continues where it was. Records that were written only because of the end, such as executions that
//! were still open, are removed again.
use std::sync::atomic::Ordering;

use crate::record::ThreadRecorder;
use crate::record::collected::Collected;
use crate::record::session::Session;
use crate::record::shared::lock;
use crate::record::thread::{Frame, Ghost, Store};
use crate::tree::Node;
use crate::unrecorded;
use crate::value::Area;

/// Saved state of a [`ThreadRecorder`].
pub struct Saved {
    frames: Vec<Frame>,
    ghosts: Vec<Ghost>,
    ghost_floor: usize,
    nodes: Vec<Node>,
    areas: Vec<Area>,
    sums: Option<Store>,
}

impl ThreadRecorder {
    /// Saves the state for [`restore`](Self::restore). Records of executions that have ended go to the file.
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

    /// Restores a saved state. No section may have been entered since it was saved.
    pub fn restore(&mut self, saved: Saved) {
        self.frames = saved.frames;
        self.ghosts = saved.ghosts;
        self.ghost_floor = saved.ghost_floor;
        self.tree.nodes = saved.nodes;
        self.areas = saved.areas;
        match (saved.sums, &mut self.store) {
            (Some(sums), store) => *store = sums,
            // Records that are not in the file were made by the end; the next ones begin a new block.
            (None, Store::All(encoder)) => encoder.clear(),
            (None, _) => {}
        }
    }
}

/// Saved state of a [`Session`].
pub struct Mark {
    collected: Collected,
    left_out: unrecorded::All,
    samples: u64,
    notes: usize,
    position: u64,
}

impl Session {
    /// Saves the state for [`go_on`](Self::go_on) after [`finish`](Self::finish). All recorders must have been
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

    /// Undoes the end: recording continues from the mark. The file stays unchanged until there is more to write, or
    /// until the next end.
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
