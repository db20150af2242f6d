//! The recorder of one thread: entering and leaving sections.
//!
//! Counters: an execution's counter is its start index if it is the first of its section
//! within the execution of the section around it, else one more than that of the one before.
//! So the stack of sections with their counters, the *tuple*, names an execution
//! whatever happens in other threads or earlier.
//!
//! Nothing here takes a lock or allocates, except when a call path is
//! seen for the first time, and when a block of records is full and goes to the file.
use std::collections::HashMap;
use std::sync::Arc;

use crate::histogram::Histogram;
use crate::problem::Problem;
use crate::record::Meter;
use crate::record::block::{Encoder, Open};
use crate::record::playback::Index;
use crate::record::session::{Aggregate, Shared};
use crate::record::tree::{NONE, ROOT, Role, Tree};
use crate::stats::Stats;
use crate::types::{DataType, Kind, Mode, Sid, Step, Tid};
use crate::value::Area;

/// Open sections at most.
const MAX_DEPTH: usize = 1000;
/// Call paths at most, so that a wild recursion does not fill the memory.
const MAX_PATHS: usize = 1 << 20;

/// What is known of the function that enters or leaves a section. It tells sections that a `longjmp` or an
/// exception left from those that are still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its stack pointer; 0 if it is not known.
    pub stack_pointer: usize,
    /// A number for the place in the program, such as the return address; 0 if it is not known.
    pub site: usize,
}

impl Caller {
    /// Whether the function that `old` was has ended.
    fn is_after(&self, old: &Self) -> bool {
        old.stack_pointer != 0 && self.stack_pointer > old.stack_pointer
    }

    /// Whether the same function entered the same section before: in an earlier iteration.
    fn is_same_place(&self, old: &Self) -> bool {
        self.stack_pointer != 0 && self.site != 0 && self == old
    }
}

/// An open section that is recorded, or, at the bottom of the stack, none or an inherited one.
#[derive(Clone, Copy)]
struct Frame {
    serial: u64,
    caller: Caller,
    node: u32,
    sid: Sid,
    kind: Kind,
    /// In playback the instance in the data file.
    instance: u32,
}

impl Open for Frame {
    #[inline]
    fn serial(&self) -> u64 {
        self.serial
    }

    #[inline]
    fn node(&self) -> u32 {
        self.node
    }
}

/// An open section that is not recorded; it only waits to be left.
#[derive(Clone, Copy)]
struct Ghost {
    sid: Sid,
    caller: Caller,
    /// The number of frames below it.
    above: usize,
}

enum Store {
    Average(Vec<Stats>),
    All(Encoder),
    Histogram(Vec<Histogram>),
    Playback(Arc<Index>),
}

/// Records what one thread does; made by [`Session::thread`](crate::Session::thread).
///
/// It is an explicit value: the caller keeps it where only that thread uses it. What it holds goes
/// to the session with [`end`](Self::end) or when it is dropped; a recorder that is leaked loses
/// the records since its last full block.
pub struct ThreadRecorder {
    session: Arc<Shared>,
    tid: Tid,
    tree: Tree,
    /// The first is the root.
    frames: Vec<Frame>,
    ghosts: Vec<Ghost>,
    /// Frames below the topmost ghost, or `usize::MAX`.
    ghost_floor: usize,
    /// So many frames cannot be left: the root and inherited ones.
    base: usize,
    serial: u64,
    areas: Vec<Area>,
    types: Box<[DataType]>,
    meters: Vec<Box<dyn Meter>>,
    store: Store,
    kinds: HashMap<Sid, Kind>,
}

/// Where an open section was found.
enum Found {
    Frame(usize),
    Ghost(usize),
}

impl ThreadRecorder {
    pub(crate) fn new(session: Arc<Shared>, tid: Tid, meters: Vec<Box<dyn Meter>>) -> Self {
        let store = match session.mode {
            Mode::RecordAverage => Store::Average(Vec::new()),
            Mode::RecordAll => Store::All(Encoder::new(&session.sets)),
            Mode::RecordHistogram => Store::Histogram(Vec::new()),
            Mode::Playback => Store::Playback(session.playback.clone().unwrap_or_default()),
        };
        let mut recorder = Self {
            tid,
            tree: Tree::new(),
            frames: Vec::with_capacity(64),
            ghosts: Vec::new(),
            ghost_floor: usize::MAX,
            base: 1,
            serial: 0,
            areas: Vec::new(),
            types: session.sets.iter().map(|s| s.data_type).collect(),
            meters,
            store,
            kinds: HashMap::new(),
            session,
        };
        recorder.restart(&[]);
        recorder
    }

    /// The thread's number.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// A section is entered. `start` is its counter if this is its first execution
    /// within the execution of the section around it, usually 0.
    #[inline]
    pub fn enter(&mut self, kind: Kind, sid: Sid, start: i64) {
        self.enter_at(kind, sid, start, Caller::default());
    }

