//! Finding imports that a routine can reach and that the runtime lacks.
//!
//! The search follows direct calls and jumps, calls and loads through slots that never change after
//! relocation, and functions whose address is taken (`lea`) on the way. It does not follow pointers in
//! data, such as the tables of trait objects: by these the formatting and I/O code of `std` is
//! reachable from nearly everything. Refusing a tool for code that never runs would be worse than the
//! runtime's orderly end if that code does run.

use std::collections::{HashMap, VecDeque};

use super::code::{Callee, Exit, Function};
use super::image::AnalysisImage;
use crate::{Error, Result};

impl AnalysisImage {
    /// Checks that neither `routines` nor the runtime's start and end can reach an import that the
    /// runtime lacks. The error names the import and the functions on the way to it.
    pub fn check_reachable(&self, routines: &[u64]) -> Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let fixed = self.header_functions();
        let mut from: HashMap<u64, Option<u64>> = HashMap::new();
        let mut work = VecDeque::new();
        for root in routines
            .iter()
            .copied()
            .chain(fixed)
            .chain(self.init_functions.iter().copied())
        {
            if from.insert(root, None).is_none() {
                work.push_back(root);
            }
        }
        while let Some(at) = work.pop_front() {
            for inst in Function::decode(self, at).insts.values() {
                let mut found = Vec::from_iter(Function::reference(self, &inst.raw));
                if let Exit::Call(c) | Exit::Tail(c) = &inst.exit {
                    found.push(c.clone());
                }
                for callee in found {
                    match callee {
                        Callee::Known(to) => {
                            from.entry(to).or_insert_with(|| {
                                work.push_back(to);
                                Some(at)
                            });
                        }
                        Callee::Missing(name) => {
                            return Err(self.unreachable_import(&name, at, &from));
                        }
                        Callee::Unknown => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn unreachable_import(&self, name: &str, at: u64, from: &HashMap<u64, Option<u64>>) -> Error {
        let mut path = vec![self.name_at(at)];
        let mut root = at;
        while let Some(Some(caller)) = from.get(&root) {
            root = *caller;
            path.push(self.name_at(root));
        }
        path.reverse();
        let reason = format!(
            "{} calls a C function that analysis code does not have here, by way of {}",
            self.name_at(root),
            path.join(" -> ")
        );
        Error::new("checking the analysis routines", reason).file(&self.file).address(root).symbol(name).advice(
            "do without it in analysis routines; what only the instrument routine uses is not restricted",
        )
    }
}
