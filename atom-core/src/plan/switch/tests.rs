//! An independent look at the places of tests: no way through a program avoids them for long.

use std::path::Path;

use super::left_out;
use crate::cfg::{Cfg, Succ, seeds::FrameFacts};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::tool::crossings::{entry, headers};
use crate::x86::ControlFlow;

/// Where control goes after a block, by known ways.
struct Ways {
    /// In the procedure, and by jumps to others.
    next: Vec<BlockId>,
    /// By a call, after which it comes back.
    called: Option<BlockId>,
}

fn ways(image: &Image, cfg: &Cfg, b: BlockId) -> Ways {
    let last = cfg.block(b).last();
    let is_call = cfg.inst(last).flow == ControlFlow::Call;
    let called = is_call.then(|| cfg.direct_target(image, last)).flatten();
    let next = cfg.succs(b).iter().filter_map(|succ| match *succ {
        Succ::Fall(to) | Succ::Branch(to) => Some(to),
        Succ::Tail(to) => cfg.block_at(to.get()),
        Succ::Unknown => None,
    });
    Ways {
        next: next.collect(),
        called: called.and_then(|pc| cfg.block_at(pc)),
    }
}

/// The largest number of instructions between two tests of the light version. Fails at a cycle without a test.
fn longest(path: &str, with_left_out: bool) -> (u64, usize) {
    let image = Image::open(Path::new(path)).unwrap();
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    let left_out = left_out(&image, &cfg);
    let mut is_tested = vec![false; cfg.blocks.len()];
    let mut tested_entries = 0;
    for p in (0..cfg.procs.len()).map(ProcId::from_index) {
        headers(&cfg, p)
            .iter()
            .for_each(|b| is_tested[b.index()] = true);
        if let Some(b) = entry(&cfg, p)
            && !(with_left_out && left_out[p.index()])
        {
            is_tested[b.index()] = true;
            tested_entries += 1;
        }
    }
    let ways: Vec<Ways> = (0..cfg.blocks.len())
        .map(|b| ways(&image, &cfg, BlockId::from_index(b)))
        .collect();
    let untested = |b: &BlockId| !is_tested[b.index()];
    let after = |b: usize| {
        ways[b]
            .next
            .iter()
            .chain(&ways[b].called)
            .copied()
            .filter(untested)
    };
    let mut before = vec![0; ways.len()];
    for b in (0..ways.len()).flat_map(after) {
        before[b.index()] += 1;
    }
    // Blocks in an order in which each is before those that it leads to.
    let mut order: Vec<usize> = (0..ways.len()).filter(|b| before[*b] == 0).collect();
    let mut done = 0;
    while let Some(b) = order.get(done).copied() {
        done += 1;
        for to in after(b) {
            before[to.index()] -= 1;
            if before[to.index()] == 0 {
                order.push(to.index());
            }
        }
    }
    let in_cycles = (0..ways.len()).filter(|b| before[*b] != 0);
    let in_cycles: Vec<u64> = in_cycles
        .map(|b| cfg.block_pc(BlockId::from_index(b)))
        .collect();
    assert!(
        in_cycles.is_empty(),
        "{path}: no test in cycles of {in_cycles:x?}"
    );
    let mut to_end = vec![0; ways.len()];
    let mut longest = 0;
    for &b in order.iter().rev() {
        let count = |b: &BlockId| if untested(b) { to_end[b.index()] } else { 0 };
        let next = ways[b].next.iter().map(count).max().unwrap_or_default();
        let called = ways[b].called.as_ref().map_or(0, count);
        let block = cfg.block(BlockId::from_index(b));
        to_end[b] = u64::from(block.count) + called + next;
        longest = longest.max(to_end[b]);
    }
    (longest, tested_entries)
}

#[test]
fn a_test_is_met_soon_on_all_ways() {
    for program in [
        "/bin/bash",
        "/usr/bin/perl",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    ] {
        let (few, tested) = longest(program, true);
        let (_, all) = longest(program, false);
        assert!(
            few <= 10_000,
            "{program}: {few} instructions without a test"
        );
        assert!(
            3 * tested < all,
            "{program}: {tested} of {all} entries have tests"
        );
    }
}
