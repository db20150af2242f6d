//! Choosing the edges of a flow graph that are counted, and the sums from which all others follow.
//!
//! The flow into a vertex equals the flow out of it, so the counts of the edges outside of a spanning tree
//! determine the counts of those inside (Knuth; Ball and Larus). The tree is the most expensive one, so
//! that the counted edges are cheap. Edges that cannot be counted have to be in the tree if their counts are
//! wanted. The vertices of other edges that cannot be counted are merged. Vertex 0 stands for the world
//! outside, through which all control enters and leaves; its equation is not needed.

use std::ops::Range;

/// An edge of a flow graph.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Edge {
    /// Start vertex and end vertex.
    pub ends: [u32; 2],
    /// Cost of counting it, a positive number; infinite if it cannot be counted.
    pub cost: f32,
    /// True if its count is wanted.
    pub wanted: bool,
}

impl Edge {
    /// True if its count is neither wanted nor possible.
    fn is_idle(&self) -> bool {
        self.cost.is_infinite() && !self.wanted
    }

    /// True if it ends at its start vertex.
    fn is_loop(&self) -> bool {
        self.ends[0] == self.ends[1]
    }
}

/// An edge whose count follows from others.
#[derive(Clone, PartialEq, Debug)]
pub struct Derived {
    /// The edge.
    pub edge: u32,
    /// Range of [`Solution::terms`].
    pub terms: Range<u32>,
}

/// What to count.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Solution {
    /// Edges with a counter.
    pub counted: Vec<u32>,
    /// Further edges whose counts are needed, in an order in which they can be computed.
    pub derived: Vec<Derived>,
    /// Edges to add up, and whether each is subtracted. Each is counted, or derived earlier.
    pub terms: Vec<(u32, bool)>,
}

impl Solution {
    /// The terms of a derived edge.
    pub fn terms_of(&self, derived: &Derived) -> &[(u32, bool)] {
        &self.terms[derived.terms.start as usize..derived.terms.end as usize]
    }
}

/// Disjoint sets of vertices.
#[derive(Default)]
struct Sets(Vec<u32>);

impl Sets {
    /// Makes sets of one vertex each.
    fn reset(&mut self, count: usize) {
        self.0.clear();
        self.0.extend(0..count as u32);
    }

    fn find(&mut self, mut v: u32) -> u32 {
        while self.0[v as usize] != v {
            let next = self.0[self.0[v as usize] as usize];
            self.0[v as usize] = next;
            v = next;
        }
        v
    }

    /// Joins two sets; false if they were joined already.
    fn join(&mut self, [a, b]: [u32; 2]) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a as usize] = b;
        a != b
    }
}

/// No edge.
const NONE: u32 = u32::MAX;

/// Solves one graph after the other, reusing its storage.
#[derive(Default)]
pub struct Solver {
    sets: Sets,
    /// For each edge, whether it is in the tree.
    in_tree: Vec<bool>,
    /// For each edge, whether its count is wanted, or needed to compute another.
    needed: Vec<bool>,
    /// Edges that can be in the tree, most expensive first: cost and edge in one number.
    by_cost: Vec<u64>,
    at: Incidence,
    /// Vertices in the order from the roots outwards.
    order: Vec<u32>,
    /// For each vertex, the edge to its parent.
    parent: Vec<u32>,
    /// For each vertex, the first vertex of its part, where the tree is cut at the wanted edges.
    part: Vec<u32>,
    solution: Solution,
}

impl Solver {
    /// Chooses the edges to count. `None` if an edge whose count is wanted cannot be counted and does not
    /// follow from others. Merging vertices changes the ends of edges.
    pub fn solve(&mut self, vertices: usize, edges: &mut [Edge]) -> Option<&Solution> {
        let vertices = if edges.iter().any(|e| e.is_idle() && !e.is_loop()) {
            self.join(vertices, edges)
        } else {
            vertices
        };
        self.span(vertices, edges);
        self.at.find(vertices, edges);
        self.walk(vertices, edges);
        let Self {
            in_tree,
            needed,
            at,
            order,
            parent,
            part,
            solution,
            ..
        } = self;
        solution.counted.clear();
        solution.derived.clear();
        solution.terms.clear();
        // A counter matters if its edge is wanted, or if it closes a cycle with a
        // wanted edge of the tree: then its ends are in different parts of what
        // remains of the tree without the wanted edges.
        for (i, edge) in edges.iter().enumerate().filter(|(i, _)| !in_tree[*i]) {
            let [from, to] = edge.ends.map(|v| part[v as usize]);
            if edge.wanted || from != to {
                if edge.cost.is_infinite() {
                    return None;
                }
                needed[i] = true;
                solution.counted.push(i as u32);
            }
        }
        for &v in order.iter().rev() {
            let up = parent[v as usize];
            if up == NONE || !needed[up as usize] {
                continue;
            }
            let up_edge = &edges[up as usize];
            let enters = up_edge.ends[1] == v;
            let first = solution.terms.len() as u32;
            for &e in at.of(v) {
                if e != up && needed[e as usize] {
                    let comes_in = edges[e as usize].ends[1] == v;
                    solution.terms.push((e, comes_in == enters));
                }
            }
            let terms = first..solution.terms.len() as u32;
            if terms.is_empty() && !up_edge.wanted {
                // No needed edge depends on it.
                needed[up as usize] = false;
                continue;
            }
            solution.derived.push(Derived { edge: up, terms });
        }
        Some(&*solution)
    }

