//! Modelled events: a branch predictor, and two levels of data cache.
//!
//! The caches are as in the tool `cache`: sets of lines, the most recently used line first. The hot path of a
//! reference compares only that line. A line that misses in the first level is looked up in
//! the second. Each thread has its own caches and its own predictor.

use atom_tool::prelude::*;
use atom_tool::simulate::{Comparison, LookUp};
use atom_tool::{CounterTable, lines_of};
use events::Model;

use crate::settings::Settings;
use crate::{REPLICAS, ROW};

/// Largest number of lines of the first level.
const MAX_L1: usize = 1 << 12;
/// Largest number of lines of the second level.
const MAX_L2: usize = 1 << 16;
/// Largest size of a line in bytes. A larger line could contain both address 0 and valid memory.
const MAX_LINE: u64 = 4096;
const L1: usize = 0;
const L2: usize = 1;

thread_state! {
    /// Lines as the negated addresses of their first bytes; 0 is no line.
    struct Caches {
        l1: [ThreadCell<u64>; MAX_L1],
        l2: [ThreadCell<u64>; MAX_L2],
        comparison: Comparison,
    }
}

/// Number of entries of the predictor.
const ENTRIES: usize = 1 << 12;

thread_state! {
    /// Counters of two bits; from 2 on, a branch is predicted to be taken. The directions of the last
    /// branches select the counter together with the branch's address, if the model has a history.
    struct Predictor {
        history: ThreadCell<u64>,
        counters: [ThreadCell<u8>; ENTRIES],
    }
}

/// Shapes of both levels in one argument. From the lowest bit on: the binary logarithm of a line's size (4 bits), the
/// binary logarithm of the number of sets of the first level (12 bits), its ways (12 bits), then the same two
/// numbers for the second level (12 bits each).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape(u64);

impl Shape {
    const fn line(self) -> u64 {
        1 << (self.0 & 15)
    }

    const fn ways(self, level: usize) -> usize {
        (self.0 >> (16 + 24 * level) & 0xfff) as usize
    }

    /// Index of the first line of the set that an address belongs to.
    const fn set(self, level: usize, address: u64) -> usize {
        let sets = 1u64 << (self.0 >> (4 + 24 * level) & 0xfff);
        (address >> (self.0 & 15) & (sets - 1)) as usize * self.ways(level)
    }
}

#[analysis]
fn refer(caches: PerThread<Caches>, shape: u64, address: u64, size: u64, misses: Counter<2>) {
    let shape = Shape(shape);
    let line = caches.l1[shape.set(L1, address) % MAX_L1].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        other(&caches, shape, address, size, misses);
    }
}

/// Looks up a reference to any line of a set, or to several lines, and counts its misses.
#[cold]
#[inline(never)]
fn other(caches: &Caches, shape: Shape, address: u64, size: u64, misses: Counter<2>) {
    touch(caches, shape.0, address, size, 1, misses);
}

fn touch(caches: &Caches, shape: u64, address: u64, size: u64, times: u64, misses: Counter<2>) {
    let shape = Shape(shape);
    for line in lines_of(address, size, shape.line()) {
        let key = line.wrapping_neg();
        if !look_up(&caches.l1, shape.set(L1, line), shape.ways(L1), key) {
            misses.add_to(L1, 1);
            if !look_up(&caches.l2, shape.set(L2, line), shape.ways(L2), key) {
                misses.add_to(L2, 1);
            }
        }
    }
    // All references of a series to the same lines hit, except the first. If the operands need more lines of one set
    // than it has, that is not true, but such cases are not modelled.
    let _ = times;
}

/// Makes a line the most recently used of its set; false if it was not there.
fn look_up(lines: &[ThreadCell<u64>], set: usize, ways: usize, key: u64) -> bool {
    let set = lines.get(set..set + ways).unwrap_or_default();
    let place = set.iter().position(|other| other.get() == key);
    let mut moving = key;
    for other in set.iter().take(place.map_or(set.len(), |place| place + 1)) {
        let next = other.get();
        other.set(moving);
        moving = next;
    }
    place.is_some()
}

fn line(shape: u64) -> u64 {
    Shape(shape).line()
}

atom_tool::simulator!(Caches, touch, line);

#[analysis]
fn predict(
    predictor: PerThread<Predictor>,
    key: u64,
    history: u64,
    row: Counter<ROW>,
    cell: u32,
    taken: Value,
) {
    let past = predictor.history.get();
    let counter = &predictor.counters[(key ^ past) as usize % ENTRIES];
    let (state, taken) = (counter.get(), u8::from(taken.is_true()));
    row.add_to(cell as usize & 1, u64::from(state >> 1 != taken));
    // Up to 3 if it is taken, down to 0 if not.
    let next = state.wrapping_add(taken.wrapping_mul(2)).wrapping_sub(1);
    counter.set(if next > 3 { state } else { next });
    predictor
        .history
        .set((past << 1 | u64::from(taken)) & history);
}

/// Choices of the user about the models.
pub struct Options {
    shape: Shape,
    /// Mask of the predictor's history; 0 for a table by address alone.
    history: u64,
}

