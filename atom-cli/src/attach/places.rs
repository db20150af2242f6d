//! Where new segments go in a process that runs: free addresses near the objects.
//!
//! Distances from the objects are the same in each process of a program as far as its objects are the same, so what was
//! instrumented for one process can be used for the next.

use atom_core::{Error, Result};

use super::maps::Map;
use super::objects::{Object, PAGE};

/// What an operand reaches, in bytes from an image's start.
const REACH: u64 = 0x7fff_0000;
/// Addresses that an area may have.
const AREA: [u64; 2] = [0x1000_0000, 0x7fff_0000];
/// Address after the last that a program can have.
const TOP: u64 = 0x7fff_ffff_f000;
/// Distance of a program's new text from its image: the heap is between.
const GAP: u64 = 0x6000_0000;
/// Free addresses after each mapping.
const MARGIN: u64 = 1 << 20;
/// Room for the stack below it, and for the heap above it.
const STACK: u64 = 64 << 20;
const HEAP: u64 = 1 << 30;
/// Bytes of new segments for a byte of code, from the first choice to the last.
const FACTORS: [u64; 4] = [32, 16, 8, 4];

/// Addresses in the process.
pub struct Places {
    /// For the area.
    pub area: [u64; 2],
    /// For the new segments of each object.
    pub objects: Vec<[u64; 2]>,
}

/// Ranges in use, in ascending order of their starts.
#[derive(Clone)]
struct Used(Vec<[u64; 2]>);

impl Used {
    fn of(maps: &[Map], heap: Option<u64>) -> Self {
        let range = |m: &Map| {
            let name = m.path.to_str().unwrap_or_default();
            match name {
                "[stack]" => [m.start.saturating_sub(STACK), m.end],
                "[heap]" => [m.start, m.end + HEAP],
                _ => [m.start, m.end],
            }
        };
        let mut used = Self(maps.iter().map(range).collect());
        // A program may have used no heap yet.
        if let Some(start) = heap {
            used.add([start, start + HEAP]);
        }
        used
    }

    /// The first free range of this size from an address on.
    fn free(&self, from: u64, size: u64, limit: u64) -> Option<u64> {
        let mut at = from;
        for [start, end] in &self.0 {
            if at + size <= *start {
                break;
            }
            at = at.max(end + MARGIN);
        }
        (at + size <= limit).then_some(at)
    }

    fn add(&mut self, range: [u64; 2]) {
        let at = self.0.partition_point(|r| r[0] < range[0]);
        self.0.insert(at, range);
    }

    /// The largest free range within another one.
    fn largest(&self, within: [u64; 2]) -> [u64; 2] {
        let mut best = [within[0]; 2];
        let mut at = within[0];
        for [start, end] in self.0.iter().chain(&[[within[1]; 2]]) {
            let next = (*start).min(within[1]);
            if next > at && next - at > best[1] - best[0] {
                best = [at, next];
            }
            at = at.max(*end);
        }
        best
    }
}

/// Chooses the places. `heap` is where the process's heap starts.
pub fn choose(maps: &[Map], heap: Option<u64>, objects: &[Object]) -> Result<Places> {
    let used = Used::of(maps, heap);
    let mut area = used.largest(AREA).map(|address| address / PAGE * PAGE);
    let program = &objects[0];
    let is_low = program.bias.wrapping_add(program.image[1]) < AREA[1];
    // A program at low addresses reaches no further than the area may: it gets the end of the same addresses.
    let low = is_low.then(|| {
        let half = (area[1] - area[0]) / 2 / PAGE * PAGE;
        let end = area[1];
        area[1] -= room(program, FACTORS[0]).min(half);
        [area[1], end]
    });
    let found = FACTORS
        .iter()
        .find_map(|factor| of_objects(used.clone(), objects, (area, low), *factor));
    let Some(objects) = found else {
        let reason = "there is no room for new code within 2 GiB of one of its objects";
        return Err(Error::new("choosing addresses in the process", reason)
            .advice("instrument less of it with --only"));
    };
    Ok(Places { area, objects })
}

/// Bytes for an object's new segments.
fn room(object: &Object, factor: u64) -> u64 {
    (object.code * factor + (2 << 20)).next_multiple_of(PAGE)
}

/// Places of all objects' new segments; `low` is the program's, if it is chosen.
fn of_objects(
    mut used: Used,
    objects: &[Object],
    (area, low): ([u64; 2], Option<[u64; 2]>),
    factor: u64,
) -> Option<Vec<[u64; 2]>> {
    used.add(area);
    let mut places = Vec::from_iter(low);
    low.into_iter().for_each(|place| used.add(place));
    for (i, object) in objects.iter().enumerate().skip(places.len()) {
        let size = room(object, factor);
        let [base, end] = object
            .image
            .map(|address| object.bias.wrapping_add(address));
        let first = (end.next_multiple_of(PAGE)) + if i == 0 { GAP } else { MARGIN };
        // A static position-independent program is near the top.
        let limit = (base + REACH).min(TOP);
        let start = used
            .free(first, size, limit)
            .or_else(|| used.free(end + MARGIN, size, limit))?;
        let start = start.next_multiple_of(PAGE);
        used.add([start, start + size]);
        places.push([start, start + size]);
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ranges_are_found() {
        let used = Used(vec![[0x1000_0000, 0x1000_1000], [0x1800_0000, 0x2000_0000]]);
        assert_eq!(
            used.free(0x1000_0000, 0x1000, u64::MAX),
            Some(0x1000_1000 + MARGIN)
        );
        assert_eq!(
            used.free(0x1000_0000, 0x800_0000, u64::MAX),
            Some(0x2000_0000 + MARGIN)
        );
        assert_eq!(used.free(0x1000_0000, 0x800_0000, 0x2000_0000), None);
        assert_eq!(used.largest(AREA), [0x2000_0000, AREA[1]]);
    }
}
