//! How much code there is, and how much of it can be instrumented.

use super::{Cfg, Proc, Status};

/// Sizes in bytes of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeSize {
    /// The procedures, and the executable segments of libraries that are not instrumented.
    pub all: u64,
    /// The procedures that a tool can instrument.
    pub understood: u64,
}

impl CodeSize {
    /// The procedures of an object.
    pub fn of(cfg: &Cfg) -> Self {
        let size =
            |procs: &mut dyn Iterator<Item = &Proc>| procs.map(|p| p.end - p.start).sum::<u64>();
        Self {
            all: size(&mut cfg.procs.iter()),
            understood: size(&mut cfg.procs.iter().filter(|p| !p.status.is_opaque())),
        }
    }

    /// With code that is not instrumented.
    pub fn and(self, unseen: u64) -> Self {
        Self {
            all: self.all + unseen,
            ..self
        }
    }
}

impl std::iter::Sum for CodeSize {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |a, b| Self {
            all: a.all + b.all,
            understood: a.understood + b.understood,
        })
    }
}

impl Status {
    /// True for a procedure that stays in place and is not instrumented.
    pub fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque(_))
    }
}
