//! A few words about the value of each step, and the line that sums up.

use std::path::Path;

use atom_core::cfg::Cfg;
use atom_core::check::Checked;
use atom_core::image::Image;
use atom_core::layout::Layout;
use atom_core::plan::Plan;
use atom_core::rewrite::OldText;

use crate::message::{count, number};
use crate::report::{Code, Totals};
use crate::request::Request;
use crate::steps::Steps;

/// Size, kind of linking, symbols.
pub fn image(image: &Image) -> String {
    let kind = if image.kind.is_position_independent() {
        "position independent"
    } else {
        "fixed address"
    };
    let linking = if image.kind.is_static() {
        "static"
    } else {
        "dynamic"
    };
    let symbols = if image.symbols.is_empty() {
        "stripped"
    } else {
        "with symbols"
    };
    let size = number(image.file.len() as u64);
    format!("{size} bytes, {kind}, {linking}, {symbols}")
}

/// Numbers of procedures, blocks, instructions and jump tables.
pub fn cfg(cfg: &Cfg) -> String {
    format!(
        "{} ({}), {}, {}, {}",
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(cfg.insts.len(), "instruction"),
        count(cfg.jump_tables.len(), "jump table"),
    )
}

/// Size of the new text in bytes, and number of procedures that move.
pub fn layout(layout: &Layout) -> String {
    format!(
        "{} bytes of new text, {}",
        number(layout.end - layout.start),
        count(layout.moved.count(), "moved procedure"),
    )
}

/// Number of pads, and of branches of procedures that stay.
pub fn old_text(old: &OldText) -> String {
    let pads = count(old.patches.len(), "landing pad");
    format!("{pads}, {}", count(old.branches.len(), "patched call"))
}

/// A size in bytes.
pub fn bytes(size: u64) -> String {
    format!("{} bytes", number(size))
}

/// What is left out of a program that is instrumented alone, in one line; `None` if it is nothing.
pub fn left_out(image: &Image, cfg: &Cfg, code: Code) -> Option<String> {
    let libraries = image.needed();
    let mut parts = Vec::new();
    if !libraries.is_empty() {
        let names = libraries.join(", ");
        let unseen = (code.all - code.understood) as f64 * 100.0 / code.all.max(1) as f64;
        parts.push(format!(
            "{names} and what they load, {unseen:.0} % of the process's code (--libs includes them)"
        ));
    }
    let opaque = Totals::of(cfg).opaque;
    if opaque != 0 {
        let count = count(opaque, "opaque procedure");
        parts.push(format!("{count} (atom show lists them)"));
    }
    (!parts.is_empty()).then(|| format!("not instrumented: {}", parts.join("; ")))
}

/// The one line that says what happened.
pub fn summary(
    request: &Request,
    cfg: &Cfg,
    plan: &Plan,
    unselected: usize,
    steps: &Steps,
) -> String {
    let left_out = match unselected {
        0 => String::new(),
        n => format!(" ({} not selected)", number(n as u64)),
    };
    let in_line = match plan.calls_inlined {
        0 => String::new(),
        n => format!(" ({} in line)", number(n)),
    };
    format!(
        "{}: {} ({}), {}, {}{in_line}{left_out} -> {} in {:.2} s",
        Path::new(request.app.file_name().unwrap_or(request.app.as_os_str())).display(),
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(plan.calls_added as usize, "call"),
        request.output.display(),
        steps.elapsed().as_secs_f64(),
    )
}

/// What the checker has compared.
pub fn checked(done: Checked) -> String {
    let compared = count(done.instructions as usize, "instruction");
    format!(
        "{compared} and {} inserted ones are right",
        number(done.inserted)
    )
}
