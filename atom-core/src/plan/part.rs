//! Parts of a plan. Each thread plans some procedures for itself, with numbers that count from 0. The
//! parts are joined to one plan in the order of the procedures.

use super::switch::Test;
use super::wrapper::Wrappers;
use super::{Fixup, Insertion, Plan, Position, Snippet, Target, Version};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId};
use crate::live::Foreign;
use crate::plan::code::Asm;
use crate::tool::Calls;

impl Plan {
    /// What the calls say of all plans.
    pub(super) fn first(calls: &Calls) -> Self {
        Self {
            maps_returns: calls.maps_returns,
            ..Self::default()
        }
    }

    /// An empty plan with the facts that are known before the calls are planned.
    pub(super) fn emptied(&self) -> Self {
        Self {
            calls_added: self.calls_added,
            maps_returns: self.maps_returns,
            calls_by_flow: self.calls_by_flow,
            totals: self.totals,
            control: self.control,
            changes: self.changes.clone(),
            light: self.light.is_some().then(Vec::new),
            ..Self::default()
        }
    }

    /// Adds a piece of code; returns its place in the plan.
    pub(super) fn add_code(&mut self, asm: Asm) -> Snippet {
        let code = self.code.len() as u32;
        let fixups = self.fixups.len() as u32;
        self.code.extend_from_slice(&asm.code);
        self.fixups.extend_from_slice(&asm.fixups);
        self.add_notes(&asm, code);
        Snippet {
            code: code..self.code.len() as u32,
            fixups: fixups..self.fixups.len() as u32,
            cold_part: 0,
            cold_frame_changes: 0,
        }
    }

    /// Adds the changes of frame and accesses of code that has been appended at the offset `code`.
    fn add_notes(&mut self, asm: &Asm, code: u32) {
        self.frame_changes
            .extend(asm.frame_changes.iter().map(|s| s.moved(code)));
        self.accesses
            .extend(asm.accesses.iter().map(|a| a.moved(code)));
    }

    pub(super) fn add_shared(&mut self, asm: Asm) -> u32 {
        let snippet = self.add_code(asm);
        self.shared.push(snippet);
        self.shared.len() as u32 - 1
    }

    /// Adds a part, whose numbers all count from 0.
    pub(super) fn append(&mut self, part: Part, wrappers: &mut Wrappers) -> Result<()> {
        let code = self.code.len();
        let fixups = self.fixups.len() as u32;
        let snippets = self.snippets.len() as u32;
        if code + part.asm.code.len() > i32::MAX as usize {
            return Err(
                Error::new("planning calls", "the inserted code exceeds 2 GB")
                    .advice("instrument fewer points"),
            );
        }
        self.calls_inlined += part.inlined;
        let code = code as u32;
        let numbers: Vec<u32> = part
            .wrappers
            .list
            .iter()
            .map(|w| wrappers.index(*w))
            .collect();
        self.code.extend_from_slice(&part.asm.code);
        self.add_notes(&part.asm, code);
        self.fixups
            .extend(part.asm.fixups.iter().map(|f| match f.target {
                Target::Shared(i) => Fixup {
                    target: Target::Shared(numbers[i as usize]),
                    ..*f
                },
                _ => *f,
            }));
        self.snippets.extend(part.snippets.iter().map(|s| Snippet {
            code: s.code.start + code..s.code.end + code,
            fixups: s.fixups.start + fixups..s.fixups.end + fixups,
            cold_part: s.cold_part,
            cold_frame_changes: s.cold_frame_changes,
        }));
        let moved = |i: &Insertion| Insertion {
            snippet: i.snippet + snippets,
            ..*i
        };
        self.full_fronts.extend(&part.full_fronts);
        self.insertions.extend(part.insertions.iter().map(moved));
        if let Some(light) = &mut self.light {
            light.extend(part.light.iter().map(moved));
        }
        Ok(())
    }
}

