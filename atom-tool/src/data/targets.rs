//! Exact counts of the targets of indirect calls and jumps.
//!
//! Nearly every indirect call has few targets, so each site has a row for four targets, which
//! have counters. Further targets go to a table that all sites share. There are no locks: a signal
//! handler or another thread may interrupt at any instruction, and finds each entry either free or
//! taken.
//!
//! Three pieces of data are placed: the shared table; for each row the number of transfers to targets for which no entry
//! was free; and the number of rows with the rows. The first two count, so they are zeros in a forked child again; the
//! targets in rows stay. Rows lead to the other pieces by distances, so each piece can become longer at its end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Param, RegV, code};
use crate::calls::typed::{Arg, computed};
use crate::data::counters::{Counter, CounterAt, CounterTable, Counters};
use crate::navigation::address::Address;
use crate::navigation::handle::Inst;
use crate::navigation::program::Program;

/// Number of targets of a site that have counters.
pub const WAYS: usize = 4;
/// Number of entries of the shared table.
const SHARED: usize = 1 << 13;
/// Number of entries of the shared table that are probed before a target is given up.
const PROBES: usize = 64;
const HEADER: usize = 8;

#[repr(C)]
struct Row {
    /// Targets; 0 is a free entry.
    ways: [AtomicU64; WAYS],
    /// Number of the site, from 1.
    site: u64,
    /// Address of the site in the file.
    pc: u64,
    /// Run-time address of the site; 0 until it is executed.
    place: AtomicU64,
    /// Distance from here to the shared table in bytes.
    shared: i64,
    /// Distance from here to the row's number of transfers to targets without an entry.
    other: i64,
}

impl Row {
    /// The index in the shared table from which a target of this site is looked for.
    #[inline(always)]
    fn hash(&self, target: u64) -> usize {
        let mixed = (target ^ self.site << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize
    }

    /// An entry of the shared table; the index is taken modulo its length.
    #[inline(always)]
    fn shared(&self, index: usize) -> &Shared {
        // SAFETY: the table is at that distance, as `TargetTable::new` laid it out.
        unsafe { &*self.table().add(index % SHARED) }
    }

    /// The shared table.
    #[inline(always)]
    fn table(&self) -> *const Shared {
        // SAFETY: the table is at that distance, as `TargetTable::new` laid it out.
        unsafe {
            std::ptr::from_ref(self)
                .byte_offset(self.shared as isize)
                .cast()
        }
    }

    /// Number of transfers to targets for which no entry was free.
    fn other(&self) -> &AtomicU64 {
        // SAFETY: the number is at that distance, as `TargetTable::new` laid it out.
        unsafe {
            &*std::ptr::from_ref(self)
                .byte_offset(self.other as isize)
                .cast::<AtomicU64>()
        }
    }
}

#[repr(C)]
struct Shared {
    target: AtomicU64,
    site: AtomicU64,
    count: AtomicU64,
}

/// Instrument side: a row for each site, made by [`Program::targets`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetTable {
    offset: u64,
    rows: usize,
    /// Number of transfers to each target of each row.
    pub counts: CounterTable<WAYS>,
}

/// Instrument side: one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetAt {
    offset: u64,
}

impl Program<'_> {
    /// A table that counts the targets of indirect calls and jumps.
    pub fn targets(&self, sites: &[Inst<'_>]) -> TargetTable {
        let sites: Vec<u64> = sites.iter().map(Inst::pc).collect();
        TargetTable::new(self, &sites)
    }
}

impl TargetTable {
    pub(crate) fn new(program: &Program<'_>, sites: &[u64]) -> Self {
        let row = size_of::<Row>();
        let counted =
            |size: usize| program.place_counts("targets of calls", &vec![0; size], size, size);
        let shared = counted(SHARED * size_of::<Shared>());
        let others = counted(size_of_val(sites));
        let size = HEADER + sites.len() * row;
        // Where the rows will be: an empty piece takes no room.
        let offset = program.place("targets of calls", &[], 0);
        let mut bytes = Vec::with_capacity(size);
        bytes.extend((sites.len() as u64).to_le_bytes());
        for (i, pc) in sites.iter().enumerate() {
            bytes.resize(HEADER + i * row + WAYS * size_of::<u64>(), 0);
            let own = offset.wrapping_add((HEADER + i * row) as u64);
            let other = others.wrapping_add((i * size_of::<u64>()) as u64);
            let distances = [shared, other].map(|at| at.wrapping_sub(own));
            for word in [i as u64 + 1, *pc, 0, distances[0], distances[1]] {
                bytes.extend(word.to_le_bytes());
            }
        }
        let offset = program.place("targets of calls", &bytes, size);
        Self {
            offset,
            rows: sites.len(),
            counts: program.counters(sites.len()),
        }
    }

