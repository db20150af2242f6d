//! Rows of frame descriptions: how a frame is found at an address.
//!
//! gimli reads the tables, so this shares no code with the writer.

use std::collections::BTreeMap;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindSection,
};
use rustc_hash::FxHashMap;

use crate::check::memory::Memory;
use crate::check::state::Written;
use crate::unwind::UnwindTable;

/// The place of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa<'a> {
    /// A register, by its DWARF number, plus a number of bytes.
    Register(u16, i64),
    /// The word in memory at rsp plus the first number of bytes, plus the second one.
    Stored(i64, i64),
    /// The value of an expression.
    Expression(&'a [u8]),
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule<'a> {
    /// In the register.
    Same,
    /// Nowhere.
    Nowhere,
    /// In memory, at this distance from the frame.
    At(i64),
    /// It is the frame's address plus a number of bytes.
    Is(i64),
    /// In another register.
    Register(u16),
    /// In memory, at the value of an expression.
    AtExpression(&'a [u8]),
    /// It is the value of an expression.
    IsExpression(&'a [u8]),
    /// A rule that no unwinder has.
    Odd,
}

/// A set of general registers, a bit for each, by DWARF number: those that do not have the values that they had at the
/// point.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lost(u16);

impl Lost {
    /// These and one more register, if it is a general one.
    pub fn with(self, register: u16) -> Self {
        Self(self.0 | 1u16.checked_shl(register.into()).unwrap_or(0))
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if a register is one of them.
    pub fn has(self, register: u16) -> bool {
        self.0 & Self::default().with(register).0 != 0
    }

    /// Those that are none of the others.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// The rules of a row: a number in a [`Rulebook`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules(u32);

/// Rules as rows of both tables state them, each once. Most rows of a program have one of a few.
#[derive(Default)]
pub struct Rulebook<'a> {
    all: Vec<Stated<'a>>,
    numbers: FxHashMap<Box<[(u16, Rule<'a>)]>, Rules>,
}

/// Rules with what follows from them.
struct Stated<'a> {
    rules: Box<[(u16, Rule<'a>)]>,
    /// The registers that have rules.
    registers: Lost,
    /// The least distance from the frame, if all rules name memory at a distance from it.
    least: Option<i64>,
}

impl<'a> Rulebook<'a> {
    /// The number of rules, which are in the order of their registers.
    fn number(&mut self, rules: &[(u16, Rule<'a>)]) -> Rules {
        if let Some(known) = self.numbers.get(rules) {
            return *known;
        }
        let number = Rules(self.all.len() as u32);
        let distance = |rule: &(u16, Rule<'_>)| match rule.1 {
            Rule::At(at) => Some(at),
            _ => None,
        };
        let least =
            (rules.iter()).try_fold(i64::MAX, |least, rule| Some(least.min(distance(rule)?)));
        self.all.push(Stated {
            rules: rules.into(),
            registers: (rules.iter()).fold(Lost::default(), |all, rule| all.with(rule.0)),
            least,
        });
        self.numbers.insert(rules.into(), number);
        number
    }

    /// The rules that a row states, by register.
    pub fn of(&self, row: &Row<'_>) -> &[(u16, Rule<'a>)] {
        &self.all[row.rules.0 as usize].rules
    }

    /// The rule of a register, by its DWARF number.
    pub fn rule(&self, row: &Row<'_>, register: u16) -> Rule<'a> {
        let found = self.of(row).iter().find(|r| r.0 == register);
        found.map_or(Rule::Same, |r| r.1)
    }

    /// The registers of which a row says where their values are.
    pub fn registers(&self, row: &Row<'_>) -> Lost {
        self.all[row.rules.0 as usize].registers
    }

    /// True if the caller is where the other row finds it, which finds its frame `distance` bytes from the register `by`,
    /// where rsp is as in that row: the rules are the same, and all that is kept is in the frame, or below rsp where
    /// nothing was written.
    pub fn finds_same(
        &self,
        row: &Row<'_>,
        other: &Row<'_>,
        (by, distance): (u16, i64),
        written: Written,
    ) -> bool {
        let is_whole = |least: i64| {
            let lowest = least.saturating_add(distance);
            by != 7 || lowest >= 0 || written.is_none_or(|(from, to)| to <= lowest || from >= 0)
        };
        other.cfa == Cfa::Register(by, distance)
            && (by == 7 || by == 6)
            && row.rules == other.rules
            && self.all[row.rules.0 as usize].least.is_some_and(is_whole)
    }

    /// True if a row is one of shared code that keeps the return address below its frame, and nothing else but rbp.
    /// rbp is below the return address if the frame is found by it.
    pub fn is_called(&self, row: &Row<'_>) -> bool {
        match (row.cfa, self.of(row)) {
            (Cfa::Register(6, _), rules) => {
                matches!(rules, [(6, Rule::At(-16)), (16, Rule::At(-8))])
            }
            (Cfa::Register(7, _) | Cfa::Stored(..), rules) => {
                matches!(rules, [(16, Rule::At(-8))])
            }
            _ => false,
        }
    }
}

/// A row: what holds for a range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    end: u64,
    /// The place of the frame.
    pub cfa: Cfa<'a>,
    /// The rules that are stated, by register.
    rules: Rules,
}

/// The place of a frame that an expression finds, if it is [`Cfa::Stored`].
fn stored(expression: &[u8]) -> Option<Cfa<'_>> {
    let mut operations = operations_of(expression);
    let mut next = || operations.next().ok().flatten();
    let Operation::RegisterOffset {
        register: gimli::X86_64::RSP,
        offset,
        ..
    } = next()?
    else {
        return None;
    };
    let (
        Operation::Deref { size: 8, .. },
        Operation::SignedConstant { value },
        Operation::Plus,
        None,
    ) = (next()?, next()?, next()?, next())
    else {
        return None;
    };
    Some(Cfa::Stored(offset, value))
}

/// Reads an expression.
pub fn operations_of(expression: &[u8]) -> gimli::OperationIter<EndianSlice<'_, LittleEndian>> {
    let encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    gimli::Expression(EndianSlice::new(expression, LittleEndian)).operations(encoding)
}

impl Row<'_> {
    /// The address after the last for which it holds.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// How the description of an address is found.
#[derive(Clone, Copy)]
enum Index<'a> {
    Parsed(&'a UnwindTable<'a>),
    /// The index that unwinders search: its address, and its entries of eight bytes.
    Header(u64, &'a [u8]),
}

impl Index<'_> {
    /// Offset in the table of the description that may cover an address.
    fn find(&self, address: u64, table: u64) -> Option<u64> {
        match *self {
            Self::Parsed(parsed) => {
                let fde = parsed.find(address)?;
                Some(parsed.fdes[fde].offset.into())
            }
            Self::Header(header, entries) => {
                let (entries, _) = entries.as_chunks::<8>();
                let half = |entry: &[u8; 8], at: usize| {
                    i32::from_le_bytes(entry[at..at + 4].try_into().unwrap_or_default())
                };
                let wanted = address.wrapping_sub(header) as i64;
                let after = entries.partition_point(|e| i64::from(half(e, 0)) <= wanted);
                let entry = entries.get(after.checked_sub(1)?)?;
                let fde = header.wrapping_add_signed(half(entry, 4).into());
                Some(fde.wrapping_sub(table))
            }
        }
    }
}

/// A table of frame descriptions.
#[derive(Clone)]
pub struct Table<'a> {
    eh_frame: EhFrame<EndianSlice<'a, LittleEndian>>,
    address: u64,
    bases: BaseAddresses,
    index: Index<'a>,
}

impl<'a> Table<'a> {
    fn new(bytes: &'a [u8], address: u64, index: Index<'a>) -> Self {
        Self {
            eh_frame: EhFrame::new(bytes, LittleEndian),
            address,
            bases: BaseAddresses::default().set_eh_frame(address),
            index,
        }
    }

    /// True for an address in the table itself: a pointer relative to its own place that is zero, for none.
    fn has(&self, address: u64) -> bool {
        let end = match self.index {
            Index::Parsed(parsed) => self.address + parsed.eh_frame.len() as u64,
            Index::Header(header, _) => header,
        };
        (self.address..end).contains(&address)
    }

    /// The table of the original.
    pub fn original(table: &'a UnwindTable<'a>) -> Self {
        Self::new(table.eh_frame, table.vaddr, Index::Parsed(table))
    }

    /// The table of the output, whose index is at an address. `None` if it has another form than it should have.
    pub fn indexed(memory: &Memory<'a>, header: u64) -> Option<Self> {
        /// Version, and the encodings of the table's address, of the count, of entries.
        const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let bytes = memory.rest_at(header)?;
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok();
        let address = i32::from_le_bytes(word(4)?);
        let count = u32::from_le_bytes(word(8)?) as usize;
        let entries = bytes.get(12..12 + 8 * count)?;
        let address = (header + 4).wrapping_add_signed(address.into());
        let table = memory.rest_at(address)?;
        bytes
            .starts_with(&FORM)
            .then(|| Self::new(table, address, Index::Header(header, entries)))
    }
}

/// A personality routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Personality {
    /// Its address, or where its address is stored.
    pub address: u64,
    /// True if its address is stored there.
    pub is_indirect: bool,
}

/// What a description says beside its rows.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// First address.
    pub start: u64,
    /// Address after the last.
    end: u64,
    /// Address of its exception table.
    pub area: Option<u64>,
    /// The personality routine.
    pub personality: Option<Personality>,
}

/// Number of rows from which on a reader forgets all that it keeps, unless one description has more than half of them. Shared
/// code is called from many procedures, so its descriptions are used again and again, and so is a description of 250,000
/// rows (one procedure of *cargo*), which takes long to read.
const MOST_ROWS: usize = 1 << 16;

/// A description that was read.
struct Read<'a> {
    description: Description,
    rows: Vec<Row<'a>>,
}