    /// The same, with what is known of the function that enters the section.
    #[inline]
    pub fn enter_at(&mut self, kind: Kind, sid: Sid, start: i64, caller: Caller) {
        let parent = self.frames[self.frames.len() - 1].node;
        let node = self.tree.child(parent, sid);
        if node != NONE {
            let known = &self.tree.nodes[node as usize];
            if known.kind == kind && known.role == Role::Real {
                return self.open(node, start, caller);
            }
        }
        self.enter_slowly(kind, sid, start, caller);
    }

    /// A section is left.
    #[inline]
    pub fn leave(&mut self, kind: Kind, sid: Sid) {
        self.leave_at(kind, sid, Caller::default());
    }

    /// The same, with what is known of the function that leaves the section.
    #[inline]
    pub fn leave_at(&mut self, kind: Kind, sid: Sid, caller: Caller) {
        let count = self.frames.len();
        let top = &self.frames[count - 1];
        if top.sid == sid && top.kind == kind && self.ghost_floor != count && count > self.base {
            self.close();
        } else {
            self.leave_slowly(kind, sid, caller.stack_pointer);
        }
    }

    #[inline]
    fn open(&mut self, index: u32, start: i64, caller: Caller) {
        let count = self.frames.len();
        let (parent_serial, parent_instance) = {
            let parent = &self.frames[count - 1];
            (parent.serial, parent.instance)
        };
        let node = &mut self.tree.nodes[index as usize];
        node.counter = if node.parent_serial == parent_serial {
            node.counter.wrapping_add(1)
        } else {
            start
        };
        node.parent_serial = parent_serial;
        self.serial += 1;
        let (sid, kind, counter) = (node.sid, node.kind, node.counter);
        let mut instance = NONE;
        if let Store::Playback(index) = &self.store {
            instance = index.child(parent_instance, Step { sid, counter });
        }
        self.frames.push(Frame {
            serial: self.serial,
            caller,
            node: index,
            sid,
            kind,
            instance,
        });
        if kind.is_measured() {
            let sets = self.meters.len();
            let at = count * sets;
            if self.areas.len() < at + sets {
                self.areas.resize(at + sets, Area::default());
            }
            self.areas[at..at + sets].fill(Area::default());
            if matches!(self.store, Store::Playback(_)) {
                self.play(instance, at);
            }
            for (meter, area) in self.meters.iter_mut().zip(&mut self.areas[at..]) {
                meter.enter(sid, area);
            }
        }
    }

    /// Leaves the innermost section.
    #[inline]
    fn close(&mut self) {
        let count = self.frames.len();
        let Frame {
            sid, kind, node, ..
        } = self.frames[count - 1];
        if kind.is_measured() {
            let sets = self.meters.len();
            let at = (count - 1) * sets;
            let areas = &mut self.areas[at..at + sets];
            for (meter, area) in self.meters.iter_mut().zip(&mut *areas) {
                meter.leave(sid, area);
            }
            match &mut self.store {
                Store::All(encoder) => {
                    encoder.add(&mut self.tree, &self.frames, node, self.serial, areas);
                    if encoder.is_full() {
                        self.frames.pop();
                        return self.flush();
                    }
                }
                Store::Average(all) => {
                    let slot = &mut self.tree.nodes[node as usize].encoded.values;
                    if *slot == NONE {
                        *slot = all.len() as u32;
                        all.extend(self.types.iter().map(|ty| Stats::new(*ty)));
                    }
                    let stats = &mut all[*slot as usize..];
                    for ((stats, area), ty) in stats.iter_mut().zip(&*areas).zip(&self.types) {
                        stats.add(area.get(*ty));
                    }
                }
                Store::Histogram(all) => {
                    let slot = &mut self.tree.nodes[node as usize].encoded.values;
                    if *slot == NONE {
                        *slot = all.len() as u32;
                        all.extend(self.types.iter().map(|ty| Histogram::new(*ty)));
                    }
                    let histograms = &mut all[*slot as usize..];
                    for ((h, area), ty) in histograms.iter_mut().zip(&*areas).zip(&self.types) {
                        h.add(area.get(*ty));
                    }
                }
                Store::Playback(_) => {}
            }
        }
        self.frames.pop();
    }

    /// Puts the recorded values of an instance into the areas at `at`.
    fn play(&mut self, instance: u32, at: usize) {
        let Store::Playback(index) = &self.store else {
            return;
        };
        let index = Arc::clone(index);
        match index.values(instance) {
            Some(values) => self.areas[at..at + self.meters.len()].copy_from_slice(values),
            None => {
                let stack = self.stack();
                self.report(&Problem::NotRecorded {
                    thread: self.tid,
                    stack,
                });
            }
        }
    }

