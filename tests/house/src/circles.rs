//! Circles in the uses of modules by one another.
//!
//! Modules side by side in a folder are compared, each with all that is in its own folder: two
//! files use one another only if one is the other's folder, which is one subject told in several files.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::Sources;

/// The circles between modules side by side, in a module (empty for the root) and in those below it: lines
/// with the modules of each circle, and one use for each arrow between them.
pub fn circles(sources: &Sources, module: &str) -> Vec<String> {
    let folders: BTreeSet<&[String]> = sources
        .files
        .iter()
        .filter_map(|f| f.module.split_last().map(|(_, folder)| folder))
        .filter(|folder| module.is_empty() || folder.first().is_some_and(|f| f == module))
        .collect();
    folders
        .into_iter()
        .flat_map(|folder| circles_in(sources, folder))
        .collect()
}

/// The circles between the modules of one folder.
fn circles_in(sources: &Sources, folder: &[String]) -> Vec<String> {
    let child = |file: usize| {
        let below = sources.files[file].module.strip_prefix(folder)?;
        below.first().map(String::as_str)
    };
    let mut uses: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for arrow in &sources.arrows {
        if let (Some(from), Some(to)) = (child(arrow.from), child(arrow.to))
            && from != to
        {
            let file = &sources.files[arrow.from].name;
            let line = format!(
                "  {from} uses {to}: {} in {file}:{}",
                arrow.path, arrow.line
            );
            uses.entry(from).or_default().entry(to).or_insert(line);
        }
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|from| (*from, reached(&uses, from)))
        .collect();
    let together = |a: &str, b: &str| {
        let leads = |a, b| reach.get(a).is_some_and(|r| r.contains(b));
        leads(a, b) && leads(b, a)
    };
    let name = match folder {
        [] => "the root".to_string(),
        names => names.join("/"),
    };
    let mut found = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for from in uses.keys() {
        if !together(from, from) || done.contains(from) {
            continue;
        }
        let circle: Vec<&str> = uses
            .keys()
            .copied()
            .filter(|to| together(from, to))
            .collect();
        done.extend(&circle);
        found.push(format!(
            "{} modules in {name}: {}",
            circle.len(),
            circle.join(", ")
        ));
        for a in &circle {
            let uses = uses[a].iter().filter(|(b, _)| circle.contains(b));
            found.extend(uses.map(|(_, line)| line.clone()));
        }
    }
    found
}

/// All modules that one uses, directly or through others.
fn reached<'a>(
    uses: &BTreeMap<&'a str, BTreeMap<&'a str, String>>,
    from: &str,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(module) = todo.pop() {
        for to in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*to) {
                todo.push(to);
            }
        }
    }
    reached
}
