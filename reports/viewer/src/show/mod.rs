//! `atom show`: what was found out about a program.
//!
//! Every procedure is listed with its status and the reason for it, so that the user sees which
//! code cannot be instrumented.

mod json;
mod structure;
mod text;

use std::path::PathBuf;

use atom_core::cfg::{Cfg, Proc};
use atom_core::image::Image;
use atom_core::image::debug::DebugLines;
use atom_core::tool::demangle;
use atom_core::{BlockId, Error, ProcId, Result, pipeline};
use clap::Args;

use structure::Structure;
pub use text::Listing;

/// Arguments of `atom show`.
#[derive(Args)]
pub struct Show {
    /// The program: a linked ELF x86-64 file
    pub app: PathBuf,
    /// Show the blocks and instructions of this procedure
    #[arg(long, value_name = "NAME|ADDRESS")]
    pub proc: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command on the program that its arguments name.
///
/// # Errors
/// The program is not understood, it has no such procedure, or standard output cannot be written.
pub fn run(args: &Show, image: &Image) -> Result<()> {
    let (object, _) = pipeline::understand(image)?;
    let lines = object.unwind.lines(image);
    let program = Program {
        image,
        cfg: &object.cfg,
        lines: &lines,
    };
    let Some(wanted) = &args.proc else {
        return output::print_with(|out| {
            if args.json {
                json::program(&program, out)
            } else {
                text::program(&program, out)
            }
        });
    };
    let procs = find_procs(&program, wanted)?;
    let structure = Structure::new(&program, &object.unwind);
    output::print_with(|out| {
        if args.json {
            json::procs(&program, &structure, &procs, out)
        } else {
            text::procs(&program, &structure, &procs, out)
        }
    })
}

/// The program that is shown.
struct Program<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    lines: &'a DebugLines<'a>,
}

impl Program<'_> {
    /// The name of an address inside a procedure or at a symbol: `name` or `name+0x12`.
    fn place(&self, address: u64) -> Option<String> {
        place(self.image, self.cfg, address)
    }

    /// The bytes of an instruction.
    fn bytes(&self, instruction: &iced_x86::Instruction) -> &[u8] {
        self.image
            .bytes_at(instruction.ip(), instruction.len())
            .unwrap_or_default()
    }
}

/// The name of an address inside a procedure or at a symbol: `name` or `name+0x12`.
pub fn place(image: &Image, cfg: &Cfg, address: u64) -> Option<String> {
    let Some(id) = cfg.proc_at(address) else {
        let symbols = image.symbols.iter().chain(&image.dynamic_symbols);
        return symbols
            .filter(|s| s.address == address && !s.is_undefined && !s.name.is_empty())
            .map(|s| demangle(&s.name))
            .next();
    };
    let proc = cfg.proc(id);
    let name = proc_name(proc);
    Some(match address - proc.start {
        0 => name,
        distance => format!("{name}+{distance:#x}"),
    })
}

fn proc_name(proc: &Proc) -> String {
    demangle(&proc.display_name())
}

/// Number of instructions of a procedure's blocks.
fn inst_count(cfg: &Cfg, proc: ProcId) -> usize {
    cfg.proc_insts(proc).len()
}

/// The procedures that the user names: by symbol, by the name as shown, or by
/// an address inside a procedure. Static functions may share a name; all of them are shown.
fn find_procs(program: &Program, wanted: &str) -> Result<Vec<ProcId>> {
    let cfg = program.cfg;
    let ids = || (0..cfg.procs.len()).map(ProcId::from_index);
    let named: Vec<_> = ids()
        .filter(|id| {
            let proc = cfg.proc(*id);
            proc.name.as_deref() == Some(wanted) || proc_name(proc) == wanted
        })
        .collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let digits = wanted
        .strip_prefix("0x")
        .or(wanted.strip_prefix("0X"))
        .unwrap_or(wanted);
    let fail = |reason: &str| {
        Error::new("looking for the procedure", reason)
            .file(&program.image.path)
            .symbol(wanted)
    };
    if let Ok(address) = u64::from_str_radix(digits, 16) {
        return match cfg.proc_at(address) {
            Some(id) => Ok(vec![id]),
            None => Err(fail("no procedure contains this address")
                .advice("`atom show` without --proc lists the procedures and their addresses")),
        };
    }
    let lower = wanted.to_lowercase();
    let similar: Vec<_> = ids()
        .map(|id| proc_name(cfg.proc(id)))
        .filter(|name| name.to_lowercase().contains(&lower))
        .take(5)
        .collect();
    let error = fail("the program has no procedure of this name");
    Err(match similar.as_slice() {
        [] => error.advice(
            "`atom show` without --proc lists the procedures; in a stripped program give an address",
        ),
        names => error.advice(format!("similar names: {}", names.join(", "))),
    })
}

/// Words for the ways in which control can enter a block from outside.
fn block_marks(cfg: &Cfg, id: BlockId) -> Vec<&'static str> {
    let block = cfg.block(id);
    let marks = [
        (block.is_entry, "entry"),
        (block.is_indirect_target, "indirect target"),
        (block.is_landing_pad, "landing pad"),
    ];
    marks.iter().filter(|m| m.0).map(|m| m.1).collect()
}
