//! What is checked: the output with what it is compared with, and how much of it.

use super::walk::Routines;
use crate::cfg::Cfg;
use crate::ids::BlockId;
use crate::ids::InstId;
use crate::image::Image;
use crate::layout::{Area, Layout, Placed};
use crate::live::Live;
use crate::plan::Clobbers;

pub(super) const DOING: &str = "checking the output";

/// How much is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The code that a tool's calls add: registers, flags, stack and memory of the program are kept.
    Inserted,
    /// Also each moved instruction, each pad, and code that stays in place.
    All,
}

/// The output to check, and the facts that the checker trusts.
pub struct Subject<'a> {
    /// The original, the plan, and the addresses that the output claims to have.
    pub placed: &'a Placed<'a>,
    /// Liveness of the original.
    pub live: &'a Live<'a>,
    /// Registers and flags that a routine may change, by its address in the tool's file.
    pub clobbers: &'a (dyn Fn(u64) -> Clobbers + Sync),
    /// The output file's contents.
    pub output: &'a [u8],
    /// How much of it is compared.
    pub scope: Scope,
}

impl<'a> Subject<'a> {
    pub(super) fn image(&self) -> &'a Image {
        self.placed.object.image
    }

    pub(super) fn cfg(&self) -> &'a Cfg {
        &self.placed.object.cfg
    }

    /// The tool's routines as inserted code calls them.
    pub(super) fn routines(&self) -> Routines<'_> {
        let placement = &self.placed.placement;
        Routines {
            clobbers: self.clobbers,
            code: (placement.analysis, placement.rw),
            area: self.placed.area,
        }
    }

    /// Start and end of what is written in the area that the objects of a process share.
    pub(super) fn shared(&self) -> (u64, u64) {
        // What an added library shares with the process begins with the process's data.
        let of_area = |area: &Area| (area.rw.min(area.data), area.end);
        self.placed.area.map_or((0, 0), of_area)
    }
}

/// A subject, of whose procedures one version is looked at.
#[derive(Clone, Copy)]
pub(super) struct View<'s, 'a> {
    subject: &'s Subject<'a>,
    layout: &'a Layout,
}

impl<'a> std::ops::Deref for View<'_, 'a> {
    type Target = Subject<'a>;

    fn deref(&self) -> &Subject<'a> {
        self.subject
    }
}

impl<'s, 'a> View<'s, 'a> {
    /// The views of all versions.
    pub(super) fn all(subject: &'s Subject<'a>) -> impl Iterator<Item = Self> {
        let versions = subject.placed.versions();
        versions.map(move |layout| Self { subject, layout })
    }

    /// The addresses of this version.
    pub(super) fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The other version of the procedures, if there is one.
    pub(super) fn twin(&self) -> Option<&'a Layout> {
        let mut versions = self.placed.versions();
        versions.find(|layout| layout.version != self.layout.version)
    }

    /// True for the version to which most pads lead, and those after calls at home.
    pub(super) fn has_pads(&self) -> bool {
        self.layout.version == self.placed.front().version
    }

    /// True for the version to which a block's pad leads, if it has one.
    pub(super) fn has_pad(&self, block: BlockId) -> bool {
        self.layout.version == self.placed.front_at(block).version
    }

    /// The new place of an original address, and the instruction there.
    pub(super) fn place_of(&self, old: u64) -> (u64, Option<InstId>) {
        let (cfg, layout) = (self.cfg(), self.layout);
        let Some(inst) = cfg.inst_at(old) else {
            return (old, None);
        };
        let proc = cfg.block(cfg.block_of(inst)).proc;
        let moved = layout.entry(proc).map(|_| layout.label(proc, inst));
        (moved.unwrap_or(old), Some(inst))
    }
}

/// Numbers of checked items.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checked {
    /// Moved instructions compared.
    pub instructions: u64,
    /// Instructions of inserted code followed.
    pub inserted: u64,
    /// Jumps from original addresses followed.
    pub pads: u64,
}

impl std::ops::Add for Checked {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            inserted: self.inserted + other.inserted,
            pads: self.pads + other.pads,
        }
    }
}

impl std::iter::Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| a + b)
    }
}
