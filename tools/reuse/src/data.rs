//! What an address belongs to: a variable, or a block of the heap.

use atom_tool::Address;
use atom_tool::prelude::*;

use crate::heap::{self, PAGE};

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

impl Image {
    /// Distance from a run-time address to the address in its file; `None` if it belongs to no file.
    fn distance(&self, address: u64) -> Option<u64> {
        let is_inside = address.wrapping_sub(self.start) < self.size;
        match Address::of_run_time(address) {
            // Between the program's image and what is added to it the kernel may put the heap.
            Some(found) if is_inside || found.object_number() != 0 => {
                Some(found.0.wrapping_sub(address))
            }
            _ => is_inside.then(|| self.in_file.wrapping_sub(self.start)),
        }
    }
}

/// What is in memory besides the heap.
pub struct Memory {
    /// Variables in the order of their addresses.
    pub variables: Array<Variable>,
    pub program: Image,
    /// Addresses that the stack of the first thread may have.
    pub stack: std::ops::Range<u64>,
}

/// Number that stands for all addresses that belong to nothing that is known.
pub const ELSEWHERE: u32 = 0;
/// Number that stands for data of a file that no symbol names.
pub const UNNAMED: u32 = 1;
/// Number that stands for the stack of the process's first thread.
pub const STACK: u32 = 2;
/// First number of variables and of [`heap::Origin`]s, which take turns, because there may be more of both later.
const FIRST: u32 = 3;

/// What has a number from [`FIRST`] on, by its place among those like it.
pub enum Numbered {
    Variable(usize),
    Origin(usize),
}

impl Numbered {
    /// What a number from [`FIRST`] on stands for.
    pub fn of(number: u32) -> Self {
        let place = (number - FIRST) as usize / 2;
        match (number - FIRST) % 2 {
            0 => Self::Variable(place),
            _ => Self::Origin(place),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Variable(place) => FIRST + 2 * place as u32,
            Self::Origin(place) => FIRST + 2 * place as u32 + 1,
        }
    }
}

/// Addresses that the stack of the process's first thread may have: from its end down to its limit.
pub fn stack() -> std::ops::Range<u64> {
    /// Bytes if there is no limit.
    const UNLIMITED: u64 = 1 << 27;
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let maps = read("/proc/self/maps");
    let line = maps.lines().find(|line| line.ends_with("[stack]"));
    let addresses = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let Some((start, end)) = addresses.and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
    else {
        return 0..0;
    };
    let limits = read("/proc/self/limits");
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max stack size"));
    let limit = limit.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    end.saturating_sub(limit.unwrap_or(UNLIMITED)).min(start)..end
}

/// Number of pages that are remembered.
const PAGES: usize = 1 << 10;

/// What is known of a page.
#[derive(Clone, Copy)]
struct Page {
    number: u64,
    /// Distance from run-time addresses to addresses in the file; `None` if it belongs to no file.
    distance: Option<u64>,
}

/// Memory that one variable or block has.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Address of its first byte, and the one after its last byte; equal for none.
    start: u64,
    end: u64,
    number: u32,
}

/// Binary logarithm of the number of bytes that lead to one place of [`Data::known`].
const UNIT: u32 = 6;
/// Number of those places.
const PLACES: u64 = 1 << 12;

/// What a thread knows of memory.
pub struct Data {
    pages: Vec<Page>,
    /// What was found last for each unit of memory, modulo their number.
    known: Vec<Known>,
    /// The changes of the heap and of mappings that `pages` and `known` have followed.
    followed: heap::Changes,
}

impl Data {
    pub fn new() -> Self {
        let number = u64::MAX;
        let distance = None;
        Self {
            pages: vec![Page { number, distance }; PAGES],
            known: vec![Known::default(); PLACES as usize],
            followed: heap::Changes::default(),
        }
    }

    /// Forgets what changes of the heap and of mappings have made invalid.
    #[cold]
    fn follow(&mut self, now: heap::Changes) {
        let known = &mut self.known;
        let is_same = now.mappings == self.followed.mappings;
        let forget = |start: u64, end: u64| {
            let (first, last) = (start >> UNIT, end.saturating_sub(1) >> UNIT);
            for unit in first..=last.min(first.saturating_add(PLACES - 1)) {
                known[(unit % PLACES) as usize] = Known::default();
            }
        };
        if !is_same || !self.followed.each_until(now, forget) {
            self.known.fill(Known::default());
            let number = u64::MAX;
            self.pages.iter_mut().for_each(|page| page.number = number);
        }
        self.followed = now;
    }

    /// The number of what is at an address.
    #[inline]
    pub fn of(&mut self, memory: &Memory, address: u64) -> u32 {
        if memory.stack.contains(&address) {
            return STACK;
        }
        let now = heap::Changes::now();
        if now != self.followed {
            self.follow(now);
        }
        let place = ((address >> UNIT) % PLACES) as usize;
        let known = self.known[place];
        if known.start <= address && address < known.end {
            return known.number;
        }
        match self.find(memory, address) {
            Ok(found) => {
                self.known[place] = found;
                found.number
            }
            Err(number) => number,
        }
    }

    /// What is at an address, or a number that stands for memory of no variable and no block.
    fn find(&mut self, memory: &Memory, address: u64) -> Result<Known, u32> {
        if let Some((start, end, origin)) = heap::block(address) {
            let number = Numbered::Origin(origin as usize).number();
            return Ok(Known { start, end, number });
        }
        let variables = memory.variables.as_slice();
        let number = address / PAGE;
        let page = &mut self.pages[number as usize % PAGES];
        if page.number != number {
            let distance = memory.program.distance(address);
            *page = Page { number, distance };
        }
        let distance = page.distance.ok_or(ELSEWHERE)?;
        let in_file = address.wrapping_add(distance);
        let behind = variables.partition_point(|variable| variable.start <= in_file);
        let place = behind.checked_sub(1).ok_or(UNNAMED)?;
        let found = &variables[place];
        let size = u64::from(found.size);
        if in_file - found.start >= size {
            return Err(UNNAMED);
        }
        let start = found.start.wrapping_sub(distance);
        Ok(Known {
            start,
            end: start + size,
            number: Numbered::Variable(place).number(),
        })
    }
}
