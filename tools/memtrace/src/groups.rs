//! The groups of references, as the trace describes them.

use atom_tool::simulate::noted;
use mem_trace::{Member, READ, WRITE};

/// All groups of the program.
pub struct GroupList {
    /// The descriptions, one after the other.
    pub descriptions: Vec<u8>,
    /// For each group where its description begins, and where the last one ends.
    pub starts: Vec<u32>,
}

impl GroupList {
    /// No groups.
    pub fn new() -> Self {
        Self {
            descriptions: Vec::new(),
            starts: vec![0],
        }
    }

    /// Adds a group; returns its number.
    pub fn push(&mut self, is_repeated: bool, members: &[noted::Member]) -> u32 {
        let number = self.starts.len() as u32 - 1;
        let members: Vec<Member> = members
            .iter()
            .map(|member| Member {
                pc: member.pc,
                offset: member.offset,
                size: member.size,
                access: (u8::from(member.reads) * READ) | (u8::from(member.writes) * WRITE),
            })
            .collect();
        let description = mem_trace::describe(is_repeated, &members);
        self.descriptions.extend(description);
        self.starts.push(self.descriptions.len() as u32);
        number
    }
}
