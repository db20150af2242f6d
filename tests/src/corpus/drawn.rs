//! Tools drawn at random, so that each tool meets thousands of programs.
//!
//! A tool depends on the seed and the program's name alone. So a failure is repeated with
//! `--any-tool SEED --only NAME`, whatever else is installed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use crate::atom::Job;
use crate::error::{Error, Result};

/// Shipped tools with options that select different analysis routines. Each row ends with the option
/// that takes the name of a file.
const TOOLS: [&str; 32] = [
    "bbv --interval 1000000 --vectors /dev/null --blocks /dev/null --output",
    "branch --output",
    "branch --edges --output",
    "cache --output",
    "cache --preset atom --json",
    "cache --icache --output",
    "calllog --output",
    "calllog --stream --output",
    "calltree --output",
    "calltree --recursion 0 --no-profile --output /dev/null --callgrind",
    "counters --json",
    "counters --events exact:instructions,model:L1-misses --json",
    "cover --output",
    "cover --counts --output",
    "cover --edges --output",
    "dtb --output",
    "heap --output",
    "heap --no-profile --output /dev/null --massif",
    "icount --output",
    "icount --per instruction --output",
    "inline --output",
    "memcheck --log-file",
    "memtrace --output",
    "memtrace --instructions --output",
    "mix --output",
    "mix --trips --output",
    "predict --output",
    "predict --model gshare --json",
    "prof --output",
    "ranges --data heap --output",
    "reuse --output",
    "reuse --sample 16 --json",
];

/// A number that depends on the seed and the name, the same on each machine.
fn draw(seed: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    hasher.finish()
}

/// The tool for a program, with its options.
pub fn tool(seed: u64, program: &str) -> &'static str {
    tools(seed, program).next().unwrap_or(TOOLS[0])
}

/// All tools, beginning with that tool: the next ones are for a program that it refuses.
pub fn tools(seed: u64, program: &str) -> impl Iterator<Item = &'static str> {
    let first = (draw(seed, program) % TOOLS.len() as u64) as usize;
    (0..TOOLS.len()).map(move |n| TOOLS[(first + n) % TOOLS.len()])
}

/// The rewrite that the words of a tool and its options, and the name of its file, describe.
pub fn job(words: &str, output: &Path) -> Job {
    let mut words = words.split_whitespace().map(String::from);
    let tool = words.next().unwrap_or_default();
    let output = output.display().to_string();
    Job::Tool(tool, words.chain([output]).collect())
}

/// Bytes of the largest program in a sample. A sample is for every change, so it must not take long.
pub const LARGEST: u64 = 8_000_000;

/// `count` of the items, drawn by their names, in the order that they had.
pub fn sample<T>(seed: u64, items: Vec<T>, count: usize, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut order: Vec<u64> = items.iter().map(|item| draw(!seed, name(item))).collect();
    order.sort_unstable();
    let Some(&limit) = order.get(count) else {
        return items;
    };
    let is_drawn = |item: &T| draw(!seed, name(item)) < limit;
    items.into_iter().filter(is_drawn).collect()
}

/// The items with these names, or all without names.
///
/// # Errors
/// No item has one of the names; `doing` says what the names are for.
pub fn named<T>(
    doing: &'static str,
    mut items: Vec<T>,
    names: &[String],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>> {
    let is_there = |wanted: &&String| items.iter().any(|item| name(item) == wanted.as_str());
    if let Some(missing) = names.iter().find(|wanted| !is_there(wanted)) {
        return Err(Error::new(doing, format!("there is no \"{missing}\"")));
    }
    items.retain(|item| names.is_empty() || names.iter().any(|wanted| wanted == name(item)));
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Left out are the library of tools in C, the test of the interface, which does nothing, the tool that needs marks
    /// in the program, and the tool that needs a fuzzer.
    #[test]
    fn every_shipped_tool_is_drawn() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools");
        let shipped = std::fs::read_dir(folder).unwrap().flatten();
        let shipped: BTreeSet<String> = shipped
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !["afl", "c", "empty", "kernel"].contains(&name.as_str()))
            .collect();
        let drawn: BTreeSet<String> = (0..2000)
            .map(|n| tool(1, &n.to_string()))
            .map(|words| words.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(drawn, shipped);
    }

    #[test]
    fn samples_have_their_size() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let drawn = |seed| sample(seed, names.clone(), 10, |name| name);
        assert_eq!(drawn(1).len(), 10);
        assert_ne!(drawn(1), drawn(2));
        assert_eq!(sample(1, names.clone(), 200, |name| name), names);
    }
}
