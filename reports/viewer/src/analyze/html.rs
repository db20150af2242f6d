//! The page of a log: the calls over time, sums by procedure, and a flame graph.

use std::io::{self, Write};

use call_log::Result;
use call_log::timeline::Timeline;
use page::{FLAME, GRID, Page};
use serde_json::{Value, json};

use super::calls::Calls;
use super::kind;

/// Largest number of calls in a page.
const MOST: usize = 100_000;
/// Part of the time that a stack must have to be in the flame graph: one of this many parts.
const SMALLEST: u64 = 5000;

const BODY: &str = include_str!("page/timeline.html");
const STYLE: &str = include_str!("page/timeline.css");
const SCRIPT: &str = include_str!("page/timeline.js");

/// Writes the page.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let calls = Calls::read(timeline, MOST)?;
    let longest = calls.longest();
    // The columns of the calls: small, and quick to read.
    let column = |of: &dyn Fn(&super::calls::Call) -> Value| -> Vec<Value> {
        longest.iter().map(of).collect()
    };
    let micros = |ticks: u64| rounded(timeline.span(ticks));
    let sums = timeline.procs.iter().enumerate().map(|(place, proc)| {
        let figures = calls.sums.figures(proc.number);
        json!([
            place,
            figures.calls,
            micros(figures.own),
            micros(figures.inclusive)
        ])
    });
    let data = json!({
        "title": timeline.title,
        "length": timeline.length(),
        "names": timeline.procs.iter().map(|p| &p.name).collect::<Vec<_>>(),
        "places": timeline.procs.iter().map(|p| match p.line {
            0 => p.file.clone(),
            line => format!("{}:{line}", p.file),
        }).collect::<Vec<_>>(),
        "kinds": timeline.procs.iter().map(|p| kind::of(p) as u8).collect::<Vec<_>>(),
        "threads": (0..timeline.tids.len() as u32).map(|t| json!({
            "name": timeline.thread_name(t),
            "main": timeline.is_main(t),
        })).collect::<Vec<_>>(),
        "calls": {
            "thread": column(&|c| c.thread.into()),
            "depth": column(&|c| c.depth.into()),
            "place": column(&|c| c.place.into()),
            "start": column(&|c| rounded(timeline.micros(c.start)).into()),
            "length": column(&|c| micros(c.ticks).into()),
        },
        "left_out": calls.total - longest.len() as u64,
        "sums": sums.collect::<Vec<_>>(),
        "tree": tree(&calls, &micros),
    });
    let page = Page {
        title: &format!("{}: calls over time", timeline.title),
        styles: &[STYLE],
        body: BODY,
        data: &[("timeline", data.to_string())],
        scripts: &[GRID, FLAME, SCRIPT],
    };
    Ok(page.write(to))
}

/// `[index of the caller's row or -1, procedure, calls, microseconds]` of each stack that can be seen.
fn tree(calls: &Calls, micros: &dyn Fn(u64) -> f64) -> Vec<Value> {
    let roots = calls.nodes.iter().filter(|n| n.parent.is_none());
    let whole: u64 = roots.map(|n| n.ticks).sum();
    let mut row = vec![None; calls.nodes.len()];
    let mut rows = Vec::new();
    for (i, node) in calls.nodes.iter().enumerate() {
        let parent = node.parent.map(|p| row[p]);
        let is_seen = node.ticks.saturating_mul(SMALLEST) >= whole && parent != Some(None);
        if is_seen {
            row[i] = Some(rows.len());
            let parent = parent.flatten().map_or(json!(-1), Value::from);
            rows.push(json!([parent, node.place, node.calls, micros(node.ticks)]));
        }
    }
    rows
}

/// Rounds microseconds to whole nanoseconds, so that the page gets no longer than necessary.
fn rounded(micros: f64) -> f64 {
    (micros * 1000.0).round() / 1000.0
}
