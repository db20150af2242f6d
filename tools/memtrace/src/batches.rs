//! The batches of references, as the trace describes them.

use atom_tool::simulate::{batched, batches};
use mem_trace::{EXECUTED, Item, READ, WRITE};

atom_tool::plain_data! {
    /// Where a batch is described.
    #[derive(Default)]
    pub struct Description {
        /// First byte of the description.
        pub start: u32,
        /// Length in bytes.
        pub len: u32,
        /// Number of references, or of those that a repeated instruction makes each time.
        pub references: u16,
        /// Number of values.
        pub values: u8,
        /// 1 for a repeated instruction.
        pub is_repeated: u8,
    }
}

/// All batches of the program.
pub struct BatchList {
    /// The descriptions, one after the other.
    pub bytes: Vec<u8>,
    /// For each number where its description is. A batch has one number more than values, and uses
    /// the first.
    pub descriptions: Vec<Description>,
}

impl BatchList {
    /// No batches. The number 0 stays free: no batch has it.
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            descriptions: vec![Description::default()],
        }
    }

    /// Adds a batch; returns its number.
    pub fn push(&mut self, batch: &batched::Noted<'_>) -> u32 {
        let number = self.descriptions.len();
        let items: Vec<Item> = batch.items.iter().map(item).collect();
        let bytes = mem_trace::describe(batch.is_repeated, batch.values as u8, &items);
        let references = items.iter().filter(|item| item.access != EXECUTED).count();
        self.descriptions.push(Description {
            start: self.bytes.len() as u32,
            len: bytes.len() as u32,
            references: references as u16,
            values: batch.values as u8,
            is_repeated: batch.is_repeated.into(),
        });
        self.bytes.extend(bytes);
        let next = number + batch.values + 1;
        self.descriptions.resize(next, Description::default());
        number as u32
    }
}

fn item(item: &batches::Item) -> Item {
    match *item {
        batches::Item::Executed { pc, size } => Item {
            pc,
            size,
            access: EXECUTED,
            ..Item::default()
        },
        batches::Item::Reference {
            pc,
            source,
            offset,
            size,
            reads,
            writes,
        } => Item {
            pc,
            size,
            access: (u8::from(reads) * READ) | (u8::from(writes) * WRITE),
            value: source,
            offset,
        },
    }
}
