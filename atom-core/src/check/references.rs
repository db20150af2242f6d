//! Addresses to which the program's code and data refer, read without the discovery of code.

use rayon::prelude::*;

use crate::cfg::{Cfg, Proc};
use crate::ids::InstId;
use crate::image::Image;
use crate::x86::{Instruction, OpKind, Run};

/// Addresses to which operands and pointers lead, in order.
pub struct References {
    /// Those that operands in memory and relocations name.
    pub named: Vec<u64>,
    /// The same with numbers, which in a program at fixed addresses may be addresses or mean something else.
    pub all: Vec<u64>,
}

/// Reads the program's instructions and relocations.
pub fn collect(image: &Image, cfg: &Cfg) -> References {
    let known = (0..cfg.insts.len()).into_par_iter();
    let known = known
        .filter(|i| cfg.insts[*i].rip_relative || !image.kind.is_position_independent())
        .flat_map_iter(|i| of_instruction(image, &cfg.decode(image, InstId::from_index(i))));
    // Procedures that are not understood: all instructions, one after the other.
    let opaque = cfg.procs.par_iter().filter(|proc| !proc.is_movable());
    let opaque = opaque.flat_map_iter(|proc| in_line(image, proc));
    let relocated = image.relocs.par_iter().map(|r| match r.symbol {
        0 => r.addend as u64,
        symbol => {
            let symbol = image.dynamic_symbols.get(symbol as usize);
            symbol.map_or(0, |s| s.address.wrapping_add_signed(r.addend))
        }
    });
    let relocated = relocated.map(|address| (address, false));
    let found: Vec<(u64, bool)> = known.chain(opaque).chain(relocated).collect();
    let in_order = |with_numbers: bool| {
        let found = found
            .par_iter()
            .filter(|(_, is_number)| with_numbers || !is_number);
        let mut all: Vec<u64> = found.map(|(address, _)| *address).collect();
        all.par_sort_unstable();
        all.dedup();
        all
    };
    References {
        named: in_order(false),
        all: in_order(true),
    }
}

/// The first of the addresses from `start` on, if it is in front of `end`.
pub fn first_in(references: &[u64], start: u64, end: u64) -> Option<u64> {
    let at = references.partition_point(|r| *r < start);
    references.get(at).copied().filter(|r| *r < end)
}

fn in_line(image: &Image, proc: &Proc) -> Vec<(u64, bool)> {
    let size = (proc.end - proc.start) as usize;
    let bytes = image.bytes_at(proc.start, size).unwrap_or(&[]);
    let mut found = Vec::new();
    let mut instruction = Instruction::default();
    let mut at = 0;
    while at < bytes.len() {
        let mut run = Run::new(&bytes[at..], proc.start + at as u64);
        if run.next_into(&mut instruction) {
            found.extend(of_instruction(image, &instruction));
            at += instruction.len();
        } else {
            at += 1
        }
    }
    found
}

/// The addresses that an instruction names, without the targets of branches, and whether each is a number.
fn of_instruction(image: &Image, i: &Instruction) -> impl Iterator<Item = (u64, bool)> + use<> {
    let is_fixed = !image.kind.is_position_independent();
    let has_memory = i.op_kinds().any(|kind| kind == OpKind::Memory);
    let names = i.is_ip_rel_memory_operand() || is_fixed && i.memory_displ_size() >= 4;
    let memory = (has_memory && names).then(|| i.memory_displacement64());
    let is_number = |kind| {
        matches!(
            kind,
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
        )
    };
    let number = (0..i.op_count()).find(|op| is_fixed && is_number(i.op_kind(*op)));
    let memory = memory.map(|address| (address, false));
    let number = number.map(|op| (i.immediate(op), true));
    memory.into_iter().chain(number)
}
