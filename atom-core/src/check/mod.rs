//! An independent look at the finished program.
//!
//! Reads the output's bytes and compares every moved block with its original: each instruction must
//! be there with the same operands, the same memory and the same targets, and inserted code must
//! leave registers, flags, stack and memory as the program expects them. At each instruction,
//! inserted ones included, the frame description must lead to the caller to which the original's
//! leads. The code that planned and wrote the output is not used. Its addresses are checked, not
//! trusted: a wrong address leads to instructions that do not match.
//!
//! The checker trusts the control flow graph, liveness (a dead register may be changed) and the
//! summaries of what analysis routines may change. Each of these has tests of its own.

mod frames;
mod home;
mod memory;
mod moved;
mod old_text;
mod pads;
mod procedure;
mod references;
mod same;
mod shared;
mod state;
mod step;
mod subject;
mod tables;
mod walk;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::ids::ProcId;

use frames::Tables;
use memory::Memory;
use procedure::{Checker, Storage};
use step::WritableRanges;
use subject::{DOING, View};
use walk::Walker;

pub use subject::{Checked, Scope, Subject};

/// Checks one object. The error tells the first difference.
pub fn check(subject: &Subject<'_>) -> Result<Checked> {
    let layout = &subject.placed.layout;
    let memory = Memory::new(subject.output, layout.region.shift)?;
    let walker = Walker {
        memory: &memory,
        writable: WritableRanges {
            own: (layout.start, subject.placed.placement.end),
            shared: subject.shared(),
            no_red_zone: false,
            is_foreign: false,
        },
        text: (layout.start, layout.end),
        twin: None,
        may_return: false,
        routines: subject.routines(),
    };
    let tables = Tables::of(subject.placed, &memory).transpose();
    let tables = tables.map_err(|complaint| Error::new(DOING, complaint))?;
    let storage = || Storage::new(tables.as_ref());
    if subject.scope == Scope::All {
        let references = references::collect(subject.image(), subject.cfg());
        old_text::check(subject, &memory, &references.named)?;
        jump_tables(subject, &references.all)?;
    }
    let of_version = |view| {
        (0..subject.cfg().procs.len())
            .into_par_iter()
            .map(ProcId::from_index)
            .map_init(storage, |storage, id| {
                let mut checker = Checker::new(view, &walker, id, storage);
                checker.proc().map(|()| checker.checked)
            })
            .try_reduce(Checked::default, |a, b| Ok(a + b))
    };
    View::all(subject).map(of_version).sum()
}

/// Judges the jump tables of procedures that move.
fn jump_tables(subject: &Subject<'_>, references: &[u64]) -> Result<()> {
    let (image, cfg) = (subject.image(), subject.cfg());
    let places = tables::places(cfg);
    cfg.jump_tables.par_iter().try_for_each(|table| {
        let proc = cfg.block(cfg.block_of(table.jump)).proc;
        tables::judge(image, cfg, table, (&places, references)).map_err(|complaint| {
            Error::new(DOING, complaint)
                .file(&image.path)
                .address(cfg.inst_pc(table.jump))
                .symbol(cfg.proc(proc).display_name())
                .advice("this is a defect of atom; please report it with the program. A way around it: --skip with this procedure")
        })
    })
}
