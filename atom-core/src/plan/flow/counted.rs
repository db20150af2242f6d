//! Counting the flow of one group of procedures after the other.

use super::group::{self, Group, Spot, World};
use super::qualify::{Want, Way};
use super::table;
use super::tree::Solver;
use crate::ids::ProcId;

/// What came out for some groups.
#[derive(Default)]
pub(super) struct Counted {
    /// Where the counters stand, in the order of their cells.
    pub spots: Vec<Spot>,
    /// The records of the table.
    pub table: Vec<u8>,
    /// The most values that the table computes for one group.
    pub values: usize,
}

/// What is used for one group after the other.
#[derive(Default)]
pub(super) struct Storage {
    /// What the group wants.
    pub wants: Vec<Want>,
    group: Group,
    solver: Solver,
    /// By number of what is wanted: the edge.
    edges: Vec<u32>,
    values: Vec<u32>,
}

impl Counted {
    /// Counts one group's flow for `storage.wants`, if that is possible and pays.
    pub fn add(
        &mut self,
        world: &World<'_>,
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
        graph.read(world, procs)?;
        edges.clear();
        let mut explicit = 0.0;
        for want in &*wants {
            let i = group::index_of(world.cfg, procs, want.block)?;
            let edge = match want.way {
                Way::Block => i as u32,
                Way::Taken => graph.branches[i]?.taken,
                Way::Falling => graph.branches[i]?.falling,
            };
            // What the call would cost at least: a branch's cell has to be found.
            explicit += match want.way {
                Way::Block => graph.edges[i].cost?,
                _ => graph.estimate.frequency[i] * 2.0,
            };
            graph.edges[edge as usize].wanted = true;
            edges.push(edge);
        }
        let solution = solver.solve(graph.vertices(), &graph.edges)?;
        let cost: f32 = solution
            .counted
            .iter()
            .filter_map(|e| graph.edges[*e as usize].cost)
            .sum();
        if cost > explicit {
            return None;
        }
        let spots = solution.counted.iter().map(|e| graph.spots[*e as usize]);
        let (count, size) = (self.spots.len(), self.table.len());
        let cells = wants.iter().zip(&*edges).map(|(want, edge)| table::CellOf {
            edge: *edge,
            cell: want.cell,
            amount: want.amount,
        });
        values.clear();
        values.resize(graph.edges.len(), u32::MAX);
        let written = spots
            .map(|spot| spot.map(|spot| self.spots.push(spot)))
            .collect::<Option<()>>()
            .and_then(|()| table::write(&mut self.table, values, solution, cells));
        if written.is_none() {
            self.spots.truncate(count);
            self.table.truncate(size);
            return None;
        }
        let values = solution.counted.len() + solution.derived.len();
        self.values = self.values.max(values);
        Some(())
    }
}