impl Options {
    pub fn from_options(options: &atom_tool::Options<'_>) -> Result<Self> {
        let history = options.choice(
            "--predictor",
            &[("gshare", ENTRIES as u64 - 1), ("2bit", 0)],
        )?;
        let line = options.size("--line")?;
        let l1 = options.value("--l1")?.unwrap_or_default();
        let l2 = options.value("--l2")?.unwrap_or_default();
        if !line.is_power_of_two() || line > MAX_LINE {
            let message = "a power of two of bytes, at most 4096";
            return Err(WrongOption::new(format!("a line has {message}, not {line}")).into());
        }
        let level = |name: &str, text: &str, most: usize| -> Result<u64> {
            let shape = level(text, line, most as u64);
            shape.map_err(|reason| WrongOption::new(format!("the option {name}: {reason}")).into())
        };
        let (l1, l2) = (level("--l1", l1, MAX_L1)?, level("--l2", l2, MAX_L2)?);
        let shape = Shape(u64::from(line.trailing_zeros()) | l1 << 4 | l2 << 28);
        Ok(Self { shape, history })
    }
}

/// Parses `SIZE:WAYS` into the 24 bits of a level in a [`Shape`].
fn level(text: &str, line: u64, most: u64) -> std::result::Result<u64, String> {
    let wrong = || format!("`{text}` is not SIZE:WAYS, such as 32k:8");
    let (size, ways) = text.split_once(':').ok_or_else(wrong)?;
    let size = size.to_ascii_lowercase();
    let (digits, factor) = match size.as_bytes().last() {
        Some(b'k') => (&size[..size.len() - 1], 1 << 10),
        Some(b'm') => (&size[..size.len() - 1], 1 << 20),
        _ => (&*size, 1),
    };
    let size: u64 = digits.parse::<u64>().ok().ok_or_else(wrong)?;
    let size = size.checked_mul(factor).ok_or_else(wrong)?;
    let ways: u64 = ways
        .parse()
        .ok()
        .filter(|w| (1..4096).contains(w))
        .ok_or_else(wrong)?;
    let lines = size / line;
    let sets = lines / ways;
    if !sets.is_power_of_two() || sets * ways * line != size {
        return Err(format!(
            "{size} bytes are not a power of two of sets of {ways} lines of {line} bytes"
        ));
    }
    if lines > most {
        return Err(format!("{lines} lines are more than {most}"));
    }
    Ok(u64::from(sets.trailing_zeros()) | ways << 12)
}

/// Adds the calls of the modelled events of the set.
pub fn add(program: &Program, settings: &Settings, options: &Options, cells: CounterTable<ROW>) {
    let cell_of = |wanted: &[Model]| {
        let is = |slot: &&crate::settings::Slot| slot.model().is_some_and(|m| wanted.contains(&m));
        settings.slots.iter().find(is).and_then(|slot| slot.cell)
    };
    let insts = || {
        let blocks = program.procs().flat_map(|proc| proc.blocks());
        blocks.flat_map(|block| block.insts())
    };
    if let Some(cell) = cell_of(&[Model::Mispredictions]) {
        let predictor = program.thread_data(Predictor {
            history: ThreadCell::new(0),
            counters: std::array::from_fn(|_| ThreadCell::new(0)),
        });
        let branches = insts().filter(|inst| inst.is_type(InstType::CondBr));
        let branches = branches.filter(|inst| inst.offers(Before, BrCondValue));
        for (number, inst) in branches.enumerate() {
            let replica = number % REPLICAS * (cells.len() / REPLICAS);
            let (row, cell) = (cells.at(replica + cell / ROW), (cell % ROW) as u32);
            // Branches are at least two bytes apart.
            let key = inst.pc() >> 1;
            let args = (predictor, key, options.history, row, cell, BrCondValue);
            inst.add_call(Before, predict, args);
        }
    }
    if cell_of(&[Model::L1Misses, Model::L2Misses]).is_some() {
        let caches = program.thread_data(Caches {
            l1: std::array::from_fn(|_| ThreadCell::new(0)),
            l2: std::array::from_fn(|_| ThreadCell::new(0)),
            comparison: std::array::from_fn(|_| ThreadCell::new(0)),
        });
        let simulator = simulator(LookUp::Each(refer()));
        for inst in insts() {
            if let Some(references) = inst.references() {
                simulator.add(inst, &references, caches, options.shape.0, cells.at(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_packed() {
        let line = 64;
        let l1 = level("32k:8", line, 4096).unwrap();
        let l2 = level("1m:16", line, 1 << 16).unwrap();
        let shape = Shape(6 | l1 << 4 | l2 << 28);
        assert_eq!((shape.line(), shape.ways(L1), shape.ways(L2)), (64, 8, 16));
        assert_eq!(shape.set(L1, 64 * 65), 8);
        assert_eq!(shape.set(L2, 64 * 1025), 16);
        assert!(
            level("33k:8", line, 4096)
                .unwrap_err()
                .contains("power of two")
        );
        assert!(level("32k", line, 4096).unwrap_err().contains("SIZE:WAYS"));
        assert!(level("1m:1", line, 4096).unwrap_err().contains("more than"));
    }
}
