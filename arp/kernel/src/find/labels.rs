//! From a C label to code.
//!
//! In optimised code the address that the compiler gives for a label is unreliable, and often
//! there is none. The source lines of the loop that the label marks survive: the loop's back edge
//! has the line of the loop's head (for a `do` loop, of its condition). First, the loops with such
//! a back edge are found in the function with the label, in each of its inlined copies; they give
//! the range of source lines. The region is then all code without a line outside of that range,
//! closed over the code on paths between its parts. So the parts into which the compiler split a
//! loop (vectors and remainder) are one region.
//!
//! A statement that is no loop any more, or never was one, has no such mark. Then an error says
//! so, and nothing is guessed.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

use atom_tool::{Block, InstType, Label, MemoryAccess, Reg};

use super::region::{Region, close};
use super::source::{self, StatementKind};
use super::view::{Family, Own, View};

/// Number of lines after a label in which its statement must start.
const REACH: u32 = 60;

/// Advice to the user where a label cannot be placed.
pub const USE_MARKER: &str = "mark it with ATO_KERNEL_BEGIN and ATO_KERNEL_END of ato.h instead";

/// A labelled statement in the code.
pub struct Placed<'a> {
    /// First line.
    pub first: u32,
    /// Last line.
    pub last: u32,
    /// The code, one region for each copy.
    pub regions: Vec<Region<'a>>,
    /// Addresses of the body's instructions that are in no region.
    pub outside: Vec<u64>,
}

/// A copy of the function in the code of a procedure.
struct Copy<'a> {
    family: Rc<Family<'a>>,
    own: Rc<Own>,
    number: u32,
}

/// A loop of a copy.
struct Candidate {
    copy: usize,
    index: usize,
    /// Lines of back edges, and of the branch in the header that leaves the loop.
    latches: Vec<u32>,
    max: u32,
}

/// Finds the code of the statement that a label marks.
pub fn place<'a>(view: &View<'a>, label: &Label<'a>) -> Result<Placed<'a>, String> {
    let (Some(file), Some(line)) = (label.file, label.line) else {
        return Err(format!(
            "debug information does not say where it stands; {USE_MARKER}"
        ));
    };
    let statement = source::labelled(file, line, label.name);
    match statement.map(|s| s.kind) {
        Some(StatementKind::Block) => {
            return Err(format!(
                "it marks a block, which leaves no trace in the code; {USE_MARKER}"
            ));
        }
        Some(StatementKind::Other) => {
            return Err(format!(
                "it marks a statement that is no loop; {USE_MARKER}"
            ));
        }
        _ => {}
    }
    let lines = Lines {
        file,
        function: label.function.unwrap_or_default(),
        first: statement.map_or(line, |s| s.first),
    };
    let header = statement.map(|s| s.header);
    let tail = statement
        .filter(|s| s.kind == StatementKind::Do)
        .map(|s| s.header);
    lines.place(view, tail, header, statement.and_then(|s| s.last))
}

/// Finds the code of the loop at this line of a file.
pub fn at_line<'a>(view: &View<'a>, file: &str, line: u32) -> Result<Placed<'a>, String> {
    let lines = Lines {
        file,
        function: "",
        first: line,
    };
    lines.place(view, None, Some(line), None)
}

/// Where the statement starts.
struct Lines<'t> {
    file: &'t str,
    function: &'t str,
    first: u32,
}

