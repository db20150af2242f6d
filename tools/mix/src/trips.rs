//! Histograms of trip counts (`--trips`). A loop's trip count is the number of iterations from an entry into the loop to
//! the next exit. Its histogram has the number of trips with 1 iteration, with 2 to 3, with 4 to 7 and so on.
//!
//! A way back to the header sets a flag, and the header looks at it. With the flag an iteration is added to the running
//! trip; without it a new trip begins, and the count of the one before goes into the histogram. So nothing is done where a
//! loop is left. Whichever way that is (a jump through a table, an exception, `longjmp`), its count is there.
//!
//! A loop may run several times at once in a thread: by recursion, in a signal handler, in coroutines. Trips are told apart
//! by rsp at the header, which stays the same in one activation of a procedure and differs between those that exist at
//! the same time. Where rsp changes in the loop, rbp takes its place. A row keeps the last trips of a loop; older ones go
//! into a map of the thread.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use atom_tool::prelude::*;
use atom_tool::{
    AllThreadRows, Class, Loop, ThreadRow, ThreadRowAt, ThreadRows, Uninterrupted, forks,
};

/// Number of classes of trip counts: 1, 2 to 3, 4 to 7 and so on; the last one has no end.
pub const CLASSES: usize = 24;

/// Number of trips that a row keeps.
const KEPT: usize = 4;
/// Cell with the number of trips of the loop that are in the thread's map.
const SPILLED: usize = 2 * KEPT;
/// Cell with the process in which the row was changed last, by its [`GENERATION`].
const ROW_GENERATION: usize = SPILLED + 1;
const CELLS: usize = ROW_GENERATION + 1;

/// The running trip: twice the number of its iterations, and [`BACK`].
const COUNT: usize = 0;
/// What identifies the activation of the running trip; 0 if there is none.
const KEY: usize = 1;
/// Control goes back to the header.
const BACK: u64 = 1;
/// The trip began in the parent of a forked child, whose report has it.
const OLD: u64 = 1 << 63;

/// A row: pairs of count and key, the running trip first, then [`SPILLED`] and [`ROW_GENERATION`].
type Row = ThreadRow<CELLS>;

/// Number of forks between the program's start and this process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The histograms of all loops, from [`settle`] until they are reported.
static SETTLED: Mutex<Vec<[u64; CLASSES]>> = Mutex::new(Vec::new());

thread_state! {
    /// The trips that found no place in a row.
    pub struct Spill {
        /// Address of a [`Spilled`], which is never freed; 0 if there is none.
        map: ThreadCell<u64>,
    }
}

/// Trips by number of the loop and key.
#[derive(Default)]
struct Spilled {
    trips: UnsafeCell<HashMap<(u32, u64), Trip>>,
}

/// A trip in the map.
#[derive(Clone, Copy)]
struct Trip {
    count: u64,
    generation: u64,
}

impl Spill {
    /// The thread's map. Signals must be blocked while it is in use.
    fn of_thread(&self) -> &'static Spilled {
        if self.map.get() == 0 {
            let map: &'static Spilled = Box::leak(Box::default());
            self.map.set(std::ptr::from_ref(map) as u64);
        }
        // SAFETY: only addresses of maps that are never freed are stored.
        unsafe { &*(self.map.get() as *const Spilled) }
    }

    /// Keeps a trip. Only the thread itself calls this.
    fn put(&self, key: (u32, u64), trip: Trip) {
        Uninterrupted::run(|_| {
            // SAFETY: the thread is the only user, and no handler runs.
            let trips = unsafe { &mut *self.of_thread().trips.get() };
            trips.insert(key, trip);
        })
    }

    /// Takes a trip out. Only the thread itself calls this.
    fn take(&self, key: (u32, u64)) -> Option<Trip> {
        Uninterrupted::run(|_| {
            // SAFETY: as above.
            unsafe { &mut *self.of_thread().trips.get() }.remove(&key)
        })
    }
}

/// The class of a trip; none if it is not this process's.
fn class(count: u64) -> Option<usize> {
    let iterations = count >> 1;
    (count & OLD == 0 && iterations != 0).then(|| (iterations.ilog2() as usize).min(CLASSES - 1))
}

