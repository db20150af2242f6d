//! What was found: the call paths, and the cost of procedures and of their calls.

use std::collections::BTreeMap;

use atom_tool::paths::{Tree, TreeNode};
use atom_tool::prelude::*;

/// What a procedure costs.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// Its own instructions.
    pub own: u64,
    /// The instructions from its entries to its exits.
    pub total: u64,
    /// Number of its entries.
    pub calls: u64,
}

/// Calls of a procedure by another one.
#[derive(Clone, Copy, Default)]
pub struct Arc {
    /// Number of calls.
    pub calls: u64,
    /// Instructions of these calls; those that lead back to a procedure which is on the path count as 0.
    pub total: u64,
}

/// What the tables show.
pub struct Found {
    /// The call paths of all threads.
    pub tree: Tree,
    /// The procedures.
    pub procs: Sites,
    /// The cost of each procedure.
    pub costs: Vec<Cost>,
    /// Calls by the numbers of the calling and of the called procedure.
    pub arcs: BTreeMap<(usize, usize), Arc>,
}

impl Found {
    /// From the call paths of all threads.
    pub fn new(tree: Tree, procs: Sites) -> Self {
        let mut costs = vec![Cost::default(); procs.len()];
        let mut arcs: BTreeMap<(usize, usize), Arc> = BTreeMap::new();
        let proc_of = |node: usize| tree.nodes[node].proc;
        let mut entries: Vec<u64> = tree.nodes.iter().map(|node| node.calls).collect();
        for repeat in &tree.repeats {
            entries[repeat.to] -= repeat.calls;
            if let (Some(from), Some(to)) = (proc_of(repeat.from), proc_of(repeat.to)) {
                arcs.entry((from, to)).or_default().calls += repeat.calls;
            }
        }
        for (i, node) in tree.nodes.iter().enumerate() {
            let Some(proc) = node.proc else { continue };
            let cost = &mut costs[proc];
            cost.own += node.own;
            cost.calls += node.calls;
            cost.total += if node.is_outermost { node.total } else { 0 };
            if let Some(caller) = proc_of(node.parent) {
                let arc = arcs.entry((caller, proc)).or_default();
                arc.calls += entries[i];
                arc.total += if node.is_outermost { node.total } else { 0 };
            }
        }
        Self {
            tree,
            procs,
            costs,
            arcs,
        }
    }

    /// The name of a node's procedure, with its object.
    pub fn name(&self, node: &TreeNode) -> String {
        match node.proc.and_then(|proc| self.procs.get(proc)) {
            Some(site) => site.proc_of_process().into_owned(),
            None if node.depth == 0 => "(start)".to_owned(),
            None => "(more paths)".to_owned(),
        }
    }
}
