//! The code of an object, with the counts of a profile beside it.
//!
//! The object's file is read again, so it must be the file that ran: its build-id is compared with the profile's.

use std::path::Path;

use atom_core::cfg::Cfg;
use atom_core::cfg::graph::{FlowFacts, FlowGraph};
use atom_core::image::Image;
use atom_core::image::debug::DebugLines;
use atom_core::tool::demangle;
use atom_core::x86::direct_target;
use atom_core::{BlockId, Error, ProcId, Result, pipeline};
use iced_x86::{FlowControl, Instruction};

use super::counts::{Branch, CodeCounts, Target};
use super::loops::{self, Loop};
use crate::show::Listing;

const DOING: &str = "annotating";

/// An instruction with its counts.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Address in the object's file.
    pub address: u64,
    /// The bytes in hexadecimal.
    pub bytes: String,
    /// The disassembled instruction.
    pub text: String,
    /// What the instruction refers to: `name+0x12`.
    pub comment: Option<String>,
    /// One value for each measure.
    pub values: Vec<u64>,
    /// Directions, if it is a conditional branch that the profile counts.
    pub branch: Option<Branch>,
    /// Targets with their counts, if it is an indirect branch that the profile counts.
    pub targets: Vec<Target>,
    /// Target of a direct jump or call.
    pub target: Option<u64>,
    /// True for a call.
    pub is_call: bool,
    /// Index in [`Annotated::files`] and line.
    pub place: Option<(usize, u32)>,
    /// True for the first instruction of a basic block.
    pub starts_block: bool,
    /// Index of the innermost loop in [`Annotated::loops`].
    pub innermost: Option<u32>,
}

/// A procedure with its counts.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// Index of the object in the profile.
    pub object: usize,
    /// Demangled name.
    pub name: String,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Why the procedure has no instructions, if it has none.
    pub reason: Option<String>,
    /// The instructions in address order; parts of the procedure that are elsewhere come at their addresses.
    pub insts: Vec<Inst>,
    /// The natural loops, outer ones first.
    pub loops: Vec<Loop>,
    /// Paths of source files.
    pub files: Vec<String>,
}

impl Annotated {
    /// Sums of the instructions' values, one for each measure.
    pub fn sums(&self, measures: usize) -> Vec<u64> {
        let mut sums = vec![0u64; measures];
        for inst in &self.insts {
            for (sum, value) in sums.iter_mut().zip(&inst.values) {
                *sum = sum.saturating_add(*value);
            }
        }
        sums
    }
}

/// The code of one object.
pub struct Code<'i> {
    index: usize,
    image: &'i Image,
    cfg: &'i Cfg,
    lines: &'i DebugLines<'i>,
    facts: FlowFacts,
}

impl Code<'_> {
    /// Reads object number `index` of a profile and passes its code to `use_it`. `build_id` is the build-id in the profile.
    ///
    /// # Errors
    /// The file cannot be read, or is another one than at the time of the run.
    pub fn with<T>(
        index: usize,
        path: &Path,
        build_id: Option<&str>,
        use_it: impl FnOnce(&Code<'_>) -> T,
    ) -> Result<T> {
        let image = Image::read(path)?;
        let found = image.build_id().map(hexadecimal);
        if let (Some(wanted), Some(found)) = (build_id, &found)
            && wanted != found
        {
            let reason = "the file is another one than the one that ran: its build-id differs";
            return Err(Error::new(DOING, reason)
                .file(path)
                .advice("run the program once more, or put the old file back"));
        }
        let (object, _) = pipeline::understand(&image)?;
        let lines = object.unwind.lines(&image);
        let code = Code {
            index,
            image: &image,
            cfg: &object.cfg,
            lines: &lines,
            facts: FlowFacts::new(&image, &object.cfg, &object.unwind),
        };
        Ok(use_it(&code))
    }

    /// The procedure that contains an address.
    pub fn procedure_at(&self, address: u64) -> Option<ProcId> {
        Some(self.cfg.whole(self.cfg.proc_at(address)?))
    }

    /// A procedure with the counts of a profile.
    pub fn annotate(&self, id: ProcId, counts: &CodeCounts) -> Annotated {
        let proc = self.cfg.proc(id);
        let mut annotated = Annotated {
            object: self.index,
            name: demangle(&proc.display_name()),
            start: proc.start,
            end: proc.end,
            reason: crate::status::status(&proc.status).1.map(str::to_owned),
            insts: Vec::new(),
            loops: Vec::new(),
            files: Vec::new(),
        };
        let graph = FlowGraph::new(self.cfg, &self.facts, id);
        let mut blocks: Vec<BlockId> = graph.blocks().collect();
        blocks.sort_by_key(|block| self.cfg.block_pc(*block));
        let mut listing = Listing::default();
        for block in blocks {
            let innermost = graph.innermost_loop(block);
            for inst in self.cfg.block(block).insts() {
                let decoded = self.cfg.decode(self.image, inst);
                let starts_block = inst == self.cfg.block(block).first;
                let inst = Inst {
                    starts_block,
                    innermost,
                    ..self.inst(&decoded, counts, &mut listing, &mut annotated.files)
                };
                annotated.insts.push(inst);
            }
        }
        let last = |block: BlockId| self.cfg.inst_pc(self.cfg.block(block).last());
        let executions =
            |block: BlockId| counts.executions(self.index, self.cfg.block_pc(block), last(block));
        let branch = |block: BlockId| counts.branches.get(&(self.index, last(block))).copied();
        annotated.loops = loops::of(self.cfg, &graph, executions, branch);
        annotated
    }

    fn inst(
        &self,
        decoded: &Instruction,
        counts: &CodeCounts,
        listing: &mut Listing,
        files: &mut Vec<String>,
    ) -> Inst {
        let address = decoded.ip();
        let key = (self.index, address);
        let place = self.lines.line_of(address).map(|(file, line)| {
            let known = files.iter().position(|f| f == file);
            let file = known.unwrap_or_else(|| {
                files.push(file.to_owned());
                files.len() - 1
            });
            (file, line)
        });
        let target = direct_target(decoded);
        let data = decoded
            .is_ip_rel_memory_operand()
            .then(|| decoded.ip_rel_memory_address());
        let bytes = self.image.bytes_at(address, decoded.len());
        Inst {
            address,
            bytes: hexadecimal(bytes.unwrap_or_default()),
            text: listing.inst(decoded).to_owned(),
            comment: target.or(data).and_then(|address| self.name_at(address)),
            values: counts.at(self.index, address),
            branch: counts.branches.get(&key).copied(),
            targets: counts.targets.get(&key).cloned().unwrap_or_default(),
            target,
            is_call: matches!(
                decoded.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ),
            place,
            starts_block: false,
            innermost: None,
        }
    }

    /// The name of an address in a procedure or at a symbol: `name` or `name+0x12`.
    pub fn name_at(&self, address: u64) -> Option<String> {
        crate::show::place(self.image, self.cfg, address)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
