//! A graph as bytes, for a file that saves building it again.
//!
//! When a library is added to a running process, the tool looks at all objects again, of which only the library is new.
//! All numbers are little-endian. The bytes begin with a hash of what follows: a damaged file is none.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::{Block, Cfg, JumpTable, Proc, ProcKind, Returns, Status, Succ};
use crate::ids::{Address48, BlockId, InstId, ProcId};
use crate::unwind::go::Origin;
use crate::x86::{ControlFlow, Inst};

const FLOWS: [ControlFlow; 10] = [
    ControlFlow::FallThrough,
    ControlFlow::Jump,
    ControlFlow::CondJump,
    ControlFlow::Call,
    ControlFlow::IndirectJump,
    ControlFlow::IndirectCall,
    ControlFlow::Return,
    ControlFlow::Syscall,
    ControlFlow::Halt,
    ControlFlow::Trap,
];
const RETURNS: [Returns; 4] = [
    Returns::New,
    Returns::IfPossible,
    Returns::Always,
    Returns::Original,
];
const ORIGINS: [Origin; 3] = [Origin::Go, Origin::Assembly, Origin::Other];

/// Bytes to which numbers and texts are appended.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Appends a byte.
    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends a number of 32 bits.
    pub fn small(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a number of 64 bits.
    pub fn word(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a number of things.
    pub fn count(&mut self, count: usize) {
        self.word(count as u64);
    }

    /// Appends a text with its length.
    pub fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    /// All bytes, after a hash of them.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = hash(&self.0).to_le_bytes().to_vec();
        bytes.extend(self.0);
        bytes
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Reads what a [`Writer`] wrote. Each function yields `None` at the end.
pub struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Reads bytes of [`Writer::finish`]; `None` if they are damaged.
    pub fn new(bytes: &'b [u8]) -> Option<Self> {
        let (own, rest) = bytes.split_first_chunk()?;
        (u64::from_le_bytes(*own) == hash(rest)).then_some(Self(rest))
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    /// A number of 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    pub fn word(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.word()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// As many things as the number says that comes first, each read by `one`.
    pub fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.word()?).ok()?;
        // Each takes a byte at least.
        let mut all = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }
}

/// Bits of a byte, the first one lowest.
fn bits<const N: usize>(flags: [bool; N]) -> u8 {
    let each = flags.iter().enumerate();
    each.fold(0, |byte, (i, flag)| byte | u8::from(*flag) << i)
}

fn write_proc(to: &mut Writer, proc: &Proc) {
    to.word(proc.start);
    to.word(proc.end);
    let (status, reason) = match &proc.status {
        Status::Full => (0, ""),
        Status::Partial(reason) => (1, reason.as_str()),
        Status::Opaque(reason) => (2, reason.as_str()),
    };
    to.byte(status);
    to.text(reason);
    let (kind, parent) = match proc.kind {
        ProcKind::Normal => (0, 0),
        ProcKind::Plt => (1, 0),
        ProcKind::Fragment(None) => (2, 0),
        ProcKind::Fragment(Some(parent)) => (3, parent.0),
    };
    to.byte(kind);
    to.small(parent);
    to.small(proc.first_block.0);
    to.small(proc.block_count);
    to.byte(bits([
        proc.is_local,
        proc.is_go,
        proc.name.is_some(),
        proc.is_described,
    ]));
    to.byte(proc.returns as u8);
    to.byte(proc.go_origin as u8);
    to.text(proc.name.as_deref().unwrap_or_default());
}

fn read_proc(from: &mut Reader<'_>) -> Option<Proc> {
    let (start, end) = (from.word()?, from.word()?);
    let (status, reason) = (from.byte()?, from.text()?);
    let (kind, parent) = (from.byte()?, ProcId(from.small()?));
    let (first_block, block_count) = (BlockId(from.small()?), from.small()?);
    let flags = from.byte()?;
    let (returns, origin) = (from.byte()?, from.byte()?);
    let name = from.text()?;
    Some(Proc {
        start,
        end,
        name: (flags & 4 != 0).then_some(name),
        kind: match kind {
            0 => ProcKind::Normal,
            1 => ProcKind::Plt,
            2 => ProcKind::Fragment(None),
            _ => ProcKind::Fragment(Some(parent)),
        },
        status: match status {
            0 => Status::Full,
            1 => Status::Partial(reason),
            _ => Status::Opaque(reason),
        },
        first_block,
        block_count,
        is_local: flags & 1 != 0,
        returns: *RETURNS.get(usize::from(returns))?,
        is_go: flags & 2 != 0,
        go_origin: *ORIGINS.get(usize::from(origin))?,
        is_described: flags & 8 != 0,
    })
}