/// The plan of some procedures.
#[derive(Default)]
pub(super) struct Part {
    /// Code of all snippets; fixups count from each snippet's start once it is closed.
    pub(super) asm: Asm,
    snippets: Vec<Snippet>,
    insertions: Vec<Insertion>,
    /// Insertions of the light version.
    light: Vec<Insertion>,
    /// See [`Plan::full_fronts`].
    pub(super) full_fronts: Vec<BlockId>,
    /// The version that gets the next insertions.
    pub(super) version: Version,
    /// The tests of the procedure that is being planned, in the order of their places.
    pub(super) tests: Vec<Test>,
    /// Number of them that the version has.
    tested: usize,
    pub(super) wrappers: Wrappers,
    /// Number of calls whose routine is in line.
    pub(super) inlined: u64,
    /// Where rsp may lead to data in the procedure that is being planned.
    pub(super) foreign: Foreign,
}

impl Part {
    /// True if rsp may lead to data at a position of an instruction of the procedure.
    pub(super) fn is_foreign(&self, inst: InstId, position: Position) -> bool {
        match position {
            Position::Entry | Position::Before => self.foreign.before(inst),
            Position::After | Position::Taken => self.foreign.after(inst),
        }
    }
}

impl Part {
    /// The insertions of a version of the next procedure follow, first those of the full one.
    pub(super) fn begin(&mut self, version: Version) {
        self.version = version;
        self.tested = 0;
        if version == Version::Light {
            self.tests.retain(|test| test.is_in_light);
        }
    }

    /// True if there is a test at one of these instructions, which the version does not have yet.
    pub(super) fn has_test_in(&self, first: InstId, last: InstId) -> bool {
        let next = self.tests.get(self.tested);
        next.is_some_and(|test| first <= test.inst && test.inst <= last)
    }

    /// Takes the next test if it is at this place.
    pub(super) fn next_test(&mut self, inst: InstId, position: Position) -> Option<Test> {
        let next = self.tests.get(self.tested).copied();
        let here = next.filter(|test| (test.inst, test.position) == (inst, position));
        self.tested += usize::from(here.is_some());
        here
    }

    /// Reserves memory for this number of snippets, most of which have one instruction.
    pub(super) fn reserve(&mut self, snippets: usize) {
        self.asm.code.reserve(8 * snippets);
        self.asm.fixups.reserve(snippets);
        self.snippets.reserve(snippets);
        self.insertions.reserve(snippets);
    }

    /// Makes a snippet of the code emitted since the marks, at a point.
    pub(super) fn close(&mut self, code: usize, fixups: usize, inst: InstId, position: Position) {
        debug_assert_eq!(self.asm.depth(), 0, "the stack is where it was");
        for fixup in &mut self.asm.fixups[fixups..] {
            fixup.at -= code as u32;
        }
        let insertions = match self.version {
            Version::Full => &mut self.insertions,
            Version::Light => &mut self.light,
        };
        insertions.push(Insertion {
            inst,
            position,
            snippet: self.snippets.len() as u32,
        });
        self.snippets.push(Snippet {
            code: code as u32..self.asm.code.len() as u32,
            fixups: fixups as u32..self.asm.fixups.len() as u32,
            cold_part: 0,
            cold_frame_changes: 0,
        });
    }

    /// Makes a snippet with a cold part of the code emitted since the marks, at a point.
    pub(super) fn close_with_cold_part(
        &mut self,
        code: usize,
        fixups: usize,
        inst: InstId,
        position: Position,
        cold_part: Asm,
    ) {
        let main = self.asm.code.len() as u32;
        self.asm.code.extend_from_slice(&cold_part.code);
        let moved = |f: &Fixup| Fixup {
            at: f.at + main,
            ..*f
        };
        self.asm.fixups.extend(cold_part.fixups.iter().map(moved));
        self.asm.add_notes(&cold_part, main);
        self.close(code, fixups, inst, position);
        if let Some(snippet) = self.snippets.last_mut() {
            snippet.cold_part = cold_part.code.len() as u32;
            snippet.cold_frame_changes = cold_part.frame_changes.len() as u32;
        }
    }
}
