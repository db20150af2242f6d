//! `atom kept`: what `atom run` keeps between runs.

use std::time::SystemTime;

use atom_core::Result;
use clap::Args;

use crate::kept::store::{Listed, Store};
use crate::message::number;

/// Arguments of `atom kept`.
#[derive(Args)]
pub struct Kept {
    /// Remove all that is not in use
    #[arg(long)]
    pub clear: bool,
}

/// Runs `atom kept`.
pub fn run(args: &Kept) -> Result<()> {
    let store = Store::open()?;
    if args.clear {
        let removed = store.trim(0)?;
        crate::source::forget(&store)?;
        let left = store.list()?.len();
        println!("{} removed{}", megabytes(removed), in_use(left));
        return Ok(());
    }
    let all = store.list()?;
    for entry in &all {
        println!(
            "{:>10}  {:>12}  {}",
            megabytes(entry.size),
            age(entry),
            entry.label
        );
    }
    let total = all.iter().map(|e| e.size).sum();
    println!(
        "{} of at most {} in {}",
        megabytes(total),
        megabytes(Store::limit()?),
        store.folder().display()
    );
    Ok(())
}

fn in_use(left: usize) -> String {
    match left {
        0 => String::new(),
        n => format!("; {} in use stay", number(n as u64)),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", number(bytes / 1_000_000), bytes / 100_000 % 10)
}

/// How long ago an entry was used.
fn age(entry: &Listed) -> String {
    let seconds = SystemTime::now()
        .duration_since(entry.used)
        .map_or(0, |age| age.as_secs());
    match seconds {
        0..60 => "now".into(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86400),
    }
}
