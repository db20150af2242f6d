//! The recorder of one thread: entering and leaving sections.
//!
//! Each execution has a counter. The first execution of a section within one execution of the enclosing
//! section gets the start index; each further one gets one more than the previous one. So the stack of
//! open sections with their counters, the *tuple*, names an execution independently of other threads and of
//! earlier executions.
//!
//! Nothing here takes a lock or allocates memory, except for a new call path, and for a full
//! block of records, which goes to the file.
use std::collections::HashMap;
use std::sync::Arc;

use crate::encoder::{Encoder, Open};
use crate::histogram::Histogram;
use crate::problem::Problem;
use crate::record::Meter;
use crate::record::playback::Index;
use crate::record::shared::Shared;
use crate::stats::Stats;
use crate::tree::{NONE, Role, Tree};
use crate::types::{DataType, Mode, SectionKind, Sid, Step, Tid};
use crate::value::Area;

/// The function that enters or leaves a section. It shows which sections were left by a `longjmp` or an
/// exception and which are still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its stack pointer; 0 if it is not known.
    pub stack_pointer: usize,
    /// A number for the place in the program, such as the return address; 0 if it is not known.
    pub site: usize,
}

impl Caller {
    /// Whether the function `old` has ended.
    pub(super) fn is_after(&self, old: &Self) -> bool {
        old.stack_pointer != 0 && self.stack_pointer > old.stack_pointer
    }

    /// Whether `old` is the same function at the same place, so an earlier iteration.
    pub(super) fn is_same_place(&self, old: &Self) -> bool {
        self.stack_pointer != 0 && self.site != 0 && self == old
    }
}

/// An open section that is recorded. At the bottom of the stack: the root, then inherited sections.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) serial: u64,
    pub(super) caller: Caller,
    pub(super) node: u32,
    pub(super) sid: Sid,
    pub(super) kind: SectionKind,
    /// In playback: the instance in the data file.
    pub(super) instance: u32,
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

/// An open section that is not recorded, kept until it is left.
#[derive(Clone, Copy)]
pub(super) struct Ghost {
    pub(super) sid: Sid,
    pub(super) caller: Caller,
    /// Number of frames below it.
    pub(super) above: usize,
}

pub(super) enum Store {
    Average(Vec<Stats>),
    All(Encoder),
    Histogram(Vec<Histogram>),
    Playback(Arc<Index>),
}

/// Records what one thread does; made by [`Session::thread`](crate::Session::thread).
///
/// The caller keeps it where only that thread uses it. Its records go to the session with
/// [`end`](Self::end) or when it is dropped. A recorder that is leaked loses the records since its
/// last full block.
pub struct ThreadRecorder {
    pub(super) session: Arc<Shared>,
    pub(super) tid: Tid,
    pub(super) tree: Tree,
    /// Open sections that are recorded; the first is the root.
    pub(super) frames: Vec<Frame>,
    pub(super) ghosts: Vec<Ghost>,
    /// Number of frames below the topmost ghost, or `usize::MAX`.
    pub(super) ghost_floor: usize,
    /// Number of frames that cannot be left: the root and inherited sections.
    pub(super) base: usize,
    pub(super) serial: u64,
    pub(super) areas: Vec<Area>,
    pub(super) types: Box<[DataType]>,
    pub(super) meters: Vec<Box<dyn Meter>>,
    pub(super) store: Store,
    pub(super) kinds: HashMap<Sid, SectionKind>,
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

    /// Enters a section. `start`, usually 0, becomes its counter if this is its first execution
    /// within the execution of the enclosing section.
    #[inline]
    pub fn enter(&mut self, kind: SectionKind, sid: Sid, start: i64) {
        self.enter_at(kind, sid, start, Caller::default());
    }

    /// Enters a section, with the function that does so.
    #[inline]
    pub fn enter_at(&mut self, kind: SectionKind, sid: Sid, start: i64, caller: Caller) {
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

    /// Leaves a section.
    #[inline]
    pub fn leave(&mut self, kind: SectionKind, sid: Sid) {
        self.leave_at(kind, sid, Caller::default());
    }

    /// Leaves a section, with the function that does so.
    #[inline]
    pub fn leave_at(&mut self, kind: SectionKind, sid: Sid, caller: Caller) {
        let count = self.frames.len();
        let top = &self.frames[count - 1];
        if top.sid == sid && top.kind == kind && self.ghost_floor != count && count > self.base {
            self.close();
        } else {
            self.leave_slowly(kind, sid, caller.stack_pointer);
        }
    }

    #[inline]
    pub(super) fn open(&mut self, index: u32, start: i64, caller: Caller) {
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
                self.more_areas(at + sets);
            }
            // One set is the usual case.
            if sets == 1 {
                self.areas[at] = Area::default();
            } else {
                self.areas[at..at + sets].fill(Area::default());
            }
            if matches!(self.store, Store::Playback(_)) {
                self.play(instance, at);
            }
            if let [meter] = &mut self.meters[..] {
                return meter.enter(sid, &mut self.areas[at]);
            }
            for (meter, area) in self.meters.iter_mut().zip(&mut self.areas[at..]) {
                meter.enter(sid, area);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn more_areas(&mut self, count: usize) {
        self.areas.resize(count, Area::default());
    }

    /// Leaves the innermost section.
    #[inline]
    pub(super) fn close(&mut self) {
        let count = self.frames.len();
        let Frame {
            sid, kind, node, ..
        } = self.frames[count - 1];
        if kind.is_measured() {
            let sets = self.meters.len();
            let at = (count - 1) * sets;
            let areas = &mut self.areas[at..at + sets];
            if let ([meter], [area]) = (&mut self.meters[..], &mut *areas) {
                meter.leave(sid, area);
            } else {
                for (meter, area) in self.meters.iter_mut().zip(&mut *areas) {
                    meter.leave(sid, area);
                }
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
                    let slot = *slot as usize;
                    if let ([area], [ty]) = (&*areas, &*self.types) {
                        all[slot].add(area.get(*ty));
                        self.frames.pop();
                        return;
                    }
                    let stats = &mut all[slot..];
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

    /// Copies the recorded values of an instance into the areas from index `at` on.
    pub(super) fn play(&mut self, instance: u32, at: usize) {
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

    #[cold]
    pub(super) fn report(&self, problem: &Problem) {
        self.session.report(problem);
    }
}

impl Drop for ThreadRecorder {
    fn drop(&mut self) {
        self.deliver();
    }
}
