//! Slow paths of entering and leaving: new call paths, sections that cannot be recorded, and
//! sections that were not left.
use crate::problem::Problem;
use crate::record::ThreadRecorder;
use crate::record::thread::{Caller, Ghost};
use crate::tree::{NONE, Role};
use crate::types::{SectionKind, Sid};

/// Limit of open sections.
const MAX_DEPTH: usize = 1000;
/// Limit of call paths, so that an unbounded recursion does not fill the memory.
const MAX_PATHS: usize = 1 << 20;

/// Where an open section was found.
enum Found {
    Frame(usize),
    Ghost(usize),
}

impl ThreadRecorder {
    /// Enters a section for the first time on this path, or one that cannot be recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_slowly(&mut self, kind: SectionKind, sid: Sid, start: i64, caller: Caller) {
        let thread = self.tid;
        if sid > self.session.max_sid {
            let limit = self.session.max_sid;
            self.report(&Problem::UnknownSection { thread, sid, limit });
            return self.haunt(sid, caller);
        }
        let was = *self.kinds.entry(sid).or_insert(kind);
        if was != kind {
            self.report(&Problem::KindDiffers {
                thread,
                sid,
                was,
                now: kind,
            });
            return self.haunt(sid, caller);
        }
        let parent = self.frames[self.frames.len() - 1].node;
        let mut node = self.tree.child(parent, sid);
        if node == NONE {
            if self.frames.len() > MAX_DEPTH || self.tree.nodes.len() > MAX_PATHS {
                self.report(&Problem::TooDeep { thread, sid });
                return self.haunt(sid, caller);
            }
            let (open, kernel) = self.tree.look_up(parent, sid);
            let role = match (open, kernel, kind) {
                (true, _, _) if self.session.fold => Role::Folded,
                (true, _, SectionKind::Kernel | SectionKind::Profiled) => Role::Recursion,
                (true, _, SectionKind::Plain) => Role::Repeated,
                (_, Some(_), SectionKind::Kernel) => Role::NestedKernel,
                _ => Role::Real,
            };
            node = self.tree.add(parent, sid, kind, role);
        }
        let role = self.tree.nodes[node as usize].role;
        if role == Role::Real {
            return self.open(node, start, caller);
        }
        // The section that forbids this one may have been left without a call.
        let outer = self.frames.iter().rposition(|frame| match role {
            Role::NestedKernel => frame.kind == SectionKind::Kernel,
            _ => frame.sid == sid,
        });
        if let Some(at) = outer.filter(|at| *at >= self.base) {
            let old = self.frames[at].caller;
            let again = role != Role::NestedKernel && caller.is_same_place(&old);
            if caller.is_after(&old) || again {
                let ghosts = self.ghosts.partition_point(|g| g.above <= at);
                let open = self.abandon(at, ghosts);
                self.report(&Problem::Abandoned { thread, open });
                return self.enter_at(kind, sid, start, caller);
            }
        }
        match role {
            Role::Repeated => return self.open(node, start, caller),
            // A section that is not recorded counts its executions in the counter of its node.
            _ => self.tree.nodes[node as usize].counter += 1,
        }
        match role {
            Role::NestedKernel => {
                let outer = outer.map_or(Sid(0), |at| self.frames[at].sid);
                self.report(&Problem::NestedKernel { thread, sid, outer });
            }
            Role::Recursion => self.report(&Problem::Recursion { thread, sid }),
            _ => {}
        }
        self.haunt(sid, caller);
    }

    /// Leaves a section that is not the innermost open one, or is not open.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_slowly(&mut self, kind: SectionKind, sid: Sid, stack_pointer: usize) {
        let thread = self.tid;
        let Some(found) = self.find(sid) else {
            return self.report(&Problem::LeaveWithoutEnter { thread, sid });
        };
        // All sections above it should have been left before.
        let ended = |old: usize| old != 0 && stack_pointer > old;
        let (frames, ghosts, dead) = match found {
            Found::Ghost(at) => {
                let ghost = self.ghosts[at];
                (ghost.above, at + 1, ended(self.top_stack_pointer()))
            }
            Found::Frame(at) => {
                let ghosts = self.ghosts.partition_point(|g| g.above <= at);
                (at + 1, ghosts, ended(self.top_stack_pointer()))
            }
        };
        let inner = self.frames.len() > frames || self.ghosts.len() > ghosts;
        if inner {
            let open = self.abandon(frames, ghosts);
            self.report(&if dead {
                Problem::Abandoned { thread, open }
            } else {
                Problem::WrongNesting { thread, sid, open }
            });
        }
        match found {
            Found::Ghost(at) => self.exorcise(at),
            Found::Frame(at) if self.frames[at].kind == kind => self.close(),
            Found::Frame(at) => {
                let was = self.frames[at].kind;
                self.report(&Problem::KindDiffers {
                    thread,
                    sid,
                    was,
                    now: kind,
                });
                self.frames.truncate(at);
            }
        }
    }

    /// The innermost open section `sid`.
    fn find(&self, sid: Sid) -> Option<Found> {
        let ghost = self.ghosts.iter().rposition(|g| g.sid == sid);
        let frame = self.frames[self.base..].iter().rposition(|f| f.sid == sid);
        let frame = frame.map(|at| at + self.base);
        match (ghost, frame) {
            // A ghost above n frames is inside frame n - 1.
            (Some(ghost), Some(frame)) if self.ghosts[ghost].above <= frame => {
                Some(Found::Frame(frame))
            }
            (Some(ghost), _) => Some(Found::Ghost(ghost)),
            (None, frame) => frame.map(Found::Frame),
        }
    }

    fn top_stack_pointer(&self) -> usize {
        match self.ghosts.last() {
            Some(ghost) if ghost.above == self.frames.len() => ghost.caller.stack_pointer,
            _ => self.frames[self.frames.len() - 1].caller.stack_pointer,
        }
    }

    /// Opens a section that is not recorded.
    fn haunt(&mut self, sid: Sid, caller: Caller) {
        let above = self.frames.len();
        self.ghosts.push(Ghost { sid, caller, above });
        self.ghost_floor = above;
    }

    /// Removes ghosts from number `at` on.
    pub(super) fn exorcise(&mut self, at: usize) {
        self.ghosts.truncate(at);
        self.ghost_floor = self.ghosts.last().map_or(usize::MAX, |g| g.above);
    }

    /// Closes all frames above the first `frames` and all ghosts above the first `ghosts`, without recording them. Returns
    /// their sections.
    pub(super) fn abandon(&mut self, frames: usize, ghosts: usize) -> Vec<Sid> {
        let closed = self.frames.split_off(frames);
        let mut open: Vec<_> = closed.iter().map(|f| f.sid).collect();
        open.extend(self.ghosts[ghosts..].iter().map(|g| g.sid));
        self.exorcise(ghosts);
        open
    }

    /// Closes, without recording them, the sections whose entering function has ended: its stack pointer is
    /// below `stack_pointer`. Returns their number.
    pub fn unwind(&mut self, stack_pointer: usize) -> usize {
        let before = self.depth();
        let dead = |old: usize| old != 0 && old < stack_pointer;
        while self.depth() > self.base - 1 && dead(self.top_stack_pointer()) {
            if self.ghost_floor == self.frames.len() {
                self.exorcise(self.ghosts.len() - 1);
            } else {
                self.frames.pop();
            }
        }
        before - self.depth()
    }

    /// Closes, without recording them, all but the outermost `depth` sections; for the place
    /// that a `longjmp` leads to, with the depth that was read before `setjmp`.
    pub fn unwind_to_depth(&mut self, depth: usize) {
        while self.depth() > depth.max(self.base - 1) {
            if self.ghost_floor == self.frames.len() {
                self.exorcise(self.ghosts.len() - 1);
            } else {
                self.frames.pop();
            }
        }
    }
}