impl Read<'_> {
    fn covers(&self, address: u64) -> bool {
        (self.description.start..self.description.end).contains(&address)
    }
}

/// Reads descriptions, and keeps them for a while.
pub struct Reader<'a> {
    table: Table<'a>,
    context: UnwindContext<usize>,
    kept: Vec<Read<'a>>,
    /// The numbers of the descriptions in `kept`, by the addresses where they start.
    numbers: BTreeMap<u64, usize>,
    /// Number of rows in `kept`.
    rows: usize,
    /// Number of rows of the largest description in `kept`.
    largest: usize,
    /// The numbers of the two descriptions that were used last, the last one first.
    last: [usize; 2],
    /// The two rows that were found last, each with the first of its addresses that is known, the last one first.
    last_rows: [Option<(u64, Row<'a>)>; 2],
    /// The place of that row in its description.
    near: usize,
}

impl<'a> Reader<'a> {
    /// Nothing was read yet.
    pub fn new(table: Table<'a>) -> Self {
        Self {
            table,
            context: UnwindContext::new(),
            kept: Vec::new(),
            numbers: BTreeMap::new(),
            rows: 0,
            largest: 0,
            last: [0; 2],
            last_rows: [None; 2],
            near: 0,
        }
    }

    fn read(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<&Read<'a>> {
        let is_at = |number: usize| self.kept.get(number).is_some_and(|r| r.covers(address));
        if !is_at(self.last[0]) {
            let number = if is_at(self.last[1]) {
                self.last[1]
            } else {
                self.find(address, book)?
            };
            self.last = [number, self.last[0]];
        }
        self.kept.get(self.last[0])
    }

    /// The number of the description that covers an address.
    fn find(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<usize> {
        let before = self.numbers.range(..=address).next_back();
        if let Some((_, number)) = before
            && self.kept[*number].covers(address)
        {
            return Some(*number);
        }
        let read = self.load(address, book)?;
        if self.rows > MOST_ROWS.max(2 * self.largest) {
            self.kept.clear();
            self.numbers.clear();
            (self.rows, self.largest) = (0, 0);
        }
        self.rows += read.rows.len();
        self.largest = self.largest.max(read.rows.len());
        self.numbers.insert(read.description.start, self.kept.len());
        self.kept.push(read);
        Some(self.kept.len() - 1)
    }

    /// The description that covers an address, if it can be read.
    pub fn description(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<Description> {
        self.read(address, book).map(|read| read.description)
    }

    /// The row for an address, if a description covers it that can be read.
    #[inline]
    pub fn row(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<Row<'a>> {
        let is_at = |known: &&(u64, Row<'_>)| known.0 <= address && address < known.1.end;
        match self.last_rows.iter().flatten().find(is_at) {
            Some((_, row)) => Some(*row),
            None => self.other_row(address, book),
        }
    }

    fn other_row(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<Row<'a>> {
        let near = self.near;
        let rows = &self.read(address, book)?.rows;
        // Mostly the row after the last one.
        let ends = |row: usize| rows.get(row).map_or(u64::MAX, |row| row.end);
        let is_at = |row: usize| address < ends(row) && (row == 0 || ends(row - 1) <= address);
        let row = match [near, near + 1, near + 2]
            .into_iter()
            .find(|row| is_at(*row))
        {
            Some(row) => row,
            None => rows.partition_point(|row| row.end <= address),
        };
        let found = *rows.get(row)?;
        self.near = row;
        self.last_rows = [Some((address, found)), self.last_rows[0]];
        Some(found)
    }

    fn load(&mut self, address: u64, book: &mut Rulebook<'a>) -> Option<Read<'a>> {
        let table = &self.table;
        let offset = table.index.find(address, table.address)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let fde = table
            .eh_frame
            .fde_from_offset(&table.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        let start = fde.initial_address();
        let end = start.checked_add(fde.len())?;
        if !(start..end).contains(&address) {
            return None;
        }
        let mut rows = fde
            .rows(&table.eh_frame, &table.bases, &mut self.context)
            .ok()?;
        let bytes = |e: &gimli::UnwindExpression<usize>| {
            e.get(&table.eh_frame).map_or(&[][..], |e| e.0.slice())
        };
        let mut found: Vec<Row<'_>> = Vec::new();
        let mut rules = Vec::new();
        while let Some(row) = rows.next_row().ok()? {
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    Cfa::Register(register.0, *offset)
                }
                CfaRule::Expression(e) => stored(bytes(e)).unwrap_or(Cfa::Expression(bytes(e))),
            };
            rules.clear();
            rules.extend(row.registers().map(|(register, rule)| {
                let rule = match rule {
                    RegisterRule::Undefined => Rule::Nowhere,
                    RegisterRule::SameValue => Rule::Same,
                    RegisterRule::Offset(n) => Rule::At(*n),
                    RegisterRule::ValOffset(n) => Rule::Is(*n),
                    RegisterRule::Register(other) => Rule::Register(other.0),
                    RegisterRule::Expression(e) => Rule::AtExpression(bytes(e)),
                    RegisterRule::ValExpression(e) => Rule::IsExpression(bytes(e)),
                    _ => Rule::Odd,
                };
                (register.0, rule)
            }));
            rules.retain(|r| r.1 != Rule::Same);
            rules.sort_unstable_by_key(|r| r.0);
            found.push(Row {
                end: row.end_address(),
                cfa,
                rules: book.number(&rules),
            });
        }
        let address = |pointer: gimli::Pointer| match pointer {
            gimli::Pointer::Direct(at) => (at, false),
            gimli::Pointer::Indirect(at) => (at, true),
        };
        let personality = fde.personality().map(address);
        let description = Description {
            start,
            end,
            area: fde
                .lsda()
                .map(|p| address(p).0)
                .filter(|area| !table.has(*area)),
            personality: personality.map(|(address, is_indirect)| Personality {
                address,
                is_indirect,
            }),
        };
        Some(Read {
            description,
            rows: found,
        })
    }
}
