//! Blocks that nothing leads to at the end.
//!
//! Roots are all words in memory that the process can write and that is not the tool's: data of all objects, stacks, memory of
//! threads, the program's own mappings. A pointer to a block's start leads to the block; one to its inside only perhaps.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ptr::with_exposed_provenance;

use crate::errors;
use crate::heap::{self, Block, Heap};

/// How a block is reached, in the order in which a better way replaces a worse one.
const INDIRECT: u8 = 1;
const POSSIBLE: u8 = 2;
const REACHABLE: u8 = 3;

/// How much is told of leaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Detail {
    Summary,
    Full,
    No,
}

/// Memory that has roots: start and end.
fn roots() -> Vec<[u64; 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found = Vec::new();
    let mut area_end = 0;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        let path = words.nth(3).unwrap_or_default();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((start, end)) = range
            .split_once('-')
            .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        else {
            continue;
        };
        // The tool's data is in the file of the area, and right after it.
        if path.ends_with("/area") || (path.is_empty() && start == area_end) {
            area_end = end;
            continue;
        }
        let is_own = heap::is_own(start)
            || (0x7fff_8000..0x1000_7fff_8000).contains(&start)
            || (0x5500_0000_0000..0x5555_0000_0000).contains(&start)
            || (0x5660_0000_0000..0x5680_0000_0000).contains(&start);
        if rights.starts_with("rw") && !is_own && !path.starts_with("/dev/") {
            found.push([start, end]);
        }
    }
    found
}

/// Goes through the words between two addresses.
fn scan(heap: &Heap, [start, end]: [u64; 2], mut found: impl FnMut(&'static mut Block, bool)) {
    let mut at = start.next_multiple_of(8);
    while at + 8 <= end {
        // SAFETY: mapped memory of the process, which ends.
        let word = unsafe { with_exposed_provenance::<u64>(at as usize).read_volatile() };
        at += 8;
        if let Some(block) = heap.find(word)
            && block.state == heap::State::Live
            && word >= block.start
            && word < block.start + block.size.max(1)
        {
            let is_start = word == block.start;
            found(block, is_start);
        }
    }
}

fn follow(heap: &Heap, work: &mut Vec<[u64; 2]>, mark: u8) {
    while let Some(range) = work.pop() {
        scan(heap, range, |block, is_start| {
            let mark = match mark {
                REACHABLE if !is_start => POSSIBLE,
                mark => mark,
            };
            if block.mark < mark {
                block.mark = mark;
                if mark == REACHABLE || mark == INDIRECT {
                    work.push([block.start, block.start + block.size]);
                }
            }
        });
    }
}

/// Finds the leaks and tells them.
pub fn report(detail: Detail) -> u64 {
    let mut text = String::new();
    let mut errors = 0;
    heap::with(|heap| {
        let live: u64 = heap.live().map(|block| block.size).sum();
        let blocks = heap.live().count();
        let _ = writeln!(
            text,
            "HEAP SUMMARY:\n    in use at exit: {live} bytes in {blocks} blocks\n  total heap usage: {} allocs, {} frees, {} bytes allocated\n",
            heap.allocations, heap.frees, heap.bytes
        );
        if blocks == 0 {
            text.push_str("All heap blocks were freed -- no leaks are possible\n");
        } else if detail != Detail::No {
            errors = leaks(heap, detail, &mut text);
        }
    });
    errors::print(&text);
    errors
}

fn leaks(heap: &Heap, detail: Detail, text: &mut String) -> u64 {
    follow(heap, &mut roots(), REACHABLE);
    let possible = heap.live().filter(|block| block.mark == POSSIBLE);
    let mut work: Vec<_> = possible.map(|b| [b.start, b.start + b.size]).collect();
    while let Some(range) = work.pop() {
        scan(heap, range, |block, _| {
            if block.mark < POSSIBLE {
                block.mark = POSSIBLE;
                work.push([block.start, block.start + block.size]);
            }
        });
    }
    // What only lost blocks lead to is lost with them.
    let lost: Vec<_> = (heap.live().filter(|block| block.mark == 0))
        .map(|block| [block.start, block.start + block.size])
        .collect();
    for range in lost {
        let own = range[0];
        if heap.find(own).is_none_or(|block| block.mark != 0) {
            continue;
        }
        let mut inner = vec![range];
        while let Some(range) = inner.pop() {
            scan(heap, range, |block, _| {
                if block.mark == 0 && block.start != own {
                    block.mark = INDIRECT;
                    inner.push([block.start, block.start + block.size]);
                }
            });
        }
    }
    let mut records: HashMap<(u8, u32), (u64, u64)> = HashMap::new();
    for block in heap.live() {
        let record = records.entry((block.mark, block.allocated)).or_default();
        record.0 += block.size;
        record.1 += 1;
    }
    let kinds = [
        (0, "definitely lost"),
        (INDIRECT, "indirectly lost"),
        (POSSIBLE, "possibly lost"),
        (REACHABLE, "still reachable"),
    ];
    let mut errors = 0;
    for (mark, kind) in &kinds[..3] {
        let of_kind = records.iter().filter(|((m, _), _)| m == mark);
        let mut of_kind: Vec<_> = of_kind.map(|((_, stack), sum)| (sum, stack)).collect();
        of_kind.sort_unstable_by(|a, b| b.cmp(a));
        if *mark != INDIRECT {
            errors += of_kind.len() as u64;
        }
        for ((bytes, blocks), stack) in of_kind.iter().filter(|_| detail == Detail::Full) {
            let _ = writeln!(text, "{bytes} bytes in {blocks} blocks are {kind}");
            errors::write_stack(**stack, text);
            text.push('\n');
        }
    }
    text.push_str("LEAK SUMMARY:\n");
    for (mark, kind) in kinds {
        let of_kind = records.iter().filter(|((m, _), _)| *m == mark);
        let sum = of_kind.fold((0, 0), |sum, (_, r)| (sum.0 + r.0, sum.1 + r.1));
        let _ = writeln!(text, "   {kind}: {} bytes in {} blocks", sum.0, sum.1);
    }
    if detail != Detail::Full {
        text.push_str("Rerun with --leak-check=full to see details of leaked memory\n");
    }
    errors
}
