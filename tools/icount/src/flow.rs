//! The profile's table by block: what instructions are executed how often follows from it.

use atom_tool::Sites;
use atom_tool::packed::Code;
use atom_tool::report::{Column, Values};

use crate::packed::BlockFacts;

/// The blocks that were executed.
#[derive(Default)]
pub struct Flow {
    /// Address, executed instructions, executions, instructions of the block, bytes of the block.
    numbers: [Vec<u64>; 5],
    sites: Vec<usize>,
}

impl Flow {
    /// Adds a block that was executed `count` times.
    pub fn push(&mut self, count: u64, block: BlockFacts) {
        let Code { pc, bytes, insts } = block.code;
        let row = [pc, count * insts, count, insts, bytes];
        for (column, value) in self.numbers.iter_mut().zip(row) {
            column.push(value);
        }
        self.sites.push(block.site);
    }

    /// The columns of the table.
    pub fn columns(self, sites: Sites) -> Vec<(Column, Values)> {
        let mut last = (usize::MAX, "");
        let mut name = |number: usize| {
            if last.0 != number {
                last = (number, sites.get(number).map_or("", |site| site.proc));
            }
            last.1
        };
        let names = self.sites.into_iter().map(&mut name).collect();
        let columns = [
            Column::address("pc"),
            Column::count("count", "instructions"),
            Column::count("executions", "blocks"),
            Column::count("insts", "instructions").label(),
            Column::bytes("bytes").label(),
        ];
        let numbers = columns.into_iter().zip(self.numbers.map(Values::Numbers));
        let names = (Column::text("procedure"), Values::Texts(names));
        numbers.chain([names]).collect()
    }
}
