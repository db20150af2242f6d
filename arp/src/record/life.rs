//! What a recorder does beside entering and leaving sections: queries, forks, start and end of a thread.
use std::sync::Arc;

use crate::problem::Problem;
use crate::record::collected::Aggregate;
use crate::record::thread::{Caller, Frame, Store};
use crate::record::{Session, ThreadRecorder};
use crate::tree::{NONE, ROOT, Role};
use crate::types::{SectionKind, Sid, Step};

impl ThreadRecorder {
    /// Number of open sections, inherited ones included.
    pub fn depth(&self) -> usize {
        self.frames.len() - 1 + self.ghosts.len()
    }

    /// The open sections with their counters, outermost first.
    pub fn stack(&self) -> Vec<Step> {
        let step = |frame: &Frame| Step {
            sid: frame.sid,
            counter: self.tree.nodes[frame.node as usize].counter,
        };
        self.frames[1..].iter().map(step).collect()
    }

    /// The length of [`stack`](Self::stack).
    #[inline]
    pub fn recorded_depth(&self) -> usize {
        self.frames.len() - 1
    }

    /// The innermost recorded section with its counter.
    #[inline]
    pub fn top(&self) -> Option<Step> {
        let frame = self.frames.last().filter(|_| self.frames.len() > 1)?;
        let counter = self.tree.nodes[frame.node as usize].counter;
        Some(Step {
            sid: frame.sid,
            counter,
        })
    }

    /// Leaves all open sections, innermost first, so that their executions are recorded up to now.
    pub fn leave_all(&mut self) {
        self.exorcise(0);
        while self.frames.len() > self.base {
            self.close();
        }
    }

    /// Begins a new thread with the same number, within the open sections of its parent.
    /// `stack` is the parent's [`stack`](Self::stack). Sections that were open before are closed and not recorded.
    pub fn restart(&mut self, stack: &[Step]) {
        self.frames.clear();
        self.exorcise(0);
        let root = if matches!(self.store, Store::Playback(_)) {
            ROOT
        } else {
            NONE
        };
        self.serial += 1;
        self.frames.push(Frame {
            serial: self.serial,
            caller: Caller::default(),
            node: ROOT,
            sid: Sid(u32::MAX),
            kind: SectionKind::Plain,
            instance: root,
        });
        for step in stack {
            let top = self.frames[self.frames.len() - 1];
            let mut node = self.tree.child(top.node, step.sid);
            if node == NONE {
                node = self
                    .tree
                    .add(top.node, step.sid, SectionKind::Plain, Role::Real);
            }
            self.tree.nodes[node as usize].counter = step.counter;
            self.tree.nodes[node as usize].parent_serial = top.serial;
            let instance = match &self.store {
                Store::Playback(index) => index.child(top.instance, *step),
                _ => NONE,
            };
            self.serial += 1;
            self.frames.push(Frame {
                serial: self.serial,
                caller: Caller::default(),
                node,
                sid: step.sid,
                kind: SectionKind::Plain,
                instance,
            });
        }
        self.base = self.frames.len();
    }

    /// Whether the block in memory will soon be full, for callers that want to choose the time of the write.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        matches!(&self.store, Store::All(encoder) if encoder.is_nearly_full())
    }

    /// Writes the records in memory to the file, in mode [`RecordAll`](crate::Mode::RecordAll).
    #[cold]
    pub fn flush(&mut self) {
        if let Store::All(encoder) = &mut self.store
            && encoder.records() > 0
        {
            self.session.write_samples(self.tid, encoder);
        }
    }

    /// Drops the records that are not yet in the file; for the child after `fork`.
    pub fn forget(&mut self) {
        for node in self.tree.nodes.iter_mut().filter(|n| n.role.is_left_out()) {
            node.counter = 0;
        }
        match &mut self.store {
            Store::All(encoder) => encoder.clear(),
            Store::Average(stats) => stats.clear(),
            Store::Histogram(histograms) => histograms.clear(),
            Store::Playback(_) => return,
        }
        for node in &mut self.tree.nodes {
            node.encoded.values = NONE;
        }
    }

    /// Moves the recorder, in the child after a `fork`, to a session of the child with the same sets of values. Open
    /// sections stay open; earlier records belong to the parent. This takes no lock of the old session, as a thread
    /// that the child does not have may hold it.
    pub fn move_to(&mut self, session: &Session) {
        self.session = Arc::clone(&session.shared);
        self.forget();
    }

    /// Ends the thread. Sections that are still open are reported and not recorded.
    pub fn end(mut self) {
        self.finish();
    }

    /// Does the same as [`end`](Self::end), for recorders that are used again after
    /// [`restart`](Self::restart).
    pub fn finish(&mut self) {
        self.stop();
        self.deliver();
    }

    /// Closes the open sections. They are reported and not recorded.
    pub fn stop(&mut self) {
        let open = self.close_open();
        if !open.is_empty() {
            let thread = self.tid;
            self.report(&Problem::OpenAtEnd { thread, open });
        }
    }

    /// Closes the open sections without recording them. Returns them, outermost first.
    pub fn close_open(&mut self) -> Vec<Sid> {
        self.abandon(self.base, 0)
    }

    /// Hands the recorded sums or samples over to the session.
    pub(crate) fn deliver(&mut self) {
        self.flush();
        let sets = self.types.len();
        let mut collected = Vec::new();
        for index in 0..self.tree.nodes.len() as u32 {
            let slot = self.tree.nodes[index as usize].encoded.values as usize;
            if slot == NONE as usize {
                continue;
            }
            let aggregate = match &self.store {
                Store::Average(all) => Aggregate::Stats(all[slot..slot + sets].to_vec()),
                Store::Histogram(all) => Aggregate::Histograms(all[slot..slot + sets].to_vec()),
                _ => break,
            };
            collected.push((self.tree.path(index), aggregate));
        }
        self.session.collect(self.tid, collected);
        let left_out = self.tree.nodes.iter().filter(|n| n.role.is_left_out());
        let left_out = left_out.filter(|n| n.counter > 0);
        self.session
            .leave_out(left_out.map(|n| (n.sid, n.role == Role::NestedKernel, n.counter as u64)));
        self.forget();
    }
}
