//! `atom show --json` for programs.
//!
//! Addresses are strings in hexadecimal, because many readers keep JSON's numbers exact only up to 2^53.

use std::io::{Result, Write};

use atom_core::ProcId;
use atom_core::cfg::{ProcKind, Succ};
use serde::Serialize;

use super::structure::{Frame, Loop, Structure, loops};
use super::text::Listing;
use super::{Program, block_marks, inst_count, proc_name};
use crate::status::{Totals, hex, status};

#[derive(Serialize)]
struct ProgramJson<'a> {
    program: String,
    totals: Totals,
    blocks: usize,
    instructions: usize,
    procedures: Vec<ProcJson<'a>>,
}

#[derive(Serialize)]
struct ProcJson<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<&'a str>,
    address: String,
    size: u64,
    kind: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    block_count: u32,
    instruction_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<Frame>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loops: Option<Vec<Loop>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<BlockJson<'a>>>,
}

#[derive(Serialize)]
struct BlockJson<'a> {
    id: u32,
    address: String,
    marks: Vec<&'static str>,
    successors: Vec<SuccJson>,
    instructions: Vec<InstJson<'a>>,
}

#[derive(Serialize)]
struct SuccJson {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

#[derive(Serialize)]
struct InstJson<'a> {
    address: String,
    bytes: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// Writes all procedures, without their blocks, as an object.
pub fn program(program: &Program, out: &mut dyn Write) -> Result<()> {
    let cfg = program.cfg;
    let ids = (0..cfg.procs.len()).map(ProcId::from_index);
    let json = ProgramJson {
        program: program.image.path.display().to_string(),
        totals: Totals::of(cfg),
        blocks: cfg.blocks.len(),
        instructions: cfg.insts.len(),
        procedures: ids.map(|id| proc_json(program, id)).collect(),
    };
    write(&json, out)
}

/// Writes some procedures with their blocks, as an array.
pub fn procs(
    program: &Program,
    structure: &Structure,
    procs: &[ProcId],
    out: &mut dyn Write,
) -> Result<()> {
    let mut listing = Listing::default();
    let all: Vec<_> = procs
        .iter()
        .map(|id| ProcJson {
            frame: structure.frame(program, *id),
            loops: Some(loops(&structure.graph(program, *id))),
            blocks: Some(blocks_json(program, *id, &mut listing)),
            ..proc_json(program, *id)
        })
        .collect();
    write(&all, out)
}

fn write(json: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, json)?;
    writeln!(out)
}

fn proc_json<'a>(program: &Program<'a>, id: ProcId) -> ProcJson<'a> {
    let proc = program.cfg.proc(id);
    let (status, reason) = status(&proc.status);
    ProcJson {
        name: proc_name(proc),
        symbol: proc.name.as_deref(),
        address: hex(proc.start),
        size: proc.end - proc.start,
        kind: match proc.kind {
            ProcKind::Normal => "procedure",
            ProcKind::Plt => "plt",
            ProcKind::Fragment(_) => "fragment",
        },
        status,
        reason,
        block_count: proc.block_count,
        instruction_count: inst_count(program.cfg, id),
        frame: None,
        loops: None,
        blocks: None,
    }
}

fn blocks_json<'a>(program: &Program<'a>, id: ProcId, listing: &mut Listing) -> Vec<BlockJson<'a>> {
    let cfg = program.cfg;
    let inst = |id, listing: &mut Listing| {
        let decoded = cfg.decode(program.image, id);
        let line = program.lines.line_of(decoded.ip());
        InstJson {
            address: hex(decoded.ip()),
            bytes: program
                .bytes(&decoded)
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect(),
            text: listing.inst(&decoded).to_string(),
            file: line.map(|l| l.0),
            line: line.map(|l| l.1),
        }
    };
    let successor = |succ: &Succ| {
        let (kind, block, address) = match *succ {
            Succ::Fall(to) => ("fall", Some(to), Some(cfg.block_pc(to))),
            Succ::Branch(to) => ("branch", Some(to), Some(cfg.block_pc(to))),
            Succ::Tail(address) => ("leave", None, Some(address.get())),
            Succ::Unknown => ("unknown", None, None),
        };
        SuccJson {
            kind,
            block: block.map(|b| b.0),
            address: address.map(hex),
        }
    };
    cfg.proc(id)
        .blocks()
        .map(|block| BlockJson {
            id: block.0,
            address: hex(cfg.block_pc(block)),
            marks: block_marks(cfg, block),
            successors: cfg.succs(block).iter().map(successor).collect(),
            instructions: cfg.block(block).insts().map(|i| inst(i, listing)).collect(),
        })
        .collect()
}
