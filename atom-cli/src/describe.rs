//! A few words about the value of each step.

use atom_core::cfg::Object;
use atom_core::image::Image;
use atom_core::pipeline::Found;
use viewer::status::Totals;

use crate::message::{count, number};

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

/// The value that a stage has made.
pub fn found(found: &Found<'_>) -> String {
    match found {
        Found::Unwind(tables) => count(sum(tables, |t| t.fdes.len()), "frame description"),
        Found::Load(tool) => tool.path().display().to_string(),
        Found::Cfg(objects) => code(objects),
        Found::Tool(calls) => count(calls.calls.len(), "call"),
        Found::Analysis(analysis) => {
            let size = number(analysis.text.len() as u64);
            format!("{size} bytes of code and tables")
        }
        Found::Live(lives) => count(lives.len(), "object"),
        Found::Plan(plans) => format!(
            "{}, {}, {} counted by flow",
            count(sum(plans, |p| p.insertions.len()), "insertion"),
            count(sum(plans, |p| p.shared.len()), "shared piece"),
            number(plans.iter().map(|p| p.calls_by_flow).sum()),
        ),
        Found::Layout(placed) => format!(
            "{} bytes of new text, {}",
            number(placed.iter().map(|p| p.layout.end - p.layout.start).sum()),
            count(sum(placed, |p| p.layout.moved.count()), "moved procedure"),
        ),
        Found::Rewrite(codes) => format!(
            "{}, {}",
            count(sum(codes, |c| c.old.patches.len()), "landing pad"),
            count(sum(codes, |c| c.old.branches.len()), "patched call"),
        ),
        Found::Debug(sections) => {
            let all = sections.iter().flatten();
            bytes(all.map(|section| section.bytes.len() as u64).sum())
        }
        Found::Emit(outputs) => bytes(outputs.iter().map(|output| output.len()).sum()),
        Found::Check(done) => format!(
            "{} and {} inserted ones are right",
            count(done.instructions as usize, "instruction"),
            number(done.inserted)
        ),
    }
}

fn sum<T>(each: &[T], of: impl Fn(&T) -> usize) -> usize {
    each.iter().map(of).sum()
}

/// Numbers of procedures, blocks, instructions and jump tables.
fn code(objects: &[Object<'_>]) -> String {
    let procs: Totals = objects.iter().map(|o| Totals::of(&o.cfg)).sum();
    format!(
        "{} ({}), {}, {}, {}",
        count(sum(objects, |o| o.cfg.procs.len()), "procedure"),
        procs.text(),
        count(sum(objects, |o| o.cfg.blocks.len()), "block"),
        count(sum(objects, |o| o.cfg.insts.len()), "instruction"),
        count(sum(objects, |o| o.cfg.jump_tables.len()), "jump table"),
    )
}

/// A size in bytes.
fn bytes(size: u64) -> String {
    format!("{} bytes", number(size))
}
