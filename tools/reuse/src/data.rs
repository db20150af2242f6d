//! Which variable an address belongs to.

use atom_tool::Address;
use atom_tool::prelude::*;

use crate::thread::Run;

plain_data! {
    /// A variable of the symbol tables.
    pub struct Variable {
        /// Address in its file, with the number of its object in the bits from 32 on.
        pub start: u64,
        /// Size in bytes.
        pub size: u32,
        /// Key of its name.
        pub name: u32,
    }
}

/// Where the program is. One that is instrumented alone is found by this only.
pub struct Image {
    /// Address of its first byte at run time.
    pub start: u64,
    /// In bytes.
    pub size: u64,
    /// Address of its first byte in the file.
    pub in_file: u64,
}

/// Number that stands for all addresses that belong to no file: heap, stacks, mapped memory.
pub const ELSEWHERE: u32 = 0;
/// Number that stands for data of a file that no symbol names.
pub const UNNAMED: u32 = 1;
/// Number of the first variable.
pub const FIRST: u32 = 2;

const PAGE: u64 = 4096;
/// Number of pages that are remembered.
const PAGES: usize = 1 << 10;

/// What is known of a page.
#[derive(Clone, Copy)]
struct Page {
    number: u64,
    /// Distance from run-time addresses to addresses in the file; `None` if it belongs to no file.
    distance: Option<u64>,
}

/// The pages of a thread.
pub struct Data {
    pages: Vec<Page>,
    /// Addresses and number of the last variable.
    last: (u64, u64, u32),
}

impl Data {
    pub fn new() -> Self {
        let number = u64::MAX;
        let distance = None;
        Self {
            pages: vec![Page { number, distance }; PAGES],
            last: (0, 0, ELSEWHERE),
        }
    }

    /// The number of the variable at an address, or [`ELSEWHERE`], or [`UNNAMED`].
    #[inline]
    pub fn of(&mut self, run: &Run, address: u64) -> u32 {
        let variables = run.variables;
        let (start, end, variable) = self.last;
        if address >= start && address < end {
            return variable;
        }
        let number = address / PAGE;
        let page = &mut self.pages[number as usize % PAGES];
        if page.number != number {
            let in_file = Address::of_run_time(address).map(|found| found.0);
            *page = Page {
                number,
                distance: in_file.map(|found| found.wrapping_sub(address)),
            };
            let program = &run.program;
            if page.distance.is_none() && address.wrapping_sub(program.start) < program.size {
                page.distance = Some(program.in_file.wrapping_sub(program.start));
            }
        }
        let Some(distance) = page.distance else {
            return ELSEWHERE;
        };
        let in_file = address.wrapping_add(distance);
        let behind = variables.partition_point(|variable| variable.start <= in_file);
        let Some(place) = behind.checked_sub(1) else {
            return UNNAMED;
        };
        let found = &variables[place];
        if in_file - found.start >= u64::from(found.size) {
            return UNNAMED;
        }
        let start = found.start.wrapping_sub(distance);
        self.last = (start, start + u64::from(found.size), place as u32 + FIRST);
        place as u32 + FIRST
    }
}
