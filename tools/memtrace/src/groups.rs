//! Which references belong to a group, and the calls that note groups.

use atom_tool::notes::{self, NoteBuffer};
use atom_tool::prelude::*;
use atom_tool::simulate::groups::{self, Group};
use atom_tool::{References, ThreadData, Times};
use mem_trace::{Member, READ, WRITE};

use crate::{Compared, GROUP};

/// Largest distance in bytes between references of a group.
const MOST_BYTES: u64 = 1 << 12;

/// An instruction that refers to memory, with the number of its references that are in groups already.
struct Site<'a> {
    inst: Inst<'a>,
    references: References,
    used: usize,
}

impl Site<'_> {
    /// Size and access of an operand.
    fn operand(&self, operand: u8) -> (u64, u8) {
        let accesses = self.inst.memory();
        let Some(found) = accesses.get(usize::from(operand)) else {
            return (1, READ);
        };
        let read = if found.access.reads() { READ } else { 0 };
        let write = if found.access.writes() { WRITE } else { 0 };
        (u64::from(found.size).max(1), read | write)
    }

    /// The next reference of the instruction, at a distance from the lowest one of its group.
    fn next(&mut self, offset: u64) -> Member {
        let operand = self.references.operands.get(self.used).copied();
        self.used += 1;
        let (size, access) = self.operand(operand.unwrap_or(0));
        let pc = self.inst.pc();
        Member {
            pc,
            offset,
            size,
            access,
        }
    }
}

/// All groups of the program.
pub struct GroupList {
    /// The descriptions, one after the other.
    pub descriptions: Vec<u8>,
    /// For each group where its description begins, and where the last one ends.
    pub starts: Vec<u32>,
    /// The buffers of threads.
    pub buffer: ThreadData<NoteBuffer>,
    compared: ThreadData<Compared>,
}

impl GroupList {
    /// No groups.
    pub fn new(program: &Program<'_>) -> Self {
        Self {
            descriptions: Vec::new(),
            starts: vec![0],
            buffer: program.thread_data(NoteBuffer::new()),
            compared: program.thread_data(Compared::zero()),
        }
    }

    /// Adds a group; returns its number, as a call's argument.
    fn push(&mut self, is_repeated: bool, members: &[Member]) -> u32 {
        let number = self.starts.len() as u32 - 1;
        self.descriptions
            .extend(mem_trace::describe(is_repeated, members));
        self.starts.push(self.descriptions.len() as u32);
        notes::kind_and_number(GROUP, number)
    }

    /// Adds the calls for a procedure.
    pub fn add_proc(&mut self, proc: Proc<'_>) {
        for block in proc.blocks() {
            let insts = block.insts();
            let insts: Vec<(Inst<'_>, References)> = insts
                .filter_map(|inst| Some((inst, inst.references()?)))
                .collect();
            if insts.is_empty() {
                continue;
            }
            let groups = groups::groups(&block, &insts, MOST_BYTES);
            let site = |(inst, references)| Site {
                inst,
                references,
                used: 0,
            };
            let mut sites: Vec<Site<'_>> = insts.into_iter().map(site).collect();
            for group in groups {
                self.add_group(&mut sites, &group);
            }
            for site in &sites {
                if site.references.times != Times::Once {
                    self.add_repeated(site);
                }
            }
        }
    }

    fn add_group(&mut self, sites: &mut [Site<'_>], group: &Group) {
        let (lowest, operand) = group.lowest;
        let members: Vec<Member> = match group.members.is_empty() {
            true => vec![sites[group.first].next(0)],
            false => {
                let members = group.members.iter();
                let next = |m: &groups::Member| (group.first + usize::from(m.row), m.offset);
                let members = members.map(next);
                members
                    .map(|(site, offset)| sites[site].next(offset.into()))
                    .collect()
            }
        };
        let word = self.push(false, &members);
        let args = (self.buffer, word, EffAddrOf(operand));
        sites[lowest].inst.add_call(Before, crate::refer, args);
    }

    /// Adds the calls for a repeated string instruction, or one that refers to elements of a vector.
    fn add_repeated(&mut self, site: &Site<'_>) {
        let (inst, operands) = (site.inst, &site.references.operands);
        let member = |operand: &u8| {
            let (size, access) = site.operand(*operand);
            Member {
                pc: inst.pc(),
                offset: 0,
                size,
                access,
            }
        };
        let members: Vec<Member> = operands.iter().take(2).map(member).collect();
        let buffer = self.buffer;
        let a = EffAddrOf(operands[0]);
        let b = operands.get(1).map(|operand| EffAddrOf(*operand));
        let is_element = site.references.times == Times::Elements;
        let word = self.push(
            !is_element,
            &members[..if is_element { 1 } else { members.len() }],
        );
        match (site.references.times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => {
                        inst.add_call(Before, crate::compare, (self.compared, a, b, RepCount))
                    }
                    None => inst.add_call(Before, crate::compare, (self.compared, a, 0, RepCount)),
                }
                let args = (buffer, self.compared, word, Reg::Rcx, Direction);
                inst.add_call(After, crate::compared, args);
            }
            (Times::Repeated, Some(b)) => {
                inst.add_call(
                    Before,
                    crate::repeat,
                    (buffer, word, a, b, RepCount, Direction),
                );
            }
            (Times::Repeated, None) => {
                inst.add_call(
                    Before,
                    crate::repeat,
                    (buffer, word, a, 0, RepCount, Direction),
                );
            }
            _ => inst.add_call(Before, crate::refer, (buffer, word, a)),
        }
    }
}
