//! The trees of call paths when the program has ended.

use std::collections::HashMap;

use super::nodes::MORE;
use super::state::{PathNode, PathState};
use crate::data::thread_data::AllThreads;

/// A call path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Index of the node of the calling procedure; of the root its own.
    pub parent: usize,
    /// Number of nodes above.
    pub depth: usize,
    /// Number of the procedure, as [`CallPaths::procs`](super::CallPaths) has it. `None` of the root, and of
    /// the node below which calls continue that [`PathOptions::most`](super::PathOptions) keeps from being new paths.
    pub proc: Option<usize>,
    /// Number of the call that leads here, as [`CallPaths::calls`](super::CallPaths) has it; `None` where call sites do not
    /// count, or if no call was seen.
    pub call: Option<usize>,
    /// What [`PathState::count`] has added up here.
    pub own: u64,
    /// What it has added up here and in the nodes below.
    pub total: u64,
    /// Number of entries, with those that led back here.
    pub calls: u64,
    /// No node above has the procedure. The sum of `total` over such nodes of a procedure has each execution once.
    pub is_outermost: bool,
}

/// Calls that have no node of their own: recursive ones, and those beyond the number of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repeat {
    /// Index of the node that calls.
    pub from: usize,
    /// Index of the node to which the calls lead.
    pub to: usize,
    /// Number of calls.
    pub calls: u64,
}

/// Call paths with their counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The nodes, each after its parent. The first is the root.
    pub nodes: Vec<TreeNode>,
    /// Calls without a node of their own.
    pub repeats: Vec<Repeat>,
    /// What the tool has kept by [`PathNode::set_tool`], with the index of the node. Nodes of several threads may be one
    /// here.
    pub kept: Vec<(u64, usize)>,
}

/// The index of a node: its parent's index, its procedure, its call site.
type Indices = HashMap<(usize, u32, u64), usize>;

impl Tree {
    /// The sums of all threads.
    pub fn merged(all: AllThreads<PathState>) -> Self {
        Self::of(all.iter())
    }

    /// A tree for each thread. A thread that has gone on with the state of one that had ended is in its tree.
    pub fn of_threads(all: AllThreads<PathState>) -> impl Iterator<Item = Self> {
        all.iter().map(|state| Self::of(std::iter::once(state)))
    }

    fn of<'a>(states: impl Iterator<Item = &'a PathState>) -> Self {
        let root = TreeNode {
            parent: 0,
            depth: 0,
            proc: None,
            call: None,
            own: 0,
            total: 0,
            calls: 0,
            is_outermost: true,
        };
        let mut tree = Self {
            nodes: vec![root],
            repeats: Vec::new(),
            kept: Vec::new(),
        };
        let mut indices = Indices::new();
        for state in states {
            tree.add(state, &mut indices);
        }
        tree.repeats.sort_unstable_by_key(|r| (r.from, r.to));
        tree.repeats.dedup_by(|b, a| {
            let is_same = (a.from, a.to) == (b.from, b.to);
            a.calls += if is_same { b.calls } else { 0 };
            is_same
        });
        for node in &mut tree.nodes {
            node.total = node.own;
        }
        for i in (1..tree.nodes.len()).rev() {
            let (parent, total) = (tree.nodes[i].parent, tree.nodes[i].total);
            tree.nodes[parent].total += total;
        }
        tree.find_outermost();
        tree
    }

    fn add(&mut self, state: &PathState, indices: &mut Indices) {
        let mut all = state.nodes();
        // Oldest first: a node is younger than its parent and its target.
        all.reverse();
        self.nodes[0].own += settled(&state.root);
        self.keep(&state.root, 0);
        let mut places: HashMap<u64, usize> = HashMap::from([(0, 0)]);
        for (place, node) in all {
            let calls = node.calls.get();
            let Some(&parent) = places.get(&node.parent.get()) else {
                continue;
            };
            if node.target.get() != place {
                if let Some(&to) = places.get(&node.target.get()).filter(|_| calls != 0) {
                    self.nodes[to].calls += calls;
                    let from = parent;
                    self.repeats.push(Repeat { from, to, calls });
                }
                continue;
            }
            let key = (parent, node.proc.get(), node.site.get());
            let index = *indices.entry(key).or_insert_with(|| {
                self.nodes.push(TreeNode {
                    parent,
                    depth: self.nodes[parent].depth + 1,
                    proc: Some(node.proc.get())
                        .filter(|proc| *proc != MORE)
                        .map(|proc| proc as usize - 1),
                    call: node.call(),
                    own: 0,
                    total: 0,
                    calls: 0,
                    is_outermost: true,
                });
                self.nodes.len() - 1
            });
            self.nodes[index].own += settled(node);
            self.nodes[index].calls += calls;
            places.insert(place, index);
            self.keep(node, index);
        }
    }

    fn keep(&mut self, node: &PathNode, index: usize) {
        if node.tool() != 0 {
            self.kept.push((node.tool(), index));
        }
    }

    /// Indices of the children of each node, those with the largest totals first.
    pub fn children(&self) -> Vec<Vec<usize>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate().skip(1) {
            children[node.parent].push(i);
        }
        for list in &mut children {
            list.sort_by_key(|i| std::cmp::Reverse(self.nodes[*i].total));
        }
        children
    }

    /// Indices of the nodes from below the root to a node.
    pub fn path(&self, mut node: usize) -> Vec<usize> {
        let mut path = Vec::with_capacity(self.nodes[node].depth);
        while node != 0 {
            path.push(node);
            node = self.nodes[node].parent;
        }
        path.reverse();
        path
    }

    /// Sets [`TreeNode::is_outermost`] of all nodes.
    fn find_outermost(&mut self) {
        let children = self.children();
        // The procedures on the path, each with the number of its nodes there.
        let mut on_path: HashMap<usize, usize> = HashMap::new();
        // A node is on the path while those below it are visited, and is left after them.
        let mut open = vec![(0, false)];
        while let Some((i, is_left)) = open.pop() {
            let node = &mut self.nodes[i];
            let count = node.proc.map(|proc| on_path.entry(proc).or_default());
            if is_left {
                count.into_iter().for_each(|count| *count -= 1);
                continue;
            }
            if let Some(count) = count {
                node.is_outermost = *count == 0;
                *count += 1;
            }
            open.push((i, true));
            open.extend(children[i].iter().map(|child| (*child, false)));
        }
    }
}

/// What a node has counted. A thread that did not end has perhaps not yet added what makes the sum positive.
fn settled(node: &PathNode) -> u64 {
    let own = node.own.get();
    if own as i64 >= 0 { own } else { 0 }
}

impl PathState {
    /// All nodes but the root with their places, the newest first.
    fn nodes(&self) -> Vec<(u64, &'static PathNode)> {
        let mut nodes = Vec::new();
        let mut place = self.newest.get();
        while place != 0 {
            // SAFETY: the place of a node of this state.
            let node = unsafe { self.at(place) };
            nodes.push((place, node));
            place = node.older.get();
        }
        nodes
    }

    /// Sets what all nodes have counted to 0.
    pub(super) fn clear(&self) {
        let mut place = self.newest.get();
        for node in [&self.root].into_iter().chain(std::iter::from_fn(|| {
            let at = (place != 0).then_some(place)?;
            // SAFETY: the place of a node of this state.
            let node = unsafe { self.at(at) };
            place = node.older.get();
            Some(node)
        })) {
            node.own.set(0);
            node.calls.set(0);
        }
    }
}
