//! Finds kernels that are marked in a program and records what they cost.
#![deny(missing_docs)]

pub mod find;
pub mod list;

use atom_tool::{Args, Program, Result};

use find::view::View;
use find::{Kind, Pattern};

/// The instrument routine of the tool `kernel`.
pub fn instrument(program: &Program<'_>, args: &Args<'_>) -> Result {
    let options = args.options();
    let list = options.flag("--list");
    let mut patterns = Vec::new();
    for (name, kind) in [("--kernel", Kind::Kernel), ("--profile", Kind::Profiled)] {
        if let Some(text) = options.value(name)? {
            patterns.push((kind, Pattern::parse(text)?));
        }
    }
    options.finish()?;
    let view = View::new(program);
    let found = find::find(&view, &patterns, true)?;
    if list {
        print!("{}", list::text(&found));
    }
    Ok(())
}
