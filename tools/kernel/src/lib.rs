//! What marked kernels cost, each execution by its context.
//!
//! All of it is in `atom-kernel`, which other tools build on too.
//! `docs/tools/kernel.md` describes options and output.

atom_tool::tool!(atom_kernel::instrument);
