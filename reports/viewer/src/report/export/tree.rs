//! Stacks from a call graph.
//!
//! Arcs tell how often a procedure calls another one, not what the callee cost in each call. As gprof does, each call of
//! a procedure is taken to cost the same. A procedure's own cost is shared out among the stacks in which it occurs, in
//! proportion to its calls there. So stacks are estimates. The sum over all stacks of a procedure is its own cost, exactly.
//!
//! Arcs that lead back into a procedure that is open (recursion) are left out: their calls count as calls of the outer one.

use std::collections::{BTreeMap, BinaryHeap, HashMap};

use profile::{By, Profile, Type};

use super::Spot;

/// A procedure: the number of its object, and its name.
pub type Proc = (usize, String);

/// Largest number of stacks. Further ones, which are the smallest, get no stack of their own.
const STACKS: usize = 20_000;

/// A stack is left out if its share of all calls of its last procedure is smaller.
const SMALLEST: f64 = 1e-6;

/// The own costs of procedures, by the first measure. Code that is in no procedure counts by its address.
pub fn own(spots: &[Spot]) -> BTreeMap<Proc, u64> {
    let mut own: BTreeMap<Proc, u64> = BTreeMap::new();
    for spot in spots {
        let value = spot.values[0].float().unwrap_or(0.0).round() as u64;
        let name = match &*spot.procedure {
            "" => format!("{:#x}", spot.at),
            name => name.to_owned(),
        };
        *own.entry((spot.object, name)).or_default() += value;
    }
    own
}

/// A procedure of the graph.
#[derive(Default)]
struct Node {
    proc: Proc,
    own: u64,
    /// Own cost that stacks have got so far: exact, and rounded.
    given: (f64, u64),
    callees: Vec<(usize, u64)>,
    /// Number of calls, without those that lead back.
    calls: u64,
    /// Calls from callers that are not known.
    outside: u64,
}

