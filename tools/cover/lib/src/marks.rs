//! The blocks that need a mark of their own, and the rules from which the others follow.
//!
//! A rule says that a block was executed exactly if one of some others was. There are two kinds:
//!
//! - *Down*: control leaves the block to known blocks only, and all of them are dominated by it. Whoever is at one of
//!   them has passed the block.
//! - *Join*: all blocks from which control comes have a mark and lead nowhere else.
//!
//! A call need not return, and an unknown jump leads anywhere, so blocks that end so have marks. In a procedure that is
//! not understood in full all blocks have. The time between a block and its successors is neglected: a block whose
//! execution a signal or another thread ends for good may be missing.
//!
//! Marks have numbers: a block's is the block's number, and those of the ways of branches follow.

use std::collections::HashMap;

use atom_tool::prelude::*;

/// A block that has no mark, and the marks or blocks of which one was reached if it was.
pub type Rule = (u32, Vec<u32>);

/// What is marked in a procedure.
#[derive(Default)]
pub struct Plan {
    /// Rules in an order in which they can be applied one after the other.
    pub rules: Vec<Rule>,
    /// For each block, whether it has a mark.
    pub marked: Vec<bool>,
    /// For each block that ends in a conditional branch, where it is seen that the branch was taken, and that it was
    /// not.
    pub ways: HashMap<u32, [Seen; 2]>,
}

/// Where it is seen that a way of a branch was gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The way leads to a block to which no other way leads.
    Block(u32),
    /// The way has a mark of its own, which has this number among the marks of ways.
    Mark(u32),
    /// Nowhere.
    Nowhere,
}

/// Facts about one procedure.
struct Facts<'a> {
    blocks: Vec<Block<'a>>,
    first: usize,
    entries: Vec<bool>,
    /// All of its code is known, and where its jumps lead to.
    is_known: bool,
    successors: Vec<Vec<Edge<'a>>>,
}

impl<'a> Facts<'a> {
    fn new(proc: Proc<'a>) -> Self {
        let blocks: Vec<Block<'a>> = proc.blocks().collect();
        let first = blocks.first().map_or(0, Block::index);
        let successors: Vec<_> = blocks.iter().map(Block::successors).collect();
        let mut entries: Vec<bool> = blocks.iter().map(Block::is_address_taken).collect();
        let jumps_anywhere = successors
            .iter()
            .flatten()
            .any(|e| e.kind == EdgeKind::Unknown);
        let is_known = proc.status() == Status::Full
            && blocks.iter().all(Block::is_selected)
            && !(jumps_anywhere && entries.iter().skip(1).any(|is_taken| *is_taken));
        for entry in proc.starts() {
            if let Some(is_entry) = entry
                .index()
                .checked_sub(first)
                .and_then(|i| entries.get_mut(i))
            {
                *is_entry = true;
            }
        }
        Self {
            blocks,
            first,
            entries,
            is_known,
            successors,
        }
    }

    /// The place of a block among those of the procedure; none if it is in a part elsewhere.
    fn place(&self, block: Block<'_>) -> Option<usize> {
        let place = block.index().checked_sub(self.first)?;
        (place < self.blocks.len()).then_some(place)
    }

    /// True if control may come to a block without any of the blocks before it, or calls may begin to be made there.
    fn is_entry(&self, block: Block<'_>) -> bool {
        self.place(block).is_none_or(|i| self.entries[i])
    }

    /// The blocks to which control certainly goes from this one; none if it may go elsewhere, or nowhere.
    fn next(&self, i: usize) -> Option<Vec<Block<'a>>> {
        let goes_on = |edge: &Edge<'a>| {
            let kinds = [EdgeKind::Fall, EdgeKind::Taken, EdgeKind::Table];
            let block = edge.block.filter(|_| kinds.contains(&edge.kind))?;
            self.place(block).map(|_| block)
        };
        let next: Option<Vec<Block<'a>>> = self.successors[i].iter().map(goes_on).collect();
        let mut insts = self.blocks[i].insts();
        // A system call may end the process.
        next.filter(|next| !next.is_empty() && !insts.any(|inst| inst.is_type(InstType::Syscall)))
    }

    /// True if control comes to a block by one way only.
    fn has_one_way(&self, block: Block<'a>) -> bool {
        !self.is_entry(block) && block.predecessors().len() == 1
    }
}

