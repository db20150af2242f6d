//! Dominators of a rooted graph: the semidominator method of Lengauer and
//! Tarjan with idoms found afterwards by walking up (Georgiadis' "semi-NCA").
//!
//! The method is chosen over the simpler iterative one because its time does not
//! explode on large or hostile graphs. For the same reason nothing here is recursive.
//! Several roots are joined under a virtual root, so a node
//! may be reachable and yet have no immediate dominator.

/// Number that stands for no node.
pub(super) const NONE: u32 = u32::MAX;

/// A graph in compressed form: the targets of each node are side by side.
#[derive(Clone, Default, Debug)]
pub(super) struct Adjacency {
    start: Vec<u32>,
    to: Vec<u32>,
}

impl Adjacency {
    /// Makes the graph of (source, target) pairs over `n` nodes.
    pub fn new(n: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut start = vec![0; n + 1];
        for (from, _) in pairs.clone() {
            start[from as usize + 1] += 1;
        }
        for i in 0..n {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut to = vec![0; start[n] as usize];
        for (from, target) in pairs {
            let slot = &mut next[from as usize];
            to[*slot as usize] = target;
            *slot += 1;
        }
        Self { start, to }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.start.len() - 1
    }

    /// The targets of a node.
    pub fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.to[self.start[node] as usize..self.start[node + 1] as usize]
    }
}

/// The dominator tree of a graph.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// By node: the immediate dominator, the virtual root (`n`), or [`NONE`] if unreachable.
    idom: Vec<u32>,
    /// By node: time at which a walk over the tree enters it.
    enter: Vec<u32>,
    /// By node: time at which a walk over the tree leaves it.
    leave: Vec<u32>,
    /// By node: its position in reverse postorder of the graph.
    order: Vec<u32>,
}

/// A depth-first walk from the roots, the virtual root being node `n`.
struct Walk {
    /// Nodes by preorder number; the virtual root is number 0.
    vertex: Vec<u32>,
    /// By node: its preorder number.
    number: Vec<u32>,
    /// By preorder number: the preorder number of the parent.
    parent: Vec<u32>,
    /// By node: its position in reverse postorder.
    order: Vec<u32>,
}

fn walk(succs: &Adjacency, roots: &[u32]) -> Walk {
    let n = succs.len();
    let mut walk = Walk {
        vertex: vec![n as u32],
        number: vec![NONE; n + 1],
        parent: vec![0],
        order: vec![NONE; n + 1],
    };
    walk.number[n] = 0;
    let targets = |node: u32| {
        if node as usize == n {
            roots
        } else {
            succs.of(node)
        }
    };
    let mut postorder = 0;
    let mut stack = vec![(n as u32, 0)];
    while let Some((node, next)) = stack.last_mut() {
        let node = *node;
        match targets(node).get(*next) {
            Some(&target) => {
                *next += 1;
                if walk.number[target as usize] == NONE {
                    walk.number[target as usize] = walk.vertex.len() as u32;
                    walk.vertex.push(target);
                    walk.parent.push(walk.number[node as usize]);
                    stack.push((target, 0));
                }
            }
            None => {
                walk.order[node as usize] = postorder;
                postorder += 1;
                stack.pop();
            }
        }
    }
    for order in walk.order.iter_mut().filter(|o| **o != NONE) {
        *order = postorder - 1 - *order;
    }
    walk
}

/// The forest of the method, which finds the node of least semidominator above a node.
struct Forest {
    ancestor: Vec<u32>,
    label: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// Node of least `semi` on the path from `v` to its root, the root excluded.
    fn eval(&mut self, semi: &[u32], v: u32) -> u32 {
        // Path compression, without recursion.
        let mut at = v;
        while self.ancestor[at as usize] != NONE {
            let up = self.ancestor[at as usize];
            if self.ancestor[up as usize] == NONE {
                break;
            }
            self.path.push(at);
            at = up;
        }
        while let Some(below) = self.path.pop() {
            let up = self.ancestor[below as usize] as usize;
            if semi[self.label[up] as usize] < semi[self.label[below as usize] as usize] {
                self.label[below as usize] = self.label[up];
            }
            self.ancestor[below as usize] = self.ancestor[up];
        }
        self.label[v as usize]
    }
}

impl Tree {
    /// The tree of the nodes that are reachable from the roots.
    pub fn new(succs: &Adjacency, preds: &Adjacency, roots: &[u32]) -> Self {
        let n = succs.len();
        let Walk {
            vertex,
            number,
            parent,
            order,
        } = walk(succs, roots);
        let count = vertex.len();
        let mut is_root = vec![false; n];
        roots.iter().for_each(|r| is_root[*r as usize] = true);
        // All by preorder number from here.
        let mut semi: Vec<u32> = (0..count as u32).collect();
        let mut forest = Forest {
            ancestor: vec![NONE; count],
            label: semi.clone(),
            path: Vec::new(),
        };
        for w in (1..count as u32).rev() {
            let node = vertex[w as usize];
            let mut least = parent[w as usize];
            if is_root[node as usize] {
                least = 0;
            }
            for &p in preds.of(node) {
                let p = number[p as usize];
                if p != NONE {
                    let u = forest.eval(&semi, p);
                    least = least.min(semi[u as usize]);
                }
            }
            semi[w as usize] = least;
            forest.ancestor[w as usize] = parent[w as usize];
        }
        let mut idom = parent;
        for w in 1..count {
            while idom[w] > semi[w] {
                idom[w] = idom[idom[w] as usize];
            }
        }
        let mut tree = Self {
            idom: vec![NONE; n + 1],
            enter: vec![0; n + 1],
            leave: vec![0; n + 1],
            order,
        };
        for w in 1..count {
            tree.idom[vertex[w] as usize] = vertex[idom[w] as usize];
        }
        // A parent in the tree has a lower preorder number than its children,
        // so subtree sizes come backwards and places forwards.
        let mut size = vec![1u32; count];
        for w in (1..count).rev() {
            size[idom[w] as usize] += size[w];
        }
        let mut next = vec![1u32; count];
        for w in 0..count {
            let node = vertex[w] as usize;
            if w > 0 {
                let up = idom[w] as usize;
                tree.enter[node] = tree.enter[vertex[up] as usize] + next[up];
                next[up] += size[w];
            }
            tree.leave[node] = tree.enter[node] + size[w];
        }
        tree
    }

    /// The immediate dominator; `None` for roots and for unreachable nodes.
    pub fn idom(&self, node: u32) -> Option<u32> {
        let idom = self.idom[node as usize];
        ((idom as usize) < self.idom.len() - 1).then_some(idom)
    }

    /// True if some root leads to the node.
    pub fn is_reachable(&self, node: u32) -> bool {
        self.idom[node as usize] != NONE
    }

    /// True if every path from a root to `b` passes `a`; each node dominates itself.
    /// False if one of the nodes is unreachable.
    pub fn dominates(&self, a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        self.idom[a] != NONE
            && self.idom[b] != NONE
            && self.enter[a] <= self.enter[b]
            && self.enter[b] < self.leave[a]
    }

    /// Position of a reachable node in reverse postorder.
    pub fn order(&self, node: u32) -> u32 {
        self.order[node as usize]
    }

    /// Time at which a walk over the dominator tree enters the node.
    pub fn enter(&self, node: u32) -> u32 {
        self.enter[node as usize]
    }
}