    /// The rows in the order of the sites, and their counters.
    pub fn rows(self) -> impl ExactSizeIterator<Item = (TargetAt, CounterAt<WAYS>)> {
        let row = move |i: usize| TargetAt {
            offset: self.offset + (HEADER + i * size_of::<Row>()) as u64,
        };
        (0..self.rows).map(move |i| (row(i), self.counts.at(i)))
    }
}

impl Arg<Targets> for TargetAt {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.offset)
    }
}

impl Arg<AllTargets> for TargetTable {
    fn to_host(&self) -> host::Arg {
        computed(ArgKind::Data, self.offset)
    }
}

/// Analysis side: the targets of one site.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Targets(&'static Row);

// SAFETY: transparent over a pointer.
unsafe impl Param for Targets {
    const CODE: u8 = code::OTHER;
}

impl Targets {
    /// Counts one transfer to `target`. `pc` is the program counter at the site
    /// (`Reg::Pc`), which tells where the program was loaded.
    #[inline(always)]
    pub fn count(self, counts: Counter<WAYS>, target: u64, pc: RegV) {
        for (i, way) in self.0.ways.iter().enumerate() {
            if way.load(Relaxed) == target {
                return counts.add_to(i, 1);
            }
        }
        // A site with many targets, such as the dispatch of an interpreter, usually finds them here.
        let row = self.0;
        let entry = row.shared(row.hash(target));
        if entry.target.load(Relaxed) == target && entry.site.load(Relaxed) == row.site {
            entry.count.fetch_add(1, Relaxed);
            return;
        }
        self.elsewhere(counts, target, pc);
    }

    #[cold]
    #[inline(never)]
    fn elsewhere(self, counts: Counter<WAYS>, target: u64, pc: RegV) {
        let row = self.0;
        row.place.store(pc.0, Relaxed);
        for (i, way) in row.ways.iter().enumerate() {
            if is_or_becomes(way, target) {
                return counts.add_to(i, 1);
            }
        }
        let hash = row.hash(target);
        for i in 0..PROBES {
            let entry = row.shared(hash + i);
            // A thread that finds the target without a site may claim the entry, as may the thread
            // that wrote the target.
            if is_or_becomes(&entry.target, target) && is_or_becomes(&entry.site, row.site) {
                entry.count.fetch_add(1, Relaxed);
                return;
            }
        }
        row.other().fetch_add(1, Relaxed);
    }
}

/// True if the cell has this value, or was 0 and now has it.
fn is_or_becomes(cell: &AtomicU64, value: u64) -> bool {
    match cell.compare_exchange(0, value, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(found) => found == value,
    }
}

/// Analysis side: the targets of all sites.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct AllTargets(*const u64);

// SAFETY: transparent over a pointer.
unsafe impl Param for AllTargets {
    const CODE: u8 = code::OTHER;
}

/// The number of transfers from a site to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The site, counted from 0 in the order of the table.
    pub site: usize,
    /// The target as an address of the original file, with its object's number in a whole process. A target
    /// outside of all objects is an address that no object's file has. 0 stands for all targets for which there was
    /// no entry.
    pub target: u64,
    /// Number of transfers.
    pub count: u64,
}

impl AllTargets {
    /// All pairs of site and target that occurred; `counts` are the counters of the [`TargetTable`].
    pub fn transfers(self, counts: Counters<WAYS>) -> Vec<Transfer> {
        self.transfers_by(|row| counts.at(row).get())
    }