    /// Merges the vertices of edges that cannot be counted and are not wanted; returns the number of vertices
    /// that remain.
    fn join(&mut self, vertices: usize, edges: &mut [Edge]) -> usize {
        let sets = &mut self.sets;
        sets.reset(vertices);
        for edge in edges.iter().filter(|e| e.is_idle()) {
            sets.join(edge.ends);
        }
        let mut joined = vec![NONE; vertices];
        let mut count = 0;
        for v in 0..vertices as u32 {
            let first = sets.find(v) as usize;
            if joined[first] == NONE {
                joined[first] = count;
                count += 1;
            }
            joined[v as usize] = joined[first];
        }
        for edge in edges {
            edge.ends = edge.ends.map(|v| joined[v as usize]);
        }
        count as usize
    }

    /// Finds the spanning tree.
    fn span(&mut self, vertices: usize, edges: &[Edge]) {
        let Self {
            sets,
            in_tree,
            by_cost,
            ..
        } = self;
        sets.reset(vertices);
        by_cost.clear();
        for (i, edge) in edges.iter().enumerate().filter(|(_, e)| !e.is_loop()) {
            // The bit patterns of positive floating-point numbers have the order of the numbers.
            by_cost.push(u64::from(!edge.cost.to_bits()) << 32 | i as u64);
        }
        by_cost.sort_unstable();
        in_tree.clear();
        in_tree.resize(edges.len(), false);
        for i in by_cost.iter().map(|key| *key as u32 as usize) {
            in_tree[i] = sets.join(edges[i].ends);
        }
    }

    /// Finds the vertices from the roots outwards, for each the edge to its parent, and which
    /// of these edges are needed: what is wanted, and what is needed to compute that.
    fn walk(&mut self, vertices: usize, edges: &[Edge]) {
        let Self {
            in_tree,
            needed,
            at,
            order,
            parent,
            part,
            ..
        } = self;
        order.clear();
        parent.clear();
        parent.resize(vertices, NONE);
        part.clear();
        part.resize(vertices, NONE);
        needed.clear();
        needed.resize(edges.len(), false);
        for root in 0..vertices as u32 {
            if part[root as usize] != NONE {
                continue;
            }
            part[root as usize] = root;
            let mut next = order.len();
            order.push(root);
            while let Some(&v) = order.get(next) {
                next += 1;
                let up = parent[v as usize];
                let is_needed = up != NONE && needed[up as usize];
                for &e in at.of(v).iter().filter(|e| in_tree[**e as usize]) {
                    let Edge { ends, wanted, .. } = edges[e as usize];
                    let other = ends[usize::from(ends[0] == v)];
                    if part[other as usize] == NONE {
                        parent[other as usize] = e;
                        part[other as usize] = if wanted { other } else { part[v as usize] };
                        needed[e as usize] = wanted || is_needed;
                        order.push(other);
                    }
                }
            }
        }
    }
}

/// The edges at each vertex, except those from the vertex to itself.
#[derive(Default)]
struct Incidence {
    starts: Vec<u32>,
    edges: Vec<u32>,
}

impl Incidence {
    fn find(&mut self, vertices: usize, edges: &[Edge]) {
        let starts = &mut self.starts;
        starts.clear();
        starts.resize(vertices + 2, 0);
        let proper = || edges.iter().enumerate().filter(|(_, e)| !e.is_loop());
        for end in proper().flat_map(|(_, edge)| edge.ends) {
            starts[end as usize + 2] += 1;
        }
        for i in 2..starts.len() {
            starts[i] += starts[i - 1];
        }
        self.edges.clear();
        self.edges.resize(starts[vertices + 1] as usize, 0);
        for (i, edge) in proper() {
            for end in edge.ends {
                let slot = &mut starts[end as usize + 1];
                self.edges[*slot as usize] = i as u32;
                *slot += 1;
            }
        }
    }

