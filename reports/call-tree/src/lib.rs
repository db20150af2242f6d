//! Trees of call paths with their costs, and the files in which other programs read them.
//!
//! Tools that measure by call path fill a [`CallTree`]: `calltree` has executed instructions, `heap` has bytes and
//! allocations. Each node has a value of each measure, without the nodes below it.

#![deny(missing_docs)]

mod page;
mod stacks;

/// A quantity that nodes have values of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measure {
    /// Its name: `instructions`, `bytes live at the peak`.
    pub name: String,
    /// Its values are numbers of bytes.
    pub is_bytes: bool,
}

/// A procedure, or a place in one.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its name.
    pub name: String,
    /// Its source file; empty if it is not known.
    pub file: String,
    /// The line in the file; 0 if it is not known.
    pub line: u32,
}

/// A call path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Index of the node around; `None` for the outermost ones.
    pub parent: Option<usize>,
    /// Index of the frame.
    pub frame: usize,
    /// For each measure the value that belongs to this node alone.
    pub own: Vec<u64>,
    /// What a page says of the node besides.
    pub note: String,
}

/// Call paths with their costs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CallTree {
    /// What the tree is about, in a few words.
    pub title: String,
    /// The measures.
    pub measures: Vec<Measure>,
    /// Procedures and places.
    pub frames: Vec<Frame>,
    /// The nodes, each after its parent.
    pub nodes: Vec<Node>,
}

impl CallTree {
    /// For each node the value of a measure with all nodes below it.
    pub fn totals(&self, measure: usize) -> Vec<u64> {
        let own = |node: &Node| node.own.get(measure).copied().unwrap_or(0);
        let mut totals: Vec<u64> = self.nodes.iter().map(own).collect();
        for (i, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                totals[parent] += totals[i];
            }
        }
        totals
    }

    /// Indices of the frames on the path to a node, the outermost first.
    fn stack(&self, node: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(node), |node| self.nodes[*node].parent);
        let mut stack: Vec<usize> = up.map(|node| self.nodes[node].frame).collect();
        stack.reverse();
        stack
    }

    /// The nodes that have a value of a measure, with it.
    fn valued(&self, measure: usize) -> impl Iterator<Item = (usize, u64)> + Clone {
        let value = move |node: &Node| node.own.get(measure).copied().unwrap_or(0);
        let all = self.nodes.iter().enumerate();
        all.map(move |(i, node)| (i, value(node)))
            .filter(|(_, value)| *value != 0)
    }
}

#[cfg(test)]
pub(crate) fn example() -> CallTree {
    let frame = |name: &str, line: u32| Frame {
        name: name.into(),
        file: if line == 0 { "" } else { "a.c" }.into(),
        line,
    };
    let node = |parent, frame, own| Node {
        parent,
        frame,
        own: vec![own],
        note: String::new(),
    };
    CallTree {
        title: "a".into(),
        measures: vec![Measure {
            name: "instructions".into(),
            is_bytes: false,
        }],
        frames: vec![frame("main", 3), frame("f;g", 0), frame("leaf", 9)],
        nodes: vec![
            node(None, 0, 5),
            node(Some(0), 1, 0),
            node(Some(1), 2, 7),
            node(Some(0), 2, 1),
        ],
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn totals_have_what_is_below() {
        assert_eq!(super::example().totals(0), [13, 7, 7, 1]);
    }
}