impl Lines<'_> {
    fn place<'a>(
        &self,
        view: &View<'a>,
        tail: Option<u32>,
        header: Option<u32>,
        last: Option<u32>,
    ) -> Result<Placed<'a>, String> {
        let copies = self.copies(view);
        if copies.is_empty() {
            return Err(if view.has_file(self.file) {
                "no code comes from its line or from those behind: it was removed \
                         as never executed, or the file was compiled without -g"
                    .to_owned()
            } else {
                "no code comes from its source file: compile that with -g".to_owned()
            });
        }
        let start = copies
            .iter()
            .flat_map(|c| c.lines())
            .filter(|line| *line >= self.first)
            .min()
            .unwrap_or(self.first);
        let loops = self.loops(&copies);
        let (first, matched) = match tail {
            Some(tail) => {
                let last = last.unwrap_or(tail);
                (start, tailed(&copies, &loops, tail..=last))
            }
            None => self.headed(&loops, start, header)?,
        };
        if matched.is_empty() {
            return Err(format!(
                "no loop is left in the code of line {start}: it was unrolled or removed; {USE_MARKER}"
            ));
        }
        let found = matched.iter().map(|i| loops[*i].max).min().unwrap_or(first);
        let last = last.filter(|l| *l >= first).unwrap_or(found);
        let mut regions = Vec::new();
        for (i, copy) in copies.iter().enumerate() {
            let mine = matched.iter().map(|m| &loops[*m]);
            let mine: Vec<usize> = mine.filter(|l| l.copy == i).map(|l| l.index).collect();
            if !mine.is_empty() {
                regions.extend(copy.regions(first, last, &mine));
            }
        }
        let head = match tail {
            None => header.unwrap_or(first).max(first),
            Some(_) => first.saturating_sub(1),
        };
        let outside = copies.iter().flat_map(|c| c.outside(head, last, &regions));
        let outside = outside.collect();
        if regions.is_empty() {
            Err(format!(
                "the loop at line {first} is mixed with other code; {USE_MARKER}"
            ))
        } else {
            Ok(Placed {
                first,
                last,
                regions,
                outside,
            })
        }
    }

    /// The loops whose back edges have the line of a loop's head.
    fn headed(
        &self,
        loops: &[Candidate],
        start: u32,
        header: Option<u32>,
    ) -> Result<(u32, Vec<usize>), String> {
        let latches = loops.iter().flat_map(|l| &l.latches);
        let line = latches.copied().filter(|l| *l >= self.first).min();
        let Some(line) = line.filter(|l| *l <= header.unwrap_or(start).max(start)) else {
            return Err(format!(
                "the code of line {start} is no loop: it was unrolled or removed, or never was one; {USE_MARKER}"
            ));
        };
        let matched = loops.iter().enumerate();
        let matched = matched.filter(|(_, l)| l.latches.contains(&line));
        Ok((line.min(start), matched.map(|(i, _)| i).collect()))
    }

    fn copies<'a>(&self, view: &View<'a>) -> Vec<Copy<'a>> {
        let mut copies = Vec::new();
        for family in view.with_lines(self.file, self.first, self.first + REACH) {
            let own = family.own(self.function, self.file);
            let here = own.places.values().filter(|p| {
                let reach = self.first..=self.first.saturating_add(REACH);
                reach.contains(&p.line)
            });
            let mut numbers: Vec<u32> = here.map(|p| p.copy).collect();
            numbers.sort_unstable();
            numbers.dedup();
            copies.extend(numbers.into_iter().map(|number| Copy {
                family: family.clone(),
                own: own.clone(),
                number,
            }));
        }
        copies
    }

    fn loops(&self, copies: &[Copy<'_>]) -> Vec<Candidate> {
        let mut loops = Vec::new();
        for (i, copy) in copies.iter().enumerate() {
            for (index, item) in copy.family.loops.iter().enumerate() {
                let ends = |b: &Block| {
                    let leaves = |to: Block| !item.blocks.contains(&to);
                    let edges = copy.family.successors(*b).iter();
                    b.last_inst().is_type(InstType::CondBr)
                        && edges.filter_map(|e| e.block).any(leaves)
                };
                let header = Some(&item.header).filter(|b| ends(b));
                let latches = item.latches.iter().chain(header);
                let place = |b: &Block| copy.place(b.last_inst().index()).filter(|p| p.own);
                let lines: Vec<u32> = item
                    .blocks
                    .iter()
                    .flat_map(|b| b.insts())
                    .filter_map(|inst| Some(copy.place(inst.index())?.line))
                    .collect();
                let Some(&max) = lines.iter().max() else {
                    continue;
                };
                loops.push(Candidate {
                    copy: i,
                    index,
                    latches: latches.filter_map(|b| Some(place(b)?.line)).collect(),
                    max,
                });
            }
        }
        loops
    }
}

