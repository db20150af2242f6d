//! Sections that can be entered while they are open.
//!
//! Their inner executions are not recorded, so the user is warned. Only calls of known procedures
//! are followed, as nearly every procedure could be called through a pointer.

use std::collections::HashSet;

use atom_tool::{Inst, Proc};

use super::Section;
use super::view::View;

/// For each section, whether a procedure that it calls can call the section's procedure again.
pub fn recursive(view: &View<'_>, sections: &[Section<'_>]) -> Vec<bool> {
    sections.iter().map(|s| is_recursive(view, s)).collect()
}

fn is_recursive(view: &View<'_>, section: &Section<'_>) -> bool {
    let points = section.border.enters.iter();
    let homes: Vec<Proc<'_>> = points
        .filter_map(|p| view.program.proc_at(p.address()))
        .collect();
    let is_home = |proc: Proc<'_>| homes.contains(&proc);
    // The code between two markers is not known, so the whole procedure is looked at.
    let inside = |inst: &Inst<'_>| {
        let regions = &section.regions;
        regions.is_empty() || regions.iter().any(|r| r.insts.contains(&inst.index()))
    };
    let mut seen = HashSet::new();
    let mut work: Vec<Proc<'_>> = Vec::new();
    for home in &homes {
        let insts = home.blocks().flat_map(|b| b.insts());
        work.extend(insts.filter(inside).filter_map(called));
    }
    while let Some(proc) = work.pop() {
        if is_home(proc) {
            return true;
        }
        if seen.insert(proc.index()) {
            let insts = proc.blocks().flat_map(|b| b.insts());
            work.extend(insts.filter_map(called));
        }
    }
    false
}

/// The procedure that an instruction calls, or jumps to at its start.
fn called(inst: Inst<'_>) -> Option<Proc<'_>> {
    inst.called_proc().or_else(|| {
        let target = inst.target()?;
        let callee = target.proc();
        (callee != inst.proc() && target.pc() == callee.pc()).then_some(callee)
    })
}