fn write_block(to: &mut Writer, block: &Block) {
    to.small(block.proc.0);
    to.small(block.first.0);
    to.small(block.count);
    to.small(block.first_succ);
    let flags = bits([
        block.is_entry,
        block.is_indirect_target,
        block.is_landing_pad,
    ]);
    to.small(u32::from(block.succ_count) | u32::from(flags) << 16);
}

fn read_block(from: &mut Reader<'_>) -> Option<Block> {
    let (proc, first) = (ProcId(from.small()?), InstId(from.small()?));
    let (count, first_succ) = (from.small()?, from.small()?);
    let rest = from.small()?;
    let flag = |n: u32| rest >> (16 + n) & 1 != 0;
    Some(Block {
        proc,
        first,
        count,
        first_succ,
        succ_count: rest as u16,
        is_entry: flag(0),
        is_indirect_target: flag(1),
        is_landing_pad: flag(2),
    })
}

fn write_inst(to: &mut Writer, inst: &Inst) {
    let flags = bits([inst.rip_relative, inst.special]);
    to.word(
        u64::from(inst.offset)
            | u64::from(inst.len) << 32
            | (inst.flow as u64) << 40
            | u64::from(flags) << 48,
    );
}

fn read_inst(from: &mut Reader<'_>) -> Option<Inst> {
    let word = from.word()?;
    Some(Inst {
        offset: word as u32,
        len: (word >> 32) as u8,
        flow: *FLOWS.get(usize::from((word >> 40) as u8))?,
        rip_relative: word >> 48 & 1 != 0,
        special: word >> 49 & 1 != 0,
    })
}

fn write_succ(to: &mut Writer, succ: &Succ) {
    let (kind, value) = match *succ {
        Succ::Fall(block) => (0, block.0.into()),
        Succ::Branch(block) => (1, block.0.into()),
        Succ::Tail(address) => (2, address.get()),
        Succ::Unknown => (3, 0),
    };
    to.word(value << 2 | kind);
}

fn read_succ(from: &mut Reader<'_>) -> Option<Succ> {
    let word = from.word()?;
    let block = BlockId((word >> 2) as u32);
    Some(match word & 3 {
        0 => Succ::Fall(block),
        1 => Succ::Branch(block),
        2 => Succ::Tail(Address48::new(word >> 2)),
        _ => Succ::Unknown,
    })
}

fn write_table(to: &mut Writer, table: &JumpTable) {
    to.small(table.jump.0);
    to.word(table.table);
    to.byte(table.entry_size);
    to.small(table.entries);
    to.byte(bits([table.relative_to.is_some(), table.load.is_some()]));
    to.word(table.relative_to.unwrap_or(0));
    to.small(table.load.map_or(0, |load| load.0));
    to.count(table.targets.len());
    table.targets.iter().for_each(|target| to.word(*target));
}

fn read_table(from: &mut Reader<'_>) -> Option<JumpTable> {
    let (jump, table) = (InstId(from.small()?), from.word()?);
    let (entry_size, entries) = (from.byte()?, from.small()?);
    let flags = from.byte()?;
    let (relative_to, load) = (from.word()?, InstId(from.small()?));
    Some(JumpTable {
        jump,
        table,
        entry_size,
        entries,
        relative_to: (flags & 1 != 0).then_some(relative_to),
        load: (flags & 2 != 0).then_some(load),
        targets: from.list(Reader::word)?,
    })
}

/// Appends a list with its length.
fn write_list<T>(to: &mut Writer, all: &[T], one: impl Fn(&mut Writer, &T)) {
    to.count(all.len());
    all.iter().for_each(|item| one(to, item));
}

