//! The annotated procedures that a reader wants, from the files of all objects.

use std::collections::BTreeMap;
use std::path::Path;

use profile::Profile;

use super::code::{Annotated, Code};
use super::counts::{CodeCounts, Row};

/// Annotated procedures, and what could not be read.
#[derive(Default)]
pub struct Collected {
    /// The procedures in the order of the rows.
    pub procedures: Vec<Annotated>,
    /// One message for each object that cannot be shown, and why.
    pub problems: Vec<String>,
}

/// Annotates the procedures of some rows. Each object's file is read once.
pub fn annotate(profile: &Profile, counts: &CodeCounts, rows: &[Row]) -> Collected {
    let mut by_object: BTreeMap<usize, Vec<(usize, &Row)>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        by_object.entry(row.object).or_default().push((at, row));
    }
    let mut found: Vec<(usize, Annotated)> = Vec::new();
    let mut problems = Vec::new();
    for (index, rows) in by_object {
        let Some(object) = profile.objects.get(index) else {
            continue;
        };
        let build_id = object.build_id.as_deref();
        let path = match object.path.as_str() {
            "" => &profile.program.path,
            path => path,
        };
        let result = Code::with(index, Path::new(path), build_id, |code| {
            let mut last = None;
            let mut list = Vec::new();
            for (at, row) in rows {
                let id = code.procedure_at(row.address);
                // Two rows may be parts of one procedure.
                if let Some(id) = id.filter(|id| last != Some(*id)) {
                    last = Some(id);
                    list.push((at, code.annotate(id, counts)));
                }
            }
            list
        });
        match result {
            Ok(list) => found.extend(list),
            Err(error) => problems.push(error.to_string()),
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Collected {
        procedures: found.into_iter().map(|f| f.1).collect(),
        problems,
    }
}
