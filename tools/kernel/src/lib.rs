//! The cost of marked kernels, for each execution by its context.
//!
//! The code is in `atom-kernel`, which other tools can build on, too.
//! `docs/tools/kernel.md` describes options and output.

atom_tool::tool!(atom_kernel::instrument, help = include_str!("help.txt"));