/// Smallest and largest number of iterations of a class; the last class has no largest one.
pub fn bounds(class: usize) -> (u64, Option<u64>) {
    let behind = 1 << (class + 1);
    (1 << class, (class + 1 < CLASSES).then_some(behind - 1))
}

/// Control goes back to the header.
#[analysis]
fn back(row: Row) {
    row[COUNT].set(row[COUNT].get() | BACK);
}

/// The header of a loop whose trips are told apart by `key`.
#[analysis]
fn header(row: Row, key: RegV, spill: PerThread<Spill>, histogram: Counter<CLASSES>, number: u32) {
    pass(row, key.0, spill, histogram, number);
}

/// The header of a loop that runs once at a time in a thread.
#[analysis]
fn lone_header(row: Row, spill: PerThread<Spill>, histogram: Counter<CLASSES>, number: u32) {
    pass(row, 1, spill, histogram, number);
}

#[inline(always)]
fn pass(row: Row, key: u64, spill: PerThread<Spill>, histogram: Counter<CLASSES>, number: u32) {
    // SAFETY: no other thread writes to this thread's cells.
    let is_next =
        unsafe { row[KEY].get_in_place() == key && row[COUNT].get_in_place() & BACK != 0 };
    if is_next {
        row[COUNT].add(BACK);
    } else {
        step(row, key, spill, histogram, number);
    }
}

/// An execution of a header that begins a trip, or belongs to another trip than the one before.
#[cold]
#[inline(never)]
fn step(row: Row, key: u64, spill: PerThread<Spill>, histogram: Counter<CLASSES>, number: u32) {
    let is_next = row[COUNT].get() & BACK != 0;
    row[COUNT].set(row[COUNT].get() & !BACK);
    let generation = GENERATION.load(Relaxed);
    if row[ROW_GENERATION].get() != generation {
        row[ROW_GENERATION].set(generation);
        for kept in (0..KEPT).filter(|i| row[2 * i + KEY].get() != 0) {
            row[2 * kept].set(row[2 * kept].get() | OLD);
        }
    }
    if row[KEY].get() != key {
        let spilled = find(row, key, &spill, number, generation);
        row[COUNT].set(spilled);
        row[KEY].set(key);
    }
    let count = row[COUNT].get();
    if is_next {
        // A trip without a beginning began in the parent.
        let before = if count == 0 { OLD } else { count };
        return row[COUNT].set(before + 2);
    }
    row[COUNT].set(2);
    if let Some(class) = class(count) {
        histogram.add_to(class, 1);
    }
}

/// Moves the running trip back among those that the row keeps, and returns the count of the trip with this key, or 0.
fn find(row: Row, key: u64, spill: &Spill, number: u32, generation: u64) -> u64 {
    let place = (1..KEPT).find(|i| [0, key].contains(&row[2 * i + KEY].get()));
    let last = place.unwrap_or(KEPT - 1);
    let [count, oldest] = [COUNT, KEY].map(|cell| row[2 * last + cell].get());
    for i in (0..last).rev() {
        for cell in [COUNT, KEY] {
            row[2 * i + 2 + cell].set(row[2 * i + cell].get());
        }
    }
    if oldest == key {
        return count;
    }
    if oldest != 0 {
        spill.put((number, oldest), Trip { count, generation });
        row[SPILLED].add(1);
    }
    if row[SPILLED].get() == 0 {
        return 0;
    }
    let Some(trip) = spill.take((number, key)) else {
        return 0;
    };
    row[SPILLED].set(row[SPILLED].get() - 1);
    let is_old = trip.generation != generation;
    trip.count | if is_old { OLD } else { 0 }
}

#[analysis]
fn begin() {
    forks::in_child(|| _ = GENERATION.fetch_add(1, Relaxed));
}

