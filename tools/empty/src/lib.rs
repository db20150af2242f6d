//! Adds no calls. A program instrumented with it shows what rewriting alone does and costs, so a
//! change of behaviour can be told from an effect of a tool. `docs/tools/empty.md` has examples.

use atom_tool::prelude::*;

fn instrument(_program: &Program, args: &Args) -> Result {
    args.options().finish()
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
