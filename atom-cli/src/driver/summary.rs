//! The lines that sum up what was done.

use std::path::Path;

use atom_core::cfg::CodeSize;
use atom_core::pipeline::Rewritten;
use viewer::status::Totals;

use crate::message::{count, number};
use crate::report::Calls;
use crate::request::Request;
use crate::steps::Steps;

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
    let opaque = Totals::of(&object.cfg).opaque;
    if opaque != 0 {
        let count = count(opaque, "opaque procedure");
        parts.push(format!("{count} (atom show lists them)"));
    }
    (!parts.is_empty()).then(|| format!("not instrumented: {}", parts.join("; ")))
}

/// What the tool changes, in one line; `None` if it changes nothing.
pub fn changes(made: &Rewritten<'_>) -> Option<String> {
    let names = made.replaced();
    (!names.is_empty()).then(|| format!("the tool changes the program: it replaces {names}"))
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
