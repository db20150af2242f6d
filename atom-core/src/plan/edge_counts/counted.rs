//! Choosing the counters of one group of procedures after the other.

use super::group::{Context, CounterSite, Group};
use super::members;
use super::qualify::{Want, Way};
use super::table;
use super::tree::Solver;
use crate::ids::ProcId;

/// Results for some groups.
#[derive(Default)]
pub(super) struct Counted {
    /// Places of the counters, in the order of their cells.
    pub sites: Vec<CounterSite>,
    /// The records of the table.
    pub table: Vec<u8>,
    /// Largest number of values that the table computes for one group.
    pub values: usize,
}

/// Storage that is reused for one group after the other.
#[derive(Default)]
pub(super) struct Storage {
    /// Counts that the group's calls want.
    pub wants: Vec<Want>,
    group: Group,
    solver: Solver,
    /// Edge of each wanted count.
    edges: Vec<u32>,
    values: Vec<u32>,
}

impl Counted {
    /// Chooses counters of one group for `storage.wants`. `None` if that is impossible or does not pay.
    pub fn add(
        &mut self,
        context: &Context<'_>,
        procs: &[ProcId],
        storage: &mut Storage,
    ) -> Option<()> {
        let Storage {
            wants,
            group: graph,
            solver,
            edges,
            values,
        } = storage;
        graph.read(context, procs)?;
        edges.clear();
        let mut explicit = 0.0;
        for want in &*wants {
            let i = members::index_of(context.cfg, procs, want.block)?;
            let edge = graph.edge(i, want.way)?;
            // Least cost of making the call; for a branch's call, the cell has to be found too.
            explicit += match want.way {
                Way::Block => graph.edges[i].cost,
                _ => graph.estimate.frequency[i] * 2.0,
            };
            graph.edges[edge as usize].wanted = true;
            edges.push(edge);
        }
        let solution = solver.solve(graph.vertices, &mut graph.edges)?;
        let counted = solution.counted.iter().map(|e| *e as usize);
        let cost: f32 = counted.clone().map(|e| graph.edges[e].cost).sum();
        if cost > explicit {
            return None;
        }
        let size = self.table.len();
        let cells = wants.iter().zip(&*edges).map(|(want, edge)| table::CellOf {
            edge: *edge,
            cell: want.cell,
            amount: want.amount,
        });
        values.clear();
        values.resize(graph.edges.len(), u32::MAX);
        if table::write(&mut self.table, values, solution, cells).is_none() {
            self.table.truncate(size);
            return None;
        }
        self.sites.extend(counted.map(|e| graph.sites[e]));
        let values = solution.counted.len() + solution.derived.len();
        self.values = self.values.max(values);
        Some(())
    }
}
