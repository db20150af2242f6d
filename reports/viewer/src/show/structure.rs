//! The structure of a procedure as `atom show --proc` shows it: the stack frame and the loops.

use std::fmt::Write;

use atom_abi::host::Reg;
use atom_abi::query::FrameRecord;
use atom_core::cfg::frame::frame;
use atom_core::cfg::graph::{FlowFacts, FlowGraph};
use atom_core::unwind::UnwindTable;
use atom_core::{BlockId, ProcId};
use serde::Serialize;

use super::Program;

/// Data of the whole program from which the structure of a procedure is found.
pub struct Structure<'a> {
    unwind: &'a UnwindTable<'a>,
    facts: FlowFacts,
}

/// A saved register and its offset from the virtual frame pointer in bytes.
#[derive(Serialize)]
pub struct Saved {
    register: String,
    offset: i32,
}

/// A stack frame: size in bytes, and whether the size is fixed.
#[derive(Serialize)]
pub struct Frame {
    size: u64,
    fixed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    register: Option<String>,
    saved: Vec<Saved>,
}

/// A natural loop.
#[derive(Serialize)]
pub struct Loop {
    header: u32,
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    blocks: Vec<u32>,
}

fn reg_name(number: u32) -> Option<String> {
    Some(format!("{:?}", Reg::from_number(number)?).to_lowercase())
}

impl<'a> Structure<'a> {
    /// Reads the whole program once.
    pub fn new(program: &Program, unwind: &'a UnwindTable<'a>) -> Self {
        let facts = FlowFacts::new(program.image, program.cfg, unwind);
        Self { unwind, facts }
    }

    /// The frame of a procedure.
    pub fn frame(&self, program: &Program, proc: ProcId) -> Option<Frame> {
        let record: FrameRecord = frame(program.image, program.cfg, self.unwind, proc)?;
        let saved = |first: Reg, mask: u32, offsets: &[i32; 16]| -> Vec<Saved> {
            (0..16u32)
                .filter(|i| mask >> i & 1 != 0)
                .filter_map(|i| {
                    Some(Saved {
                        register: reg_name(first as u32 + i)?,
                        offset: offsets[i as usize],
                    })
                })
                .collect()
        };
        let mut all = saved(Reg::Rax, record.int_mask, &record.int_offsets);
        all.extend(saved(Reg::Xmm0, record.float_mask, &record.float_offsets));
        all.sort_by_key(|s| std::cmp::Reverse(s.offset));
        Some(Frame {
            size: record.size,
            fixed: !record.is_dynamic,
            register: reg_name(record.frame_reg),
            saved: all,
        })
    }

    /// The flow graph of a procedure, or of the procedure of which it is a part.
    pub fn graph(&self, program: &Program, proc: ProcId) -> FlowGraph {
        let whole = program.cfg.whole(proc);
        FlowGraph::new(program.cfg, &self.facts, whole)
    }
}

impl Frame {
    /// The frame in one line of text.
    pub fn text(&self) -> String {
        let mut text = format!("frame: {} bytes", self.size);
        if !self.fixed {
            text.push_str(" and more");
        }
        if let Some(register) = &self.register {
            let _ = write!(text, ", by {register}");
        }
        for (i, saved) in self.saved.iter().enumerate() {
            let start = if i == 0 { "; saved" } else { "," };
            let _ = write!(text, "{start} {} at {}", saved.register, saved.offset);
        }
        text
    }
}

/// The loops of a graph.
pub fn loops(graph: &FlowGraph) -> Vec<Loop> {
    let loops = graph.loops();
    let list = loops.list().iter();
    list.map(|item| Loop {
        header: item.header.0,
        depth: item.depth,
        parent: item.parent,
        blocks: loops.blocks(item).iter().map(|b| b.0).collect(),
    })
    .collect()
}

/// The innermost loop of a block as text: `in loop 2`, at the loop's header with its depth.
pub fn loop_mark(graph: &FlowGraph, block: BlockId) -> Option<String> {
    let i = graph.innermost_loop(block)?;
    let item = &graph.loops().list()[i as usize];
    Some(if item.header == block {
        format!("header of loop {i}, depth {}", item.depth)
    } else {
        format!("in loop {i}")
    })
}
