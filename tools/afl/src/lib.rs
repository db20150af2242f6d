//! Coverage for fuzzers that speak AFL's protocol: AFL++, LibAFL and others.
//!
//! The code is in `atom-cover`, which *cover* uses, too. `docs/tools/afl.md` describes options and use.

use atom_cover::afl::Settings;
use atom_tool::prelude::*;

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let settings = Settings::from_options(&options, "--")?;
    options.finish()?;
    atom_cover::afl::instrument(program, &settings)
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
