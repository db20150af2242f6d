//! An object of the process that an instrument routine looks at.

use std::path::Path;

use super::crossings::Crossings;
use super::select::Selected;
use crate::cfg::Cfg;
use crate::image::{Image, LineInfo};

/// The program that an instrument routine looks at and adds calls to.
#[derive(Clone, Copy)]
pub struct Application<'a> {
    /// Path by which it is loaded.
    pub path: &'a Path,
    /// Its file.
    pub image: &'a Image,
    /// Its control flow.
    pub cfg: &'a Cfg,
    /// Source lines of its code.
    pub lines: &'a dyn LineInfo,
    /// What the user has chosen to instrument; `None`: everything. The routine may ask what is
    /// chosen; the caller drops calls on other things.
    pub selected: Option<&'a Selected>,
    /// Where control goes from one version of a procedure to the other; `None` if there is one version.
    pub crossings: Option<Crossings<'a>>,
    /// True if the object is loaded with the program, so that the imports of all objects may be bound to
    /// it. False if it is loaded later, or if not all objects that are loaded with the program are known.
    pub is_global: bool,
    /// Number of objects that were there when this one was instrumented. It is less than there are now if libraries have been
    /// added to the process since.
    pub known: usize,
}