    fn transfers_by(self, counts: impl Fn(usize) -> [u64; WAYS]) -> Vec<Transfer> {
        // SAFETY: values of this type are made only by `atom`, which points them to the rows that `TargetTable::new` laid
        // out, with their number in front; the first row leads to the shared table.
        let (rows, shared): (&[Row], &[Shared]) = unsafe {
            let count = *self.0 as usize;
            let rows = std::slice::from_raw_parts(self.0.byte_add(HEADER).cast::<Row>(), count);
            let shared = rows.first().map_or(&[][..], |row| {
                std::slice::from_raw_parts(row.table(), SHARED)
            });
            (rows, shared)
        };
        let mut all = Vec::new();
        let mut add = |row: &Row, target: u64, count: u64| {
            if count != 0 {
                let bias = row.place.load(Relaxed).wrapping_sub(row.pc);
                let site = row.site as usize - 1;
                // In a whole process the target may be in another object than the site.
                let in_process = Address::of_run_time(target).map(|a| a.0);
                all.push(Transfer {
                    site,
                    target: if target == bias {
                        0
                    } else {
                        in_process.unwrap_or(target.wrapping_sub(bias))
                    },
                    count,
                });
            }
        };
        for (i, row) in rows.iter().enumerate() {
            for (way, count) in row.ways.iter().zip(counts(i)) {
                // A program that jumps to address 0 does not get as far as the report.
                let target = way.load(Relaxed);
                add(row, target, if target == 0 { 0 } else { count });
            }
            let bias = row.place.load(Relaxed).wrapping_sub(row.pc);
            add(row, bias, row.other().load(Relaxed));
        }
        for entry in shared {
            let site = entry.site.load(Relaxed) as usize;
            if let Some(row) = site.checked_sub(1).and_then(|i| rows.get(i)) {
                add(row, entry.target.load(Relaxed), entry.count.load(Relaxed));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The rows as the instrument side would place them, with the shared table and the other numbers after them.
    fn table(sites: &[u64]) -> &'static mut [u64] {
        let row = size_of::<Row>() / 8;
        let shared = 1 + sites.len() * row;
        let others = shared + SHARED * 3;
        let mut words = vec![0; others + sites.len()];
        words[0] = sites.len() as u64;
        for (i, pc) in sites.iter().enumerate() {
            let at = 1 + i * row;
            words[at + WAYS] = i as u64 + 1;
            words[at + WAYS + 1] = *pc;
            words[at + WAYS + 3] = ((shared - at) * 8) as u64;
            words[at + WAYS + 4] = ((others + i - at) * 8) as u64;
        }
        words.leak()
    }

    type Cells = [[AtomicU64; WAYS]; 2];

    fn cells() -> &'static Cells {
        Box::leak(Box::default())
    }

    #[test]
    fn many_targets_from_many_threads() {
        let words = table(&[0x100, 0x200]);
        let (base, all) = (words.as_ptr() as usize, AllTargets(words.as_ptr()));
        let row = |i: usize| {
            let at = base + HEADER + i * size_of::<Row>();
            // SAFETY: the table was laid out above.
            Targets(unsafe { &*(at as *const Row) })
        };
        const BIAS: u64 = 0x5555_0000_0000;
        // Each thread has counters of its own, as in a program.
        let own = [(); 4].map(|()| cells());
        std::thread::scope(|scope| {
            for cells in own {
                scope.spawn(move || {
                    let counts = cells.each_ref().map(Counter::of);
                    for n in 0..20_000u64 {
                        let target = BIAS + 0x1000 + n % 200 * 16;
                        row(0).count(counts[0], target, RegV(BIAS + 0x100));
                        row(1).count(counts[1], BIAS + 0x1000 + n % 3, RegV(BIAS + 0x200));
                    }
                });
            }
        });
        let sum = |row: usize| {
            std::array::from_fn(|way| own.iter().map(|c| c[row][way].load(Relaxed)).sum())
        };
        let mut sums: HashMap<(usize, u64), u64> = HashMap::new();
        for t in all.transfers_by(sum) {
            *sums.entry((t.site, t.target)).or_default() += t.count;
        }
        assert_eq!(sums.len(), 203);
        for n in 0..200 {
            assert_eq!(sums[&(0, 0x1000 + n * 16)], 400);
        }
        assert_eq!(sums[&(1, 0x1000)], 4 * 6667);
    }

    #[test]
    fn what_finds_no_place_is_counted_together() {
        let words = table(&[0x100]);
        let all = AllTargets(words.as_ptr());
        // SAFETY: the table was laid out above.
        let row = Targets(unsafe { &*words.as_ptr().add(1).cast::<Row>() });
        let cells = cells();
        for target in 1..=2 * SHARED as u64 {
            row.count(Counter::of(&cells[0]), target * 64, RegV(0x100));
        }
        let transfers = all.transfers_by(|row| Counter::of(&cells[row]).get());
        assert_eq!(
            transfers.iter().map(|t| t.count).sum::<u64>(),
            2 * SHARED as u64
        );
        let other: u64 = transfers
            .iter()
            .filter(|t| t.target == 0)
            .map(|t| t.count)
            .sum();
        assert!(other >= SHARED as u64 - WAYS as u64, "{other}");
    }
}
