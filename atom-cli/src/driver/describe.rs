//! A few words about the value of each step, and the line that sums up.

use std::path::Path;

use atom_core::cfg::{CodeSize, Object};
use atom_core::image::Image;
use atom_core::pipeline::{Found, Rewritten};

use crate::message::{count, number};
use crate::report::{Calls, Totals};
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
    format!(
        "{} ({}), {}, {}, {}",
        count(sum(objects, |o| o.cfg.procs.len()), "procedure"),
        totals(objects).text(),
        count(sum(objects, |o| o.cfg.blocks.len()), "block"),
        count(sum(objects, |o| o.cfg.insts.len()), "instruction"),
        count(sum(objects, |o| o.cfg.jump_tables.len()), "jump table"),
    )
}

fn totals(objects: &[Object<'_>]) -> Totals {
    objects.iter().map(|o| Totals::of(&o.cfg)).sum()
}

/// A size in bytes.
fn bytes(size: u64) -> String {
    format!("{} bytes", number(size))
}

/// What is left out of a program that is instrumented alone, in one line; `None` if it is nothing. `unseen` is the size
/// in bytes of its libraries' code.
pub fn left_out(made: &Rewritten<'_>, unseen: u64) -> Option<String> {
    let [object] = made.objects else {
        return None;
    };
    let libraries = object.image.needed();
    let mut parts = Vec::new();
    if !libraries.is_empty() {
        let names = libraries.join(", ");
        let code = CodeSize::of(&object.cfg).and(unseen);
        let unseen = (code.all - code.understood) as f64 * 100.0 / code.all.max(1) as f64;
        parts.push(format!(
            "{names} and what they load, {unseen:.0} % of the process's code (--libs includes them)"
        ));
    }
    let opaque = totals(made.objects).opaque;
    if opaque != 0 {
        let count = count(opaque, "opaque procedure");
        parts.push(format!("{count} (atom show lists them)"));
    }
    (!parts.is_empty()).then(|| format!("not instrumented: {}", parts.join("; ")))
}

/// The one line that says what happened.
pub fn summary(request: &Request, made: &Rewritten<'_>, steps: &Steps) -> String {
    let output = request.output.display();
    if let Some(area) = made.area {
        let tool = request.tool.as_deref().and_then(Path::file_stem);
        let tool = tool.unwrap_or_default().to_string_lossy();
        let size = area.len() + made.outputs.iter().map(|o| o.len()).sum::<u64>();
        return format!(
            "{} with {} -> {output} and {output}.libs: {}, {} bytes",
            request.app.display(),
            tool.trim_start_matches("lib"),
            count(made.outputs.len(), "object"),
            number(size),
        );
    }
    let calls = Calls::of(made);
    let left_out = match made.unselected {
        0 => String::new(),
        n => format!(" ({} not selected)", number(n as u64)),
    };
    let in_line = match calls.inlined {
        0 => String::new(),
        n => format!(" ({} in line)", number(n)),
    };
    let cfg = &made.objects[0].cfg;
    format!(
        "{}: {} ({}), {}, {}{in_line}{left_out} -> {output} in {:.2} s",
        Path::new(request.app.file_name().unwrap_or(request.app.as_os_str())).display(),
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(calls.added as usize, "call"),
        steps.elapsed().as_secs_f64(),
    )
}