/// Decides for the blocks of a procedure. `edges` is the number of marks of ways so far, if ways are wanted.
pub fn plan(proc: Proc<'_>, mut edges: Option<&mut u32>) -> Plan {
    let facts = Facts::new(proc);
    let count = facts.blocks.len();
    let mut plan = Plan {
        marked: vec![true; count],
        ..Plan::default()
    };
    if let Some(edges) = &mut edges {
        find_ways(&facts, edges, &mut plan);
    }
    if !facts.is_known {
        return plan;
    }
    let mut down: Vec<(usize, Rule)> = Vec::new();
    let next: Vec<Option<Vec<Block<'_>>>> = (0..count).map(|i| facts.next(i)).collect();
    for i in 0..count {
        let (block, Some(next)) = (facts.blocks[i], &next[i]) else {
            continue;
        };
        let follows = |to: &Block<'_>| *to != block && block.dominates(*to) && !facts.is_entry(*to);
        if next.iter().all(follows) {
            let of = next.iter().map(|to| to.index() as u32).collect();
            down.push((depth(block), (block.index() as u32, of)));
            plan.marked[i] = false;
        }
    }
    plan.rules = joins(&facts, &next, &plan.marked);
    for (joined, _) in &plan.rules {
        plan.marked[*joined as usize - facts.first] = false;
    }
    // What a block dominates comes first.
    down.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    plan.rules.extend(down.into_iter().map(|(_, rule)| rule));
    plan
}

/// The rules of joins, each after those of the joins from which control comes to it. `next` has the blocks to which
/// control certainly goes from each block.
fn joins(facts: &Facts<'_>, next: &[Option<Vec<Block<'_>>>], marked: &[bool]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for i in (0..facts.blocks.len()).filter(|i| !facts.entries[*i] && marked[*i]) {
        let before = facts.blocks[i].predecessors();
        let leads_here = |edge: &Edge<'_>| {
            let p = facts.place(edge.block?)?;
            let only = next[p].as_ref().is_some_and(|next| next.len() == 1);
            (p != i && marked[p] && only).then_some(edge.block?.index() as u32)
        };
        let of: Option<Vec<u32>> = before.iter().map(leads_here).collect();
        if let Some(of) = of.filter(|of| of.len() > 1) {
            rules.push((facts.blocks[i].index() as u32, of));
        }
    }
    in_order(rules)
}

/// Puts rules of joins after those on which they depend. Rules that depend on themselves are left out: their blocks are
/// in a loop without an end.
fn in_order(rules: Vec<Rule>) -> Vec<Rule> {
    let joined: HashMap<u32, usize> = rules.iter().map(|rule| rule.0).zip(0..).collect();
    // Control goes from a join to one block at most, so at most one rule depends on another.
    let mut users = vec![None; rules.len()];
    let mut missing = vec![0; rules.len()];
    for (user, (_, of)) in rules.iter().enumerate() {
        for rule in of.iter().filter_map(|block| joined.get(block)) {
            users[*rule] = Some(user);
            missing[user] += 1;
        }
    }
    let mut order: Vec<usize> = (0..rules.len()).filter(|i| missing[*i] == 0).collect();
    let mut done = 0;
    while let Some(rule) = order.get(done).copied() {
        done += 1;
        if let Some(user) = users[rule] {
            missing[user] -= 1;
            if missing[user] == 0 {
                order.push(user);
            }
        }
    }
    let mut rules: Vec<Option<Rule>> = rules.into_iter().map(Some).collect();
    order.iter().filter_map(|i| rules[*i].take()).collect()
}

/// The number of blocks that dominate a block.
fn depth(block: Block<'_>) -> usize {
    std::iter::successors(Some(block), Block::immediate_dominator).count()
}

/// Decides where the ways of conditional branches are seen.
fn find_ways(facts: &Facts<'_>, edges: &mut u32, plan: &mut Plan) {
    for (i, block) in facts.blocks.iter().enumerate() {
        if !block.last_inst().is_type(InstType::CondBr) {
            continue;
        }
        let seen = |way: Way| {
            let mut leads = facts.successors[i]
                .iter()
                .filter(|e| Way::of(e.kind) == Some(way));
            let to = leads.next().and_then(|edge| edge.block);
            match to.filter(|to| facts.is_known && facts.has_one_way(*to)) {
                Some(to) => Seen::Block(to.index() as u32),
                None if block.has_way(way) => {
                    *edges += 1;
                    Seen::Mark(*edges - 1)
                }
                None => Seen::Nowhere,
            }
        };
        let ways = [Way::Taken, Way::Falling].map(seen);
        plan.ways.insert(block.index() as u32, ways);
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn a_join_stands_behind_those_before_it() {
        let rules = vec![
            (4, vec![3, 9]),
            (6, vec![1, 2]),
            (9, vec![7, 8, 6]),
            // A loop that is entered at two blocks, and never left.
            (20, vec![18, 21]),
            (21, vec![19, 20]),
            (30, vec![28, 29]),
        ];
        let order: Vec<u32> = in_order(rules).iter().map(|rule| rule.0).collect();
        assert_eq!(order, [6, 30, 9, 4]);
    }
}