/// Adds the trips to the histograms that were not followed by another one. The rows stay as they are: a process whose
/// `exec` fails continues.
#[analysis(uninterrupted)]
fn settle(spills: AllThreads<Spill>, rows: AllThreadRows<CELLS>, histograms: Counters<CLASSES>) {
    let mut all: Vec<[u64; CLASSES]> = histograms.rows().collect();
    let generation = GENERATION.load(Relaxed);
    let mut add = |number: usize, count: u64| {
        if let (Some(class), Some(histogram)) = (class(count), all.get_mut(number)) {
            histogram[class] += 1;
        }
    };
    for thread in rows.iter() {
        let own = |row: &&[ThreadCell<u64>; CELLS]| row[ROW_GENERATION].get() == generation;
        for (number, row) in thread.iter().enumerate().filter(|(_, row)| own(row)) {
            for kept in 0..KEPT {
                add(number, row[2 * kept].get());
            }
        }
    }
    for spill in spills.iter().filter(|spill| spill.map.get() != 0) {
        // SAFETY: the thread that reports is the only one that runs, or it reads another's map in a copy of the process.
        let trips = unsafe { &*spill.of_thread().trips.get() };
        for ((number, _), trip) in trips.iter().filter(|(_, t)| t.generation == generation) {
            add(*number as usize, trip.count);
        }
    }
    *SETTLED.lock().unwrap_or_else(PoisonError::into_inner) = all;
}

/// The histograms of all loops; none if they were not asked for.
pub fn settled() -> Vec<[u64; CLASSES]> {
    std::mem::take(&mut *SETTLED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Instrument side: a loop whose trips are counted.
pub struct Counted<'a> {
    header: Block<'a>,
    /// Ways back to the header.
    backs: Vec<(Block<'a>, Way)>,
    key: Option<Reg>,
}

impl<'a> Counted<'a> {
    /// A loop, if all of its ways back can have calls.
    pub fn new(one: &Loop<'a>) -> Option<Self> {
        let mut backs = Vec::new();
        for latch in &one.latches {
            let edges = latch.successors();
            for edge in edges.iter().filter(|edge| edge.block == Some(one.header)) {
                let way = Way::of(edge.kind).filter(|way| latch.has_way(*way))?;
                backs.push((*latch, way));
            }
        }
        Some(Self {
            header: one.header,
            backs,
            key: key(one),
        })
    }
}

/// The register that tells the activations of a loop's procedure apart, at the header. `None` if rsp changes in the loop,
/// and the procedure has no other frame register: such a loop touches the pages of a large frame.
fn key(one: &Loop<'_>) -> Option<Reg> {
    let frame = one.header.proc().frame();
    let is_dynamic = frame.is_some_and(|frame| frame.is_dynamic());
    if is_dynamic && frame.and_then(|frame| frame.frame_reg()) == Some(Reg::Rbp) {
        return Some(Reg::Rbp);
    }
    let insts = || one.blocks.iter().flat_map(|block| block.insts());
    let compares_sp = insts()
        .any(|inst| inst.class() == Class::Icompare && inst.reg_usage().used.contains(Reg::Rsp));
    let calls = || insts().any(|inst| inst.is_type(InstType::Call));
    (!compares_sp || calls()).then_some(Reg::Rsp)
}

/// Instrument side: adds the calls that count the trips of all loops.
pub fn add(program: &Program<'_>, loops: &[Option<Counted<'_>>]) {
    let spill = program.thread_data(Spill::zero());
    let histograms = program.counters::<CLASSES>(loops.len());
    let rows: ThreadRows<CELLS> = program.thread_rows(loops.len());
    program.add_call(Before, begin, ());
    for (number, one) in loops.iter().enumerate() {
        let Some(one) = one else { continue };
        let row: ThreadRowAt<CELLS> = rows.at(number);
        let (histogram, number) = (histograms.at(number), number as u32);
        let header = one.header;
        match one.key {
            Some(key) => {
                header.add_call(Before, self::header, (row, key, spill, histogram, number))
            }
            None => header.add_call(Before, lone_header, (row, spill, histogram, number)),
        }
        for (latch, way) in &one.backs {
            latch.add_call_on(*way, back, (row,));
        }
    }
    program.add_call(After, settle, (spill, rows, histograms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        for class in 0..CLASSES {
            let (first, last) = bounds(class);
            assert_eq!(self::class(first << 1), Some(class));
            assert_eq!(self::class(last.unwrap_or(u64::MAX >> 2) << 1), Some(class));
        }
        assert_eq!(class(0), None);
        assert_eq!(class(OLD | 8), None);
    }
}