/// A call graph with costs.
pub struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// The graph of a profile that has arcs; `own` has the own costs of procedures.
    pub fn new(profile: &Profile, own: BTreeMap<Proc, u64>) -> Option<Self> {
        let table = profile.tables.iter().find(|t| t.by == By::Arc)?;
        let mut numbers: HashMap<Proc, usize> = HashMap::new();
        let mut nodes: Vec<Node> = Vec::new();
        let mut number = |proc: Proc| {
            *numbers.entry(proc.clone()).or_insert_with(|| {
                nodes.push(Node {
                    proc,
                    ..Node::default()
                });
                nodes.len() - 1
            })
        };
        let proc = |name: &str, row: usize| {
            let pcs = table
                .column(&format!("{name} pc"))
                .filter(|c| c.kind == Type::Address)?;
            pcs.values.get(row)?.integer()?;
            let text = profile.text(*table.column(name)?.values.get(row)?)?;
            Some((pcs.object(row), text.to_owned()))
        };
        let mut arcs: BTreeMap<(Option<usize>, usize), u64> = BTreeMap::new();
        for row in 0..table.rows {
            let calls = table
                .column("calls")
                .and_then(|c| c.values.get(row)?.integer());
            let (Some(calls), Some(callee)) = (calls, proc("callee", row)) else {
                continue;
            };
            let (caller, callee) = (proc("caller", row).map(&mut number), number(callee));
            *arcs.entry((caller, callee)).or_default() += calls;
        }
        let own: Vec<(usize, u64)> = own.into_iter().map(|(p, n)| (number(p), n)).collect();
        for (node, own) in own {
            nodes[node].own = own;
        }
        for ((caller, callee), calls) in arcs {
            match caller {
                Some(caller) => nodes[caller].callees.push((callee, calls)),
                None => nodes[callee].outside += calls,
            }
        }
        let mut graph = Self { nodes };
        graph.cut_cycles();
        Some(graph)
    }

    /// Removes the arcs that lead back, so that the graph has no cycles, and counts the calls that are left.
    fn cut_cycles(&mut self) {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; self.nodes.len()];
        let mut starts: Vec<usize> = (0..self.nodes.len()).collect();
        starts.sort_by_key(|n| std::cmp::Reverse(self.nodes[*n].outside != 0));
        for start in starts {
            if states[start] != State::New {
                continue;
            }
            states[start] = State::Open;
            let mut path = vec![(start, 0)];
            while let Some((node, next)) = path.last_mut() {
                let node = *node;
                let Some((callee, _)) = self.nodes[node].callees.get(*next).copied() else {
                    states[node] = State::Done;
                    path.pop();
                    continue;
                };
                match states[callee] {
                    State::Open => drop(self.nodes[node].callees.remove(*next)),
                    State::Done => *next += 1,
                    State::New => {
                        *next += 1;
                        states[callee] = State::Open;
                        path.push((callee, 0));
                    }
                }
            }
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].calls += self.nodes[node].outside;
            for (callee, calls) in self.nodes[node].callees.clone() {
                self.nodes[callee].calls += calls;
            }
        }
    }

    /// Procedures so that each is before those that it calls.
    fn order(&self) -> Vec<usize> {
        let mut left = vec![0usize; self.nodes.len()];
        for (callee, _) in self.nodes.iter().flat_map(|n| &n.callees) {
            left[*callee] += 1;
        }
        let mut order: Vec<usize> = (0..left.len()).filter(|n| left[*n] == 0).collect();
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            at += 1;
            for (callee, _) in &self.nodes[node].callees {
                left[*callee] -= 1;
                if left[*callee] == 0 {
                    order.push(*callee);
                }
            }
        }
        order
    }

    /// The cost of each procedure with all that it calls.
    fn inclusive(&self) -> Vec<f64> {
        let mut costs: Vec<f64> = self.nodes.iter().map(|n| n.own as f64).collect();
        for node in self.order().into_iter().rev() {
            let callees = &self.nodes[node].callees;
            let share = |(callee, calls): &(usize, u64)| {
                costs[*callee] * *calls as f64 / self.nodes[*callee].calls.max(1) as f64
            };
            costs[node] += callees.iter().map(share).sum::<f64>();
        }
        costs
    }

    /// What the calls of each arc cost with all that they call, by caller and callee; arcs that lead back cost nothing.
    pub fn arcs(&self) -> HashMap<(Proc, Proc), u64> {
        let inclusive = self.inclusive();
        let mut arcs = HashMap::new();
        for node in &self.nodes {
            for (callee, calls) in &node.callees {
                let to = &self.nodes[*callee];
                let cost = inclusive[*callee] * *calls as f64 / to.calls.max(1) as f64;
                let arc = (node.proc.clone(), to.proc.clone());
                *arcs.entry(arc).or_default() += cost.round() as u64;
            }
        }
        arcs
    }

    /// The stacks, the outermost procedure first, with the own costs of their last procedures. What belongs to stacks
    /// that are left out is at the procedure alone.
    pub fn stacks(mut self) -> BTreeMap<Vec<Proc>, u64> {
        let inclusive = self.inclusive();
        let all: f64 = self.nodes.iter().map(|n| n.own as f64).sum();
        let mut stacks: BTreeMap<Vec<Proc>, u64> = BTreeMap::new();
        // The heaviest come first, so that the limit leaves out light ones: weight, procedures, share of the last one.
        let mut open: BinaryHeap<(u64, Vec<usize>, u64)> = BinaryHeap::new();
        let push = |open: &mut BinaryHeap<_>, path: Vec<usize>, share: f64| {
            let weight = path.last().map_or(0.0, |n| inclusive[*n] * share);
            if share > 0.0 && weight >= all * SMALLEST {
                open.push((weight as u64, path, share.to_bits()));
            }
        };
        for (number, node) in self.nodes.iter().enumerate() {
            let share = match node.calls {
                0 => 1.0,
                calls => node.outside as f64 / calls as f64,
            };
            push(&mut open, vec![number], share);
        }
        while let Some((_, path, share)) = open.pop() {
            if stacks.len() >= STACKS {
                break;
            }
            let share = f64::from_bits(share);
            let Some(last) = path.last().copied() else {
                continue;
            };
            let node = &mut self.nodes[last];
            node.given.0 += node.own as f64 * share;
            let value = (node.given.0.round() as u64).min(node.own) - node.given.1;
            node.given.1 += value;
            let callees = node.callees.clone();
            if value != 0 {
                *stacks.entry(self.names(&path)).or_default() += value;
            }
            for (callee, calls) in callees {
                let part = share * calls as f64 / self.nodes[callee].calls.max(1) as f64;
                push(&mut open, [&*path, &[callee]].concat(), part);
            }
        }
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let rest = node.own - node.given.1;
            if rest != 0 {
                *stacks.entry(self.names(&[number])).or_default() += rest;
            }
        }
        stacks
    }

    fn names(&self, path: &[usize]) -> Vec<Proc> {
        path.iter().map(|n| self.nodes[*n].proc.clone()).collect()
    }
}
