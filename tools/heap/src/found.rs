//! What was found: the heap, and its figures by call path.

use std::collections::BTreeMap;

use atom_tool::PathNames;
use atom_tool::allocations::Wrappers;
use atom_tool::paths::Tree;
use atom_tool::prelude::*;

use crate::live::{Figures, Heap};
use crate::sites::Places;

/// What was found.
pub struct Found<'a> {
    pub heap: &'a Heap,
    pub tree: Tree,
    pub sites: Places,
    /// The procedures that allocate for their callers.
    pub wrappers: Wrappers,
    /// Ticks of the time-stamp counter in a millisecond.
    pub ticks_per_ms: f64,
}

/// The figures of a call path of the process.
#[derive(Clone, Copy, Default)]
pub struct Path {
    pub allocations: u64,
    pub bytes: u64,
    /// Number and bytes of blocks that were live at the peak, and of those that were never freed.
    pub peak: [u64; 2],
    pub end: [u64; 2],
    pub freed: u64,
    pub lifetimes: u64,
    pub largest: u64,
    pub bad_frees: u64,
}

/// The sums of two pairs.
pub fn sum(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

impl Path {
    /// Adds the figures of another path.
    fn merge(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.bytes += other.bytes;
        self.peak = sum(self.peak, other.peak);
        self.end = sum(self.end, other.end);
        self.freed += other.freed;
        self.lifetimes += other.lifetimes;
        self.largest = self.largest.max(other.largest);
        self.bad_frees += other.bad_frees;
    }

    fn add(&mut self, figures: &Figures, peak: u64) {
        let at_peak = figures.at_peak(peak);
        self.allocations += figures.allocations;
        self.bytes += figures.bytes;
        self.peak = sum(self.peak, at_peak);
        self.end = sum(self.end, figures.live);
        self.freed += figures.freed[0];
        self.lifetimes += figures.lifetimes;
        self.largest = self.largest.max(figures.largest);
        self.bad_frees += figures.bad_frees;
    }
}

impl Found<'_> {
    /// The figures by the index of their node.
    pub fn paths(&self) -> BTreeMap<usize, Path> {
        let mut paths: BTreeMap<usize, Path> = BTreeMap::new();
        for (number, node) in &self.tree.kept {
            if let Some(figures) = self.heap.paths.get(*number as usize - 1) {
                paths
                    .entry(*node)
                    .or_default()
                    .add(figures, self.heap.peaks);
            }
        }
        for (node, path) in &mut paths {
            if path.bad_frees != 0 && self.is_internal(*node) {
                path.bad_frees = 0;
            }
        }
        paths
    }

    /// The figures by the paths as people read them, of at most `most` procedures each.
    pub fn by_text(&self, paths: &BTreeMap<usize, Path>, most: usize) -> Vec<(String, Path)> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut all: Vec<(String, Path)> = Vec::new();
        for (node, path) in paths {
            let text = self.text(*node, most);
            let place = *places.entry(text.clone()).or_insert(all.len());
            if place == all.len() {
                all.push((text, Path::default()));
            }
            all[place].1.merge(path);
        }
        all
    }

    /// True if a path leads from the allocator's own library, which frees what it allocated by other means, such as its
    /// cache of blocks at a thread's end; or from the runtime of exceptions, which frees what it allocated inside
    /// of an `operator new` that threw.
    fn is_internal(&self, node: usize) -> bool {
        const ENDS: [&str; 2] = ["tcache_thread_shutdown", "__malloc_arena_thread_freeres"];
        const EXCEPTIONS: [&str; 3] = [
            "__cxa_end_catch",
            "__cxa_free_exception",
            "__deregister_frame_info_bases",
        ];
        let nodes = &self.tree.nodes;
        let [callee, caller] = [node, nodes[node].parent].map(|node| self.sites.proc(&nodes[node]));
        let (Some(callee), Some(caller)) = (callee, caller) else {
            return false;
        };
        let [from, to] = [caller.pc, callee.pc].map(|pc| Address(pc).object_number());
        let is_own = from == to && (from != 0 || ENDS.contains(&caller.proc));
        is_own || EXCEPTIONS.contains(&caller.proc)
    }

    /// Milliseconds since the start.
    pub fn ms(&self, time: u64) -> f64 {
        time.saturating_sub(self.heap.start) as f64 / self.ticks_per_ms
    }

    /// The node whose caller is the first one that is no allocator and does not allocate for its own callers. If there is none,
    /// the node itself.
    pub fn outside(&self, node: usize) -> usize {
        let nodes = &self.tree.nodes;
        let outwards = || {
            std::iter::successors(Some(node), |at| {
                Some(nodes[*at].parent).filter(|at| *at != 0)
            })
        };
        let callers = outwards().map(|at| nodes[nodes[at].parent].proc);
        let inner = self.wrappers.inner(callers);
        outwards().nth(inner).unwrap_or(node)
    }

    /// The procedures of a path as people read them, the innermost caller first. What allocates for its caller is left out. An
    /// object is named where a procedure is in another object than the procedure before.
    pub fn text(&self, node: usize, most: usize) -> String {
        let mut node = self.outside(node);
        let nodes = &self.tree.nodes;
        let mut parts: Vec<String> = Vec::new();
        let mut names = PathNames::default();
        while node != 0 && parts.len() < most {
            let caller = nodes[node].parent;
            let site = self.sites.proc(&nodes[caller]);
            let name = match (caller, names.next(site.as_ref())) {
                (0, _) => format!("({})", self.sites.name(&nodes[node])),
                (_, Some(name)) => name,
                (_, None) => self.sites.name(&nodes[caller]),
            };
            let call = self.sites.call(&nodes[node]).filter(|_| caller != 0);
            parts.push(match call.and_then(|call| call.short_line()) {
                Some(line) => format!("{name} ({line})"),
                None => name,
            });
            node = caller;
            // What calls it is of no interest.
            if site.is_some_and(|site| site.proc == "main") {
                break;
            }
        }
        // The outermost procedure has no caller, and is there itself already.
        if node == 0 && parts.len() > 1 {
            parts.pop();
        }
        parts.join(" < ")
    }
}
