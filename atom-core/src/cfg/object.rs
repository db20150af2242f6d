//! The input object: all facts about it that do not depend on a tool.

use crate::image::Image;
use crate::unwind::UnwindTable;

use super::Cfg;

/// An input object: its file, its exception tables, its code. Everything of it is frozen;
/// the numbers of procedures, blocks and instructions that later stages use are those of `cfg`.
pub struct Object<'a> {
    /// The file.
    pub image: &'a Image,
    /// The exception tables.
    pub unwind: UnwindTable<'a>,
    /// Procedures, blocks and instructions.
    pub cfg: Cfg,
}
