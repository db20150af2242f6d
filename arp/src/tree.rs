//! The call paths that a thread has seen, as a tree of sections.
//!
//! A section has one node for each path that leads to it. The node keeps everything about the
//! *section on this path*: the counter, the sums, and the encoder's state. So entering a section
//! finds everything by one step from the innermost open node to its child.
use std::collections::HashMap;

use crate::types::{SectionKind, Sid};

/// Index of the root, which is open while no section is.
pub(crate) const ROOT: u32 = 0;
/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// How an execution of the section is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// Recorded.
    Real,
    /// Recorded, but the section is also open further out: recursion, or a section that was never left.
    Repeated,
    /// Not recorded: the section is measured and open further out.
    Recursion,
    /// Not recorded: the section is open further out, and recursion is folded into the outer execution.
    Folded,
    /// Not recorded: a kernel within a kernel.
    NestedKernel,
}

impl Role {
    /// Executions are counted, in the node's counter, but not recorded.
    pub fn is_left_out(self) -> bool {
        matches!(self, Self::Recursion | Self::Folded | Self::NestedKernel)
    }
}

#[derive(Clone)]
pub(crate) struct Node {
    pub sid: Sid,
    pub kind: SectionKind,
    pub role: Role,
    pub parent: u32,
    pub depth: u32,
    first_child: u32,
    next_sibling: u32,
    /// The child that was entered last.
    recent: u32,
    children: u32,
    /// Counter of the last execution.
    pub counter: i64,
    /// Serial number of the parent's execution that contained it.
    pub parent_serial: u64,
    /// State of the encoder.
    pub encoded: Encoded,
}

/// State of the encoder for one node.
#[derive(Clone, Copy)]
pub(crate) struct Encoded {
    /// Number of the block in which the other fields are valid.
    pub block: u32,
    /// Number of the path in the block.
    pub path: u32,
    /// Serial number of the latest execution at the time of the path's last record.
    pub serial: u64,
    /// Index in the encoder of the counters of the path's last record.
    pub counters: u32,
    /// Index in the encoder of the values of the path's last record.
    pub values: u32,
}

/// Number of siblings that are compared before the map is searched.
const NEAR: u32 = 8;

pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    far: HashMap<(u32, Sid), u32>,
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            far: HashMap::new(),
        };
        tree.add(NONE, Sid(0), SectionKind::Plain, Role::Real);
        tree
    }

    /// The child `sid` of node `parent`, or [`NONE`].
    #[inline]
    pub fn child(&mut self, parent: u32, sid: Sid) -> u32 {
        let recent = self.nodes[parent as usize].recent;
        if recent != NONE {
            let node = &self.nodes[recent as usize];
            if node.sid == sid {
                return recent;
            }
            // Sections that follow each other in the program are usually neighbours in the list.
            let next = node.next_sibling;
            if next != NONE && self.nodes[next as usize].sid == sid {
                self.nodes[parent as usize].recent = next;
                return next;
            }
        }
        self.search(parent, sid)
    }

    fn search(&mut self, parent: u32, sid: Sid) -> u32 {
        let node = &self.nodes[parent as usize];
        let mut found = NONE;
        if node.children > NEAR {
            found = self.far.get(&(parent, sid)).copied().unwrap_or(NONE);
        } else {
            let mut child = node.first_child;
            while child != NONE {
                let node = &self.nodes[child as usize];
                if node.sid == sid {
                    found = child;
                    break;
                }
                child = node.next_sibling;
            }
        }
        if found != NONE {
            self.nodes[parent as usize].recent = found;
        }
        found
    }

    /// Makes a node, as the last of its parent's children.
    pub fn add(&mut self, parent: u32, sid: Sid, kind: SectionKind, role: Role) -> u32 {
        let index = self.nodes.len() as u32;
        let depth = match self.nodes.get(parent as usize) {
            Some(parent) => parent.depth + 1,
            None => 0,
        };
        self.nodes.push(Node {
            sid,
            kind,
            role,
            parent,
            depth,
            first_child: NONE,
            next_sibling: NONE,
            recent: NONE,
            children: 0,
            counter: 0,
            parent_serial: u64::MAX,
            encoded: Encoded {
                block: 0,
                path: 0,
                serial: 0,
                counters: NONE,
                values: NONE,
            },
        });
        if parent == NONE {
            return index;
        }
        let mut last = NONE;
        let mut child = self.nodes[parent as usize].first_child;
        let many = self.nodes[parent as usize].children > NEAR;
        if many {
            // The order matters only while the list is searched.
            self.nodes[index as usize].next_sibling = child;
            self.nodes[parent as usize].first_child = index;
        } else {
            while child != NONE {
                self.far
                    .insert((parent, self.nodes[child as usize].sid), child);
                last = child;
                child = self.nodes[child as usize].next_sibling;
            }
            match last {
                NONE => self.nodes[parent as usize].first_child = index,
                last => self.nodes[last as usize].next_sibling = index,
            }
        }
        self.far.insert((parent, sid), index);
        self.nodes[parent as usize].children += 1;
        self.nodes[parent as usize].recent = index;
        index
    }

    /// The sections from the outermost to node `node`.
    pub fn path(&self, node: u32) -> Vec<Sid> {
        let mut path = Vec::new();
        let mut at = node;
        while at != ROOT && at != NONE {
            path.push(self.nodes[at as usize].sid);
            at = self.nodes[at as usize].parent;
        }
        path.reverse();
        path
    }

    /// Whether `sid` is on the path to `node`, and the kernel on that path, if there is one.
    pub fn look_up(&self, node: u32, sid: Sid) -> (bool, Option<Sid>) {
        let (mut open, mut kernel) = (false, None);
        let mut at = node;
        while at != ROOT && at != NONE {
            let node = &self.nodes[at as usize];
            open |= node.sid == sid;
            if node.kind == SectionKind::Kernel {
                kernel = Some(node.sid);
            }
            at = node.parent;
        }
        (open, kernel)
    }
}
