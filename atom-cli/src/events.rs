//! `atom events`: which events can be counted on this machine, by which source, with which restrictions.
//!
//! The catalogue is the crate `events`. This module probes which of its events this machine has, and
//! lists them. The filters have the names of those of `papi_native_avail`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::events::{Event, Restrictions, Source, Unavailable};
use atom_core::{Error, Result};
use clap::Args;

/// Arguments of `atom events`.
#[derive(Args)]
pub struct Events {
    /// Only events whose names or descriptions have this text; case does not matter
    pub text: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only events that can be counted here and now
    #[arg(long)]
    pub available: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Filters by what an event can be restricted to; at most one may be given.
#[derive(Args)]
#[group(multiple = false)]
struct Filter {
    /// Only events that can be restricted to ranges of data
    #[arg(long)]
    darr: bool,
    /// Only events that can be restricted to ranges of code
    #[arg(long)]
    iarr: bool,
    /// Only events that can be restricted to opcodes
    #[arg(long)]
    opcm: bool,
    /// Only events that tell the address of the data
    #[arg(long)]
    dear: bool,
    /// Only events that tell the address of the instruction
    #[arg(long)]
    iear: bool,
}

impl Filter {
    fn takes(&self, can: Restrictions) -> bool {
        let wanted = [
            (self.darr, can.data_ranges),
            (self.iarr, can.code_ranges),
            (self.opcm, can.opcodes),
            (self.dear, can.data_address),
            (self.iear, can.code_address),
        ];
        wanted.iter().all(|(wanted, can)| !wanted || *can)
    }
}

/// Runs the command.
///
/// # Errors
/// If no event fits the text and the filters.
pub fn run(args: &Events) -> Result<()> {
    let text = args.text.as_deref().unwrap_or_default().to_lowercase();
    let has = |in_it: &str| in_it.to_lowercase().contains(&text);
    let fits = |e: &Event| has(e.name) || e.alias.is_some_and(has) || has(e.what);
    let rows: Vec<(Event, Option<Unavailable>)> = ::events::all()
        .filter(fits)
        .filter(|e| args.filter.takes(e.restrictions()))
        .map(|e| (e, e.probe().err()))
        .filter(|(_, why)| !args.available || why.is_none())
        .collect();
    if rows.is_empty() {
        let advice = "leave the filters out: `atom events` shows all that there are";
        return Err(Error::new("looking for events", "none is like that").advice(advice));
    }
    let text = if args.json { json(&rows) } else { table(&rows) };
    output::print(&text)
}

/// One letter for each restriction that an event can have, `-` for the others.
fn letters(can: Restrictions) -> String {
    let all = [
        (can.data_ranges, 'd'),
        (can.code_ranges, 'i'),
        (can.opcodes, 'o'),
        (can.data_address, 'D'),
        (can.code_address, 'I'),
    ];
    all.iter()
        .map(|(can, letter)| if *can { *letter } else { '-' })
        .collect()
}

fn table(rows: &[(Event, Option<Unavailable>)]) -> String {
    let width = rows.iter().map(|(e, _)| e.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut last = None;
    for (event, why) in rows {
        if last != Some((event.source, event.name.starts_with("PAPI_"))) {
            last = Some((event.source, event.name.starts_with("PAPI_")));
            let by = match event.source {
                _ if event.name.starts_with("PAPI_") => "PAPI's names",
                Source::Hardware => "the processor's counters",
                Source::Software => "the kernel's counters",
                Source::Exact => "counted by instrumentation, exactly",
                Source::Model => "counted by instrumentation, by a model",
            };
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{gap}{by}");
        }
        let there = if why.is_none() { "yes" } else { "no" };
        let also = event
            .alias
            .map_or(String::new(), |a| format!(" (also {a})"));
        let _ = writeln!(
            text,
            "  {:width$}  {there:3}  {}  {}{also}",
            event.name,
            letters(event.restrictions()),
            event.what,
        );
    }
    let _ = writeln!(
        text,
        "\nyes, no: whether it can be counted here. The letters are what it can be restricted to: ranges of data (d, \
         --darr),\nranges of code (i, --iarr), opcodes (o, --opcm); and whether the addresses of data (D, --dear) and of \
         instructions (I, --iear) are told.\n\
         Ranges: the tool `ranges`. Opcodes: the tool `counters`, as in exact:loads:opcode=mov*."
    );
    // Most events are missing for the same reason, which is told once.
    let mut reasons: BTreeMap<(&str, &str), Vec<&Unavailable>> = BTreeMap::new();
    for why in rows.iter().filter_map(|(_, why)| why.as_ref()) {
        reasons
            .entry((&why.cause, &why.cure))
            .or_default()
            .push(why);
    }
    for ((cause, cure), events) in reasons {
        let names: Vec<&str> = events.iter().take(4).map(|e| e.event.as_str()).collect();
        let more = match events.len() - names.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let names = names.join(", ");
        let _ = writeln!(
            text,
            "\nNot here: {names}{more}\n  why:  {cause}\n  cure: {cure}"
        );
        let offers: Vec<String> = events
            .iter()
            .filter_map(|e| Some(format!("{} for {}", e.offer?, e.event)))
            .take(4)
            .collect();
        if !offers.is_empty() {
            let _ = writeln!(text, "  else: {}", offers.join(", "));
        }
    }
    text
}

fn json(rows: &[(Event, Option<Unavailable>)]) -> String {
    let events: Vec<_> = rows
        .iter()
        .map(|(event, why)| {
            let can = event.restrictions();
            serde_json::json!({
                "name": event.name, "alias": event.alias, "what": event.what,
                "source": event.source.word(), "available": why.is_none(),
                "errno": why.as_ref().map(|w| w.errno), "cause": why.as_ref().map(|w| &w.cause),
                "cure": why.as_ref().map(|w| &w.cure), "instead": event.offer,
                "data_ranges": can.data_ranges, "code_ranges": can.code_ranges, "opcodes": can.opcodes,
                "data_address": can.data_address, "code_address": can.code_address,
            })
        })
        .collect();
    format!("{:#}\n", serde_json::json!({ "events": events }))
}
