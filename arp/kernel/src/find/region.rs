//! A part of a procedure, and the points at which control crosses its border.
//!
//! A region is a set of instructions. Inside a block the border is between two
//! instructions. Between blocks it is on edges, and the calls for it must be on those edges
//! alone. Two kinds of edge can hold no code. For the edge of an exception, the landing pad closes
//! the region *if* it is still open. For the edges of a jump through a table with targets on both
//! sides of the border, the target decides at run time.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use atom_tool::{Block, EdgeKind, Inst, InstType, Way};

use super::view::Family;

/// A part of a procedure.
#[derive(Clone)]
pub struct Region<'a> {
    /// The procedure with its fragments.
    pub family: Rc<Family<'a>>,
    /// Numbers of its instructions.
    pub insts: HashSet<usize>,
}

/// A point at which control crosses a border.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Point<'a> {
    /// Before an instruction, on every path to it.
    Before(Inst<'a>),
    /// After a call, when it has returned.
    After(Inst<'a>),
    /// On an edge into or out of a block.
    Way(Block<'a>, Way),
    /// At an indirect jump, if it goes to one of these addresses.
    Table(Inst<'a>, Vec<u64>),
    /// Before a block: leaves the region if it is open, or enters it if it is not.
    Perhaps(Block<'a>),
}

impl<'a> Point<'a> {
    /// An address at or near the point, for order and for messages.
    pub fn address(&self) -> u64 {
        match self {
            Self::Before(inst) | Self::After(inst) | Self::Table(inst, _) => inst.pc(),
            Self::Way(block, Way::Entry) | Self::Perhaps(block) => block.pc(),
            Self::Way(block, _) => block.last_inst().pc(),
        }
    }
}

/// All points at which control crosses a region's border.
#[derive(Clone, Default, Debug)]
pub struct Border<'a> {
    /// Points at which control enters the region.
    pub enters: Vec<Point<'a>>,
    /// Points at which control leaves it.
    pub leaves: Vec<Point<'a>>,
}

impl<'a> Region<'a> {
    /// A region of all code of a procedure.
    pub fn whole(family: Rc<Family<'a>>) -> Self {
        let insts = family.insts().map(|i| i.index()).collect();
        Self { family, insts }
    }

    /// A region of these blocks.
    pub fn of_blocks(family: Rc<Family<'a>>, blocks: &HashSet<Block<'a>>) -> Self {
        let insts = blocks.iter().flat_map(|b| b.insts());
        let insts = insts.map(|i| i.index()).collect();
        Self { family, insts }
    }

    /// True if the instruction belongs to the region.
    pub fn has(&self, inst: Inst<'a>) -> bool {
        self.insts.contains(&inst.index())
    }

    fn starts(&self, block: Block<'a>) -> bool {
        self.has(block.first_inst())
    }

    /// The points at which control crosses the region's border.
    pub fn border(&self) -> Border<'a> {
        let mut border = Border::default();
        for &block in &self.family.blocks {
            if self.family.entries.contains(&block) && self.starts(block) {
                border.enters.push(if has_entry(block) {
                    Point::Way(block, Way::Entry)
                } else {
                    Point::Perhaps(block)
                });
            }
            let mut was = self.starts(block);
            for inst in block.insts() {
                if self.has(inst) != was {
                    was = !was;
                    border.add(was, Point::Before(inst));
                }
            }
            self.after(block, was, &mut border);
        }
        for list in [&mut border.enters, &mut border.leaves] {
            let mut seen = HashSet::new();
            list.retain(|point| seen.insert(point.clone()));
        }
        border
    }

    /// Adds the crossings after a block; `inside` says whether the block's end is in the region.
    fn after(&self, block: Block<'a>, inside: bool, border: &mut Border<'a>) {
        let edges = self.family.successors(block);
        let to = |b: Option<Block<'a>>| b.is_some_and(|b| self.starts(b));
        let tables: Vec<_> = edges.iter().filter(|e| e.kind == EdgeKind::Table).collect();
        let crossing = tables.iter().filter(|e| to(e.block) != inside);
        let targets: Vec<u64> = crossing.filter_map(|e| e.address).collect();
        if !targets.is_empty() {
            border.add(
                !inside,
                if targets.len() == tables.len() {
                    Point::Way(block, Way::Taken)
                } else {
                    Point::Table(block.last_inst(), targets)
                },
            );
        }
        for edge in edges.iter().filter(|e| to(e.block) != inside) {
            match (edge.kind, Way::of(edge.kind), edge.block) {
                (EdgeKind::Unknown, ..) if !tables.is_empty() => {}
                (EdgeKind::Unwind, _, Some(pad)) => border.add(!inside, Point::Perhaps(pad)),
                (_, Some(way), _) => border.add(!inside, Point::Way(block, way)),
                _ => {}
            }
        }
    }
}

impl<'a> Border<'a> {
    fn add(&mut self, enters: bool, point: Point<'a>) {
        if enters {
            self.enters.push(point)
        } else {
            self.leaves.push(point)
        }
    }

    /// Adds the points of another border.
    pub fn append(&mut self, other: Self) {
        self.enters.extend(other.enters);
        self.leaves.extend(other.leaves);
    }
}

/// True if another procedure enters the block's procedure there.
fn has_entry(block: Block<'_>) -> bool {
    block.has_way(Way::Entry)
}

/// Adds to a set of blocks all blocks on paths from one of them to another within one iteration
/// of the loop around them, if there is one. Paths through the loop's header belong to other
/// iterations.
pub fn close<'a>(family: &Family<'a>, blocks: &mut HashSet<Block<'a>>, around: Option<usize>) {
    let scope: Option<HashSet<Block>> =
        around.map(|i| family.loops[i].blocks.iter().copied().collect());
    let header = around.map(|i| family.loops[i].header);
    let inside = |b: &Block<'a>| scope.as_ref().is_none_or(|s| s.contains(b));
    let mut backward: HashMap<Block, Vec<Block>> = HashMap::new();
    let mut forward: HashMap<Block, Vec<Block>> = HashMap::new();
    for &from in family.blocks.iter().filter(|b| inside(b)) {
        let edges = family.successors(from).iter();
        for to in edges.filter_map(|e| e.block).filter(|b| inside(b)) {
            if Some(to) != header {
                forward.entry(from).or_default().push(to);
                backward.entry(to).or_default().push(from);
            }
        }
    }
    let reach = |next: &HashMap<Block<'a>, Vec<Block<'a>>>| {
        let mut seen: HashSet<Block> = blocks.clone();
        let mut work: Vec<Block> = blocks.iter().copied().collect();
        while let Some(block) = work.pop() {
            for &to in next.get(&block).into_iter().flatten() {
                if seen.insert(to) {
                    work.push(to);
                }
            }
        }
        seen
    };
    let (after, before) = (reach(&forward), reach(&backward));
    blocks.extend(after.intersection(&before));
}

/// True if the instruction ends its block by a call.
pub fn is_call(inst: Inst<'_>) -> bool {
    inst.is_type(InstType::Call)
}