    /// A section that is entered on this path for the first time, or that cannot be recorded.
    #[cold]
    #[inline(never)]
    fn enter_slowly(&mut self, kind: Kind, sid: Sid, start: i64, caller: Caller) {
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
                (true, _, Kind::Kernel | Kind::Profiled) => Role::Recursion,
                (true, _, Kind::Plain) => Role::Repeated,
                (_, Some(_), Kind::Kernel) => Role::NestedKernel,
                _ => Role::Real,
            };
            node = self.tree.add(parent, sid, kind, role);
        }
        let role = self.tree.nodes[node as usize].role;
        if role == Role::Real {
            return self.open(node, start, caller);
        }
        // The section that is in the way may be one that was never left.
        let outer = self.frames.iter().rposition(|frame| match role {
            Role::NestedKernel => frame.kind == Kind::Kernel,
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
            Role::NestedKernel => {
                let outer = outer.map_or(Sid(0), |at| self.frames[at].sid);
                self.report(&Problem::NestedKernel { thread, sid, outer });
            }
            Role::Recursion => self.report(&Problem::Recursion { thread, sid }),
            Role::Repeated => return self.open(node, start, caller),
            _ => {}
        }
        self.haunt(sid, caller);
    }

    /// Leaves a section that is not the innermost, or none at all.
    #[cold]
    #[inline(never)]
    fn leave_slowly(&mut self, kind: Kind, sid: Sid, stack_pointer: usize) {
        let thread = self.tid;
        let Some(found) = self.find(sid) else {
            return self.report(&Problem::LeaveWithoutEnter { thread, sid });
        };
        // Whatever is above it should have been left before.
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
            // A ghost above n frames is further in than frame n - 1.
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
    fn exorcise(&mut self, at: usize) {
        self.ghosts.truncate(at);
        self.ghost_floor = self.ghosts.last().map_or(usize::MAX, |g| g.above);
    }

    /// Closes what is above `frames` frames and, of the ghosts, above the first `ghosts`; unrecorded. Gives their numbers.
    fn abandon(&mut self, frames: usize, ghosts: usize) -> Vec<Sid> {
        let closed = self.frames.split_off(frames);
        let mut open: Vec<_> = closed.iter().map(|f| f.sid).collect();
        open.extend(self.ghosts[ghosts..].iter().map(|g| g.sid));
        self.exorcise(ghosts);
        open
    }

    /// How many sections are open, inherited ones included.
    pub fn depth(&self) -> usize {
        self.frames.len() - 1 + self.ghosts.len()
    }

    /// The sections that are open and their counters, outermost first.
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

    /// Closes, unrecorded, the sections that were entered by functions that have ended: those whose
    /// stack pointer is below `stack_pointer`. Says how many that were.
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

    /// Closes, unrecorded, all but the outermost `depth` sections; for the place
    /// that a `longjmp` leads to, where `depth` was asked for before.
    pub fn unwind_to_depth(&mut self, depth: usize) {
        while self.depth() > depth.max(self.base - 1) {
            if self.ghost_floor == self.frames.len() {
                self.exorcise(self.ghosts.len() - 1);
            } else {
                self.frames.pop();
            }
        }
    }

    /// Leaves all open sections in order, so that their executions are recorded up to here.
    pub fn leave_all(&mut self) {
        self.exorcise(0);
        while self.frames.len() > self.base {
            self.close();
        }
    }

    /// A new thread with the same number begins, in the sections that its parent had open.
    /// `stack` is the parent's [`stack`](Self::stack). What was open before is closed unrecorded.
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
            kind: Kind::Plain,
            instance: root,
        });
        for step in stack {
            let top = self.frames[self.frames.len() - 1];
            let mut node = self.tree.child(top.node, step.sid);
            if node == NONE {
                node = self.tree.add(top.node, step.sid, Kind::Plain, Role::Real);
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
                kind: Kind::Plain,
                instance,
            });
        }
        self.base = self.frames.len();
    }

    /// The set of callbacks number `index`.
    pub fn meter_mut(&mut self, index: usize) -> Option<&mut (dyn Meter + 'static)> {
        self.meters.get_mut(index).map(|meter| &mut **meter)
    }

    /// Whether the block in memory will soon be full, for callers to whom the time of the write matters.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        matches!(&self.store, Store::All(encoder) if encoder.is_nearly_full())
    }

    /// Writes the records in memory to the file, in mode [`RecordAll`](Mode::RecordAll).
    #[cold]
    pub fn flush(&mut self) {
        if let Store::All(encoder) = &mut self.store
            && encoder.records() > 0
        {
            self.session.write_samples(self.tid, encoder);
        }
    }

    /// Forgets what was recorded and is not yet in the file; for the child after `fork`.
    pub fn forget(&mut self) {
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

    /// The thread ends. Sections that are still open are reported and not recorded.
    pub fn end(mut self) {
        self.finish();
    }

    /// What [`end`](Self::end) does, for recorders that are used again after
    /// [`restart`](Self::restart).
    pub fn finish(&mut self) {
        self.stop();
        self.deliver();
    }

    /// Closes what is open. It is reported and not recorded.
    pub fn stop(&mut self) {
        let open = self.close_open();
        if !open.is_empty() {
            let thread = self.tid;
            self.report(&Problem::OpenAtEnd { thread, open });
        }
    }

    /// Closes what is open, unrecorded, and says what that was, outermost section first.
    pub fn close_open(&mut self) -> Vec<Sid> {
        self.abandon(self.base, 0)
    }

    /// Hands over to the session what was recorded.
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
        self.forget();
    }

    #[cold]
    fn report(&self, problem: &Problem) {
        self.session.report(problem);
    }
}

impl Drop for ThreadRecorder {
    fn drop(&mut self) {
        self.deliver();
    }
}