impl Cfg {
    /// Appends the graph.
    pub fn store(&self, to: &mut Writer) {
        to.word(self.base);
        write_list(to, &self.procs, write_proc);
        write_list(to, &self.blocks, write_block);
        write_list(to, &self.insts, write_inst);
        write_list(to, &self.succs, write_succ);
        write_list(to, &self.jump_tables, write_table);
        write_list(to, &self.together, |to, (a, b)| {
            to.small(a.0);
            to.small(b.0);
        });
        write_list(to, &self.text_references, |to, address| to.word(*address));
    }

    /// Reads a graph that [`Cfg::store`] wrote.
    pub fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let mut cfg = Self {
            base: from.word()?,
            procs: from.list(read_proc)?,
            blocks: from.list(read_block)?,
            insts: from.list(read_inst)?,
            succs: from.list(read_succ)?,
            jump_tables: from.list(read_table)?,
            together: from.list(|from| Some((ProcId(from.small()?), ProcId(from.small()?))))?,
            text_references: from.list(Reader::word)?,
            ..Self::default()
        };
        cfg.index();
        Some(cfg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Cfg {
        let proc = |start: u64, kind, status, name: Option<&str>| Proc {
            start,
            end: start + 8,
            name: name.map(str::to_owned),
            kind,
            status,
            first_block: BlockId(0),
            block_count: 1,
            is_local: start == 0x1000,
            returns: Returns::IfPossible,
            is_go: start == 0x1010,
            go_origin: Origin::Assembly,
            is_described: start == 0x1000,
        };
        let block = |first: u32, flag: usize| Block {
            proc: ProcId(first),
            first: InstId(first),
            count: 1,
            first_succ: 2 * first,
            succ_count: 2,
            is_entry: flag == 0,
            is_indirect_target: flag == 1,
            is_landing_pad: flag == 2,
        };
        let mut cfg = Cfg {
            base: 0x1000,
            procs: vec![
                proc(0x1000, ProcKind::Normal, Status::Full, Some("größe")),
                proc(0x1008, ProcKind::Plt, Status::Partial("a gap".into()), None),
                proc(
                    0x1010,
                    ProcKind::Fragment(Some(ProcId(1))),
                    Status::Opaque("why".into()),
                    Some(""),
                ),
                proc(0x1018, ProcKind::Fragment(None), Status::Full, None),
            ],
            blocks: (0..3).map(|i| block(i, i as usize)).collect(),
            insts: (FLOWS.iter().enumerate())
                .map(|(i, flow)| Inst {
                    offset: 3 * i as u32,
                    len: 15,
                    flow: *flow,
                    rip_relative: i % 2 != 0,
                    special: i % 3 != 0,
                })
                .collect(),
            succs: vec![
                Succ::Fall(BlockId(1)),
                Succ::Branch(BlockId(u32::MAX)),
                Succ::Tail(Address48::new(0x7fff_1234_5678)),
                Succ::Tail(Address48::new(0xffff_ffff_ff60_0000)),
                Succ::Unknown,
            ],
            jump_tables: vec![JumpTable {
                jump: InstId(4),
                table: 0x2000,
                entry_size: 4,
                entries: 2,
                relative_to: Some(0x2000),
                load: Some(InstId(3)),
                targets: vec![0x1000, 0x1003],
            }],
            together: vec![(ProcId(1), ProcId(2))],
            text_references: vec![0x1001],
            ..Cfg::default()
        };
        cfg.index();
        cfg
    }

    fn bytes(cfg: &Cfg) -> Vec<u8> {
        let mut to = Writer::default();
        cfg.store(&mut to);
        to.finish()
    }

    #[test]
    fn what_is_stored_is_restored() {
        let cfg = graph();
        let bytes = bytes(&cfg);
        let mut from = Reader::new(&bytes).unwrap();
        let again = Cfg::restore(&mut from).unwrap();
        assert_eq!(from.byte(), None);
        // All fields, the indices included.
        assert_eq!(format!("{again:?}"), format!("{cfg:?}"));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let whole = bytes(&graph());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(Reader::new(&damaged).is_none(), "{at}");
            assert!(Reader::new(&whole[..at]).is_none(), "{at}");
        }
    }
}