    fn of(&self, v: u32) -> &[u32] {
        let v = v as usize;
        &self.edges[self.starts[v] as usize..self.starts[v + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % n
        }
    }

    /// A graph as procedures have it: two vertices for each block with an edge
    /// between them that can be counted, ways in and out that cannot.
    fn graph(random: &mut Random, share: u64) -> (usize, Vec<Edge>) {
        let blocks = 1 + random.below(12) as u32;
        let mut edges = Vec::new();
        let mut add = |random: &mut Random, from, to, countable: bool| {
            let cost = if countable {
                random.below(5) as f32
            } else {
                f32::INFINITY
            };
            // Now and then also what cannot be counted.
            let share = if countable { share } else { share / 10 };
            let wanted = random.below(100) < share;
            edges.push(Edge {
                ends: [from, to],
                cost,
                wanted,
            });
        };
        for b in 0..blocks {
            let (enter, leave) = (2 * b + 1, 2 * b + 2);
            add(random, enter, leave, true);
            if b == 0 || random.below(5) == 0 {
                add(random, 0, enter, false);
            }
            let to = |random: &mut Random| 1 + 2 * random.below(blocks.into()) as u32;
            match random.below(5) {
                0 => add(random, leave, 0, false),
                1 => {
                    let to = to(random);
                    add(random, leave, to, false);
                }
                2 => {
                    let to = to(random);
                    add(random, leave, to, true);
                    add(random, leave, 0, false);
                }
                _ => {
                    for _ in 0..2 {
                        let to = to(random);
                        add(random, leave, to, true);
                    }
                }
            }
        }
        (2 * blocks as usize + 1, edges)
    }

    /// Walks from outside until it is outside again; false if there is no way on.
    fn walk_once(random: &mut Random, edges: &[Edge], counts: &mut [i64]) {
        let mut walk = Vec::new();
        let mut at = 0;
        for _ in 0..200 {
            let ways: Vec<usize> = (0..edges.len())
                .filter(|e| edges[*e].ends[0] == at)
                .collect();
            let Some(n) = u64::try_from(ways.len()).ok().filter(|n| *n > 0) else {
                return;
            };
            let way = ways[random.below(n) as usize];
            walk.push(way);
            at = edges[way].ends[1];
            if at == 0 {
                walk.iter().for_each(|e| counts[*e] += 1);
                return;
            }
        }
    }

    #[test]
    fn what_is_derived_equals_what_was_walked() {
        let mut random = Random(0x1234_5678_9abc_def1);
        let (mut saved, mut unsolved) = (0, 0);
        // The same storage for all.
        let mut solver = Solver::default();
        for round in 0..3000 {
            let (vertices, mut edges) = graph(&mut random, [100, 60, 10][round % 3]);
            let mut counts = vec![0i64; edges.len()];
            for _ in 0..20 {
                walk_once(&mut random, &edges, &mut counts);
            }
            let original = edges.clone();
            let Some(solution) = solver.solve(vertices, &mut edges) else {
                // What cannot be counted goes round, by an edge that is asked for.
                let uncountable = original.iter().filter(|e| e.cost.is_infinite());
                assert!(uncountable.clone().any(|e| e.wanted));
                let mut sets = Sets::default();
                sets.reset(vertices);
                let mut joins = uncountable.map(|e| sets.join(e.ends));
                assert!(!joins.all(|is_new| is_new));
                unsolved += 1;
                continue;
            };
            let mut values: Vec<Option<i64>> = vec![None; edges.len()];
            for &e in &solution.counted {
                assert!(edges[e as usize].cost.is_finite());
                values[e as usize] = Some(counts[e as usize]);
            }
            for derived in &solution.derived {
                let terms = solution.terms_of(derived).iter().map(|(e, minus)| {
                    let value = values[*e as usize].expect("computed before it is used");
                    if *minus { -value } else { value }
                });
                values[derived.edge as usize] = Some(terms.sum());
            }
            for (e, edge) in edges.iter().enumerate().filter(|(_, e)| e.wanted) {
                assert_eq!(values[e], Some(counts[e]), "{edge:?} of {edges:?}");
            }
            let wanted = edges.iter().filter(|e| e.wanted).count();
            saved += wanted as i64 - solution.counted.len() as i64;
        }
        assert!(saved > 1000, "{saved}");
        assert!(unsolved < 600, "{unsolved}");
    }

    #[test]
    fn cheap_edges_are_counted() {
        // A loop of one block: enter, body, again or leave.
        let edge = |from, to, cost, wanted| Edge {
            ends: [from, to],
            cost,
            wanted,
        };
        let never = f32::INFINITY;
        let mut edges = [
            edge(0, 1, never, false),
            edge(1, 2, 1.0, true),
            edge(2, 3, never, false),
            edge(3, 4, 10.0, true),
            edge(4, 3, 12.0, false),
            edge(4, 5, 2.0, false),
            edge(5, 6, 1.0, true),
            edge(6, 0, never, false),
        ];
        let mut solver = Solver::default();
        let solution = solver.solve(7, &mut edges).unwrap();
        assert_eq!(solution.counted.len(), 2);
        assert!(solution.counted.contains(&3) && !solution.counted.contains(&5));
    }

    #[test]
    fn nothing_wanted_nothing_counted() {
        let mut random = Random(99);
        for _ in 0..100 {
            let (vertices, mut edges) = graph(&mut random, 0);
            let mut solver = Solver::default();
            let solution = solver.solve(vertices, &mut edges).unwrap();
            assert_eq!(*solution, Solution::default());
        }
    }
}
