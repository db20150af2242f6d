//! Finding the sections of a program that are to be profiled.

pub mod labels;
pub mod marks;
mod patterns;
pub mod recursion;
pub mod region;
pub mod source;
pub mod view;

use atom_tool::Result;

pub use patterns::Pattern;
use region::{Border, Point, Region};
use view::View;

/// Start of the names of labels that mark kernels.
const KERNEL_LABEL: &str = "ato_kernel";
/// Start of the names of labels that mark profiled sections.
const PROFILE_LABEL: &str = "ato_profile";

/// Kinds of measured sections, which have callbacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum MeasuredKind {
    /// A kernel: no other kernel is entered in it.
    Kernel,
    /// A profiled section, which may contain others.
    Profiled,
}

impl MeasuredKind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Profiled => "profile",
        }
    }
}

/// How a section was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By a C label.
    Label,
    /// By a marker of `ato.h`.
    Marker,
    /// A procedure named by an option.
    Procedure,
    /// A source line named by an option.
    Line,
    /// Addresses named by an option.
    Addresses,
}

impl How {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Marker => "marker",
            Self::Procedure => "procedure",
            Self::Line => "line",
            Self::Addresses => "addresses",
        }
    }
}

/// A marked section.
#[derive(Clone)]
pub struct Section<'a> {
    /// Kernel or profiled.
    pub kind: MeasuredKind,
    /// How it was found.
    pub how: How,
    /// Name of the label, marker or procedure, or the words of the option.
    pub name: String,
    /// The function that contains it.
    pub function: String,
    /// Source file.
    pub file: Option<String>,
    /// First and last line.
    pub lines: Option<(u32, u32)>,
    /// Its code, one region for each copy; none where markers say where it begins and ends.
    pub regions: Vec<Region<'a>>,
    /// The points at which control enters and leaves it.
    pub border: Border<'a>,
    /// Addresses of code of its lines that lies outside of its regions. Executions there are not
    /// counted.
    pub outside: Vec<u64>,
}

impl Section<'_> {
    /// A warning if its counts may be too low.
    pub fn doubt(&self) -> Option<String> {
        let first = self.outside.first()?;
        Some(format!(
            "{} instructions of its body, the first at {first:#x}, lie apart from its loop, because \
             the compiler peeled or split it: executions there are not counted; {}",
            self.outside.len(),
            labels::USE_MARKER
        ))
    }
}

/// A section that was marked or asked for, and not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unplaced {
    /// Kernel or profiled.
    pub kind: MeasuredKind,
    /// Its name.
    pub name: String,
    /// Source file.
    pub file: Option<String>,
    /// Line.
    pub line: Option<u32>,
    /// The function that contains it.
    pub function: Option<String>,
    /// The reason, and what to do.
    pub reason: String,
}

/// The sections found in a program.
#[derive(Default)]
pub struct Found<'a> {
    /// Sections, ordered by how they were found and by place.
    pub sections: Vec<Section<'a>>,
    /// Points at which the scope ends that was begun last.
    pub scope_ends: Vec<Point<'a>>,
    /// Begins at which rdi has the index of the first execution.
    pub with_start: Vec<Point<'a>>,
    /// Sections that could not be found.
    pub unplaced: Vec<Unplaced>,
}

/// Finds all sections that are marked in the program or asked for by patterns.
pub fn find<'a>(
    view: &View<'a>,
    patterns: &[(MeasuredKind, Pattern)],
    labels: bool,
) -> Result<Found<'a>> {
    let mut found = Found::default();
    if labels {
        for (kind, prefix) in [
            (MeasuredKind::Kernel, KERNEL_LABEL),
            (MeasuredKind::Profiled, PROFILE_LABEL),
        ] {
            by_labels(view, kind, prefix, &mut found);
        }
        marks::find(&view.program, &mut found);
    }
    for (kind, pattern) in patterns {
        pattern.find(view, *kind, &mut found)?;
    }
    for section in &mut found.sections {
        for region in &section.regions {
            section.border.append(region.border());
        }
    }
    Ok(found)
}

fn by_labels<'a>(view: &View<'a>, kind: MeasuredKind, prefix: &str, found: &mut Found<'a>) {
    for label in view.program.labels(prefix) {
        match labels::place(view, &label) {
            Ok(placed) => found.sections.push(Section {
                kind,
                how: How::Label,
                name: label.name.to_owned(),
                function: label.function.unwrap_or_default().to_owned(),
                file: label.file.map(str::to_owned),
                lines: Some((placed.first, placed.last)),
                regions: placed.regions,
                outside: placed.outside,
                border: Border::default(),
            }),
            Err(reason) => found.unplaced.push(Unplaced {
                kind,
                name: label.name.to_owned(),
                file: label.file.map(str::to_owned),
                line: label.line,
                function: label.function.map(str::to_owned),
                reason,
            }),
        }
    }
}