/// The outermost loops whose back edges have the lines of a `do` loop's condition.
fn tailed(copies: &[Copy<'_>], loops: &[Candidate], tail: RangeInclusive<u32>) -> Vec<usize> {
    let fits = |l: &Candidate| l.latches.iter().any(|line| tail.contains(line));
    let is_inner = |l: &Candidate| {
        let all = &copies[l.copy].family.loops;
        let mut parent = all[l.index].parent;
        while let Some(p) = parent {
            let outer = loops.iter().find(|o| o.copy == l.copy && o.index == p);
            if outer.is_some_and(fits) {
                return true;
            }
            parent = all[p].parent;
        }
        false
    };
    let outermost = loops.iter().enumerate();
    let outermost = outermost.filter(|(_, l)| fits(l) && !is_inner(l));
    outermost.map(|(i, _)| i).collect()
}

/// True for an access to a spilled value: one that is kept on the stack for lack of registers.
fn is_stack(access: &MemoryAccess) -> bool {
    matches!(access.base, Some(Reg::Rsp | Reg::Rbp)) && access.index.is_none()
}

impl<'a> Copy<'a> {
    fn place(&self, inst: usize) -> Option<super::view::SourcePlace> {
        let place = self.own.places.get(&inst)?;
        (place.copy == self.number).then_some(*place)
    }

    fn lines(&self) -> impl Iterator<Item = u32> + '_ {
        let mine = self.own.places.values();
        mine.filter(|p| p.copy == self.number).map(|p| p.line)
    }

    /// True if all known lines of the block's instructions are in the range, and at least one line
    /// is known.
    fn is_within(&self, block: Block<'a>, first: u32, last: u32) -> bool {
        let mut any = false;
        for inst in block.insts() {
            match self.place(inst.index()) {
                Some(place) if (first..=last).contains(&place.line) => any = true,
                // Line 0: code that the compiler added.
                None if inst.line().is_none() => {}
                _ => return false,
            }
        }
        any
    }

    /// Instructions of the body (lines between the head's and the last) outside of all regions,
    /// because the compiler split parts off. It moves many instructions that compute or load ahead
    /// of the loop, which changes no count, so only stores and calls are looked at: they stay
    /// where they belong.
    fn outside(&self, head: u32, last: u32, regions: &[Region<'a>]) -> Vec<u64> {
        let works = |inst: &atom_tool::Inst<'a>| {
            let place = self.place(inst.index());
            let stores = inst.is_type(InstType::Store) && !inst.memory().iter().all(is_stack);
            place.is_some_and(|p| p.line > head && p.line <= last)
                && (stores || inst.is_type(InstType::Call))
                && !regions.iter().any(|r| r.has(*inst))
        };
        self.family.insts().filter(works).map(|i| i.pc()).collect()
    }

    /// The regions of this copy: one for each execution of the code around it.
    fn regions(&self, first: u32, last: u32, matched: &[usize]) -> Vec<Region<'a>> {
        let family = &self.family;
        let within: HashSet<Block> = family
            .blocks
            .iter()
            .copied()
            .filter(|b| self.is_within(*b, first, last))
            .collect();
        // Loops that belong to the region as a whole.
        let inner: Vec<bool> = family
            .loops
            .iter()
            .enumerate()
            .map(|(i, l)| matched.contains(&i) || l.blocks.iter().all(|b| within.contains(b)))
            .collect();
        let around = |block: Block<'a>| {
            let mut at = block.innermost_loop();
            // Outside of the region's outermost loop, the loops around it remain.
            let mut outside = at;
            while let Some(i) = at {
                at = family.loops[i].parent;
                if inner[i] {
                    outside = at;
                }
            }
            outside
        };
        let mut groups: HashMap<Option<usize>, HashSet<Block>> = HashMap::new();
        for &i in matched {
            let item = &family.loops[i];
            let group = groups.entry(around(item.header)).or_default();
            group.extend(item.blocks.iter().copied());
        }
        for &block in &within {
            if let Some(group) = groups.get_mut(&around(block)) {
                group.insert(block);
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|g| g.1.iter().map(|b| b.index()).min());
        groups
            .into_iter()
            .map(|(around, mut blocks)| {
                close(family, &mut blocks, around);
                Region::of_blocks(family.clone(), &blocks)
            })
            .collect()
    }
}
