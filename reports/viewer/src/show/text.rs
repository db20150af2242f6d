//! `atom show` as text.

use std::io::{Result, Write};

use atom_core::ProcId;
use atom_core::cfg::{ProcKind, Succ};
use atom_core::x86::direct_target;
use iced_x86::{Formatter, Instruction, NasmFormatter};

use super::structure::{Structure, loop_mark};
use super::{Program, block_marks, inst_count, proc_name};
use crate::status::{Totals, status};
use output::message::{count, number};

/// Writes the table of procedures and a summary.
pub fn program(program: &Program, out: &mut dyn Write) -> Result<()> {
    let cfg = program.cfg;
    writeln!(
        out,
        "{:<12} {:>8} {:>7} {:>8}  {:<7}  NAME",
        "ADDRESS", "SIZE", "BLOCKS", "INSTS", "STATUS"
    )?;
    for (i, proc) in cfg.procs.iter().enumerate() {
        let (status, reason) = status(&proc.status);
        let insts = inst_count(cfg, ProcId::from_index(i));
        write!(
            out,
            "{:<12} {:>8} {:>7} {:>8}  {:<7}  {}",
            format!("{:#x}", proc.start),
            proc.end - proc.start,
            proc.block_count,
            insts,
            status,
            proc_name(proc)
        )?;
        match reason {
            Some(reason) => writeln!(out, "  ({reason})")?,
            None => writeln!(out)?,
        }
    }
    let totals = Totals::of(cfg);
    writeln!(
        out,
        "{}: {} full, {} partial, {} opaque; {}, {}",
        count(cfg.procs.len(), "procedure"),
        number(totals.full as u64),
        number(totals.partial as u64),
        number(totals.opaque as u64),
        count(cfg.blocks.len(), "block"),
        count(cfg.insts.len(), "instruction"),
    )
}

/// Writes blocks and instructions of some procedures.
pub fn procs(
    program: &Program,
    structure: &Structure,
    procs: &[ProcId],
    out: &mut dyn Write,
) -> Result<()> {
    let mut listing = Listing::default();
    for (i, id) in procs.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        listing.proc(program, structure, *id, out)?;
    }
    Ok(())
}

/// Formats instructions and keeps its buffers for the next one.
pub struct Listing {
    formatter: NasmFormatter,
    text: String,
}

impl Default for Listing {
    /// A listing in NASM's syntax with C's hexadecimal numbers.
    fn default() -> Self {
        let mut formatter = NasmFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(true);
        options.set_space_after_operand_separator(true);
        options.set_branch_leading_zeros(false);
        options.set_rip_relative_addresses(false);
        options.set_show_branch_size(false);
        Self {
            formatter,
            text: String::new(),
        }
    }
}

impl Listing {
    /// The text of an instruction.
    pub fn inst(&mut self, instruction: &Instruction) -> &str {
        self.text.clear();
        self.formatter.format(instruction, &mut self.text);
        &self.text
    }

    fn proc(
        &mut self,
        program: &Program,
        structure: &Structure,
        id: ProcId,
        out: &mut dyn Write,
    ) -> Result<()> {
        let (cfg, image) = (program.cfg, program.image);
        let proc = cfg.proc(id);
        let (status, reason) = status(&proc.status);
        writeln!(
            out,
            "{}: {:#x} to {:#x}, {}, {}, {}",
            proc_name(proc),
            proc.start,
            proc.end,
            count((proc.end - proc.start) as usize, "byte"),
            count(proc.block_count as usize, "block"),
            count(inst_count(cfg, id), "instruction"),
        )?;
        match reason {
            Some(reason) => writeln!(out, "  {status}: {reason}")?,
            None => writeln!(out, "  {status}")?,
        }
        match proc.kind {
            ProcKind::Normal => {}
            ProcKind::Plt => writeln!(out, "  an entry of the procedure linkage table")?,
            ProcKind::Fragment(Some(of)) => {
                writeln!(out, "  a part of {}", proc_name(cfg.proc(of)))?;
            }
            ProcKind::Fragment(None) => writeln!(out, "  a part of another procedure")?,
        }
        if let Some(frame) = structure.frame(program, id) {
            writeln!(out, "  {}", frame.text())?;
        }
        let graph = structure.graph(program, id);
        let mut last_line = None;
        for block in proc.blocks() {
            write!(out, "\n{block} at {:#x}", cfg.block_pc(block))?;
            let loop_mark = loop_mark(&graph, block);
            let mut marks = block_marks(cfg, block);
            marks.extend(loop_mark.as_deref());
            if !marks.is_empty() {
                write!(out, " ({})", marks.join(", "))?;
            }
            let succs: Vec<_> = cfg
                .succs(block)
                .iter()
                .map(|s| succ_text(program, s))
                .collect();
            if !succs.is_empty() {
                write!(out, " -> {}", succs.join(", "))?;
            }
            writeln!(out)?;
            for inst in cfg.block(block).insts() {
                let decoded = cfg.decode(image, inst);
                let line = program.lines.line_of(decoded.ip());
                if line.is_some() && line != last_line {
                    let (file, number) = line.unwrap_or_default();
                    writeln!(out, "  ; {file}:{number}")?;
                    last_line = line;
                }
                self.line(program, &decoded, out)?;
            }
        }
        Ok(())
    }

    fn line(
        &mut self,
        program: &Program,
        decoded: &Instruction,
        out: &mut dyn Write,
    ) -> Result<()> {
        let bytes: Vec<_> = program
            .bytes(decoded)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        write!(
            out,
            "  {:>8x}  {:<31} {}",
            decoded.ip(),
            bytes.join(" "),
            self.inst(decoded)
        )?;
        let target = direct_target(decoded).or_else(|| {
            decoded
                .is_ip_rel_memory_operand()
                .then(|| decoded.ip_rel_memory_address())
        });
        match target.and_then(|address| program.place(address)) {
            Some(place) => writeln!(out, "  ; {place}"),
            None => writeln!(out),
        }
    }
}

fn succ_text(program: &Program, succ: &Succ) -> String {
    match succ {
        Succ::Fall(to) => format!("{to} (falls)"),
        Succ::Branch(to) => to.to_string(),
        Succ::Tail(address) => match program.place(address.get()) {
            Some(name) => format!("{name} (leaves)"),
            None => format!("{:#x} (leaves)", address.get()),
        },
        Succ::Unknown => "unknown".to_string(),
    }
}
