//! The table of events. Numbers of the kernel's events are in `linux/perf_event.h`.

use crate::perf::{TYPE_CACHE, TYPE_HARDWARE, TYPE_SOFTWARE};
use crate::{Code, Event, Exact, Model, Source, Usage, papi};

const fn hardware(
    name: &'static str,
    alias: Option<&'static str>,
    config: u64,
    offer: Option<&'static str>,
    what: &'static str,
) -> Event {
    Event {
        name,
        alias,
        what,
        source: Source::Hardware,
        code: Code::Perf {
            kind: TYPE_HARDWARE,
            config,
            usage: None,
        },
        offer,
    }
}

const fn software(
    name: &'static str,
    alias: Option<&'static str>,
    config: u64,
    usage: Option<Usage>,
    what: &'static str,
) -> Event {
    Event {
        name,
        alias,
        what,
        source: Source::Software,
        code: Code::Perf {
            kind: TYPE_SOFTWARE,
            config,
            usage,
        },
        offer: None,
    }
}

const fn exact(name: &'static str, exact: Exact, what: &'static str) -> Event {
    Event {
        name,
        alias: None,
        what,
        source: Source::Exact,
        code: Code::Exact(exact),
        offer: None,
    }
}

const fn model(name: &'static str, model: Model, what: &'static str) -> Event {
    Event {
        name,
        alias: None,
        what,
        source: Source::Model,
        code: Code::Model(model),
        offer: None,
    }
}

/// An event of the kernel's table of caches, by the numbers of cache, operation and result (1: a miss).
const fn cache(
    name: &'static str,
    [cache, operation, miss]: [u64; 3],
    offer: Option<&'static str>,
    what: &'static str,
) -> Event {
    Event {
        name,
        alias: None,
        what,
        source: Source::Hardware,
        code: Code::Perf {
            kind: TYPE_CACHE,
            config: cache | operation << 8 | miss << 16,
            usage: None,
        },
        offer,
    }
}

const LOADS: Option<&str> = Some("exact:loads");
const STORES: Option<&str> = Some("exact:stores");
const L1: Option<&str> = Some("model:L1-misses");
const L2: Option<&str> = Some("model:L2-misses");
const BRANCHES: Option<&str> = Some("exact:branches");
const WRONG: Option<&str> = Some("model:mispredictions");

#[rustfmt::skip]
static EVENTS: &[Event] = &[
    hardware("cpu-cycles", Some("cycles"), 0, None, "Cycles of the processor"),
    hardware("instructions", None, 1, Some("exact:instructions"), "Instructions that retired"),
    hardware("cache-references", None, 2, L1, "Accesses of the last-level cache"),
    hardware("cache-misses", None, 3, L2, "Misses of the last-level cache"),
    hardware("branch-instructions", Some("branches"), 4, BRANCHES, "Branches that retired"),
    hardware("branch-misses", None, 5, WRONG, "Branches that were predicted wrongly"),
    hardware("bus-cycles", None, 6, None, "Cycles of the bus"),
    hardware("stalled-cycles-frontend", Some("idle-cycles-frontend"), 7, None, "Cycles without instructions to issue"),
    hardware("stalled-cycles-backend", Some("idle-cycles-backend"), 8, None, "Cycles in which nothing could retire"),
    hardware("ref-cycles", None, 9, None, "Cycles at a constant rate"),

    cache("L1-dcache-loads", [0, 0, 0], LOADS, "Reads of the first-level data cache"),
    cache("L1-dcache-load-misses", [0, 0, 1], L1, "Reads that miss in it"),
    cache("L1-dcache-stores", [0, 1, 0], STORES, "Writes of the first-level data cache"),
    cache("L1-dcache-store-misses", [0, 1, 1], L1, "Writes that miss in it"),
    cache("L1-dcache-prefetches", [0, 2, 0], None, "Prefetches of the first-level data cache"),
    cache("L1-dcache-prefetch-misses", [0, 2, 1], None, "Prefetches that miss in it"),
    cache("L1-icache-loads", [1, 0, 0], None, "Reads of the first-level instruction cache"),
    cache("L1-icache-load-misses", [1, 0, 1], None, "Reads that miss in it"),
    cache("LLC-loads", [2, 0, 0], L1, "Reads of the last-level cache"),
    cache("LLC-load-misses", [2, 0, 1], L2, "Reads that miss in it"),
    cache("LLC-stores", [2, 1, 0], L1, "Writes of the last-level cache"),
    cache("LLC-store-misses", [2, 1, 1], L2, "Writes that miss in it"),
    cache("LLC-prefetches", [2, 2, 0], None, "Prefetches of the last-level cache"),
    cache("LLC-prefetch-misses", [2, 2, 1], None, "Prefetches that miss in it"),
    cache("dTLB-loads", [3, 0, 0], LOADS, "Reads looked up in the data translation buffer"),
    cache("dTLB-load-misses", [3, 0, 1], None, "Reads that miss in it"),
    cache("dTLB-stores", [3, 1, 0], STORES, "Writes looked up in the data translation buffer"),
    cache("dTLB-store-misses", [3, 1, 1], None, "Writes that miss in it"),
    cache("iTLB-loads", [4, 0, 0], None, "Fetches looked up in the instruction translation buffer"),
    cache("iTLB-load-misses", [4, 0, 1], None, "Fetches that miss in it"),
    cache("branch-loads", [5, 0, 0], BRANCHES, "Branches looked up by the branch predictor"),
    cache("branch-load-misses", [5, 0, 1], WRONG, "Branches that it does not know or gets wrong"),
    cache("node-loads", [6, 0, 0], None, "Reads of the memory of the processor's own node"),
    cache("node-load-misses", [6, 0, 1], None, "Reads of other memory"),
    cache("node-stores", [6, 1, 0], None, "Writes of the memory of the processor's own node"),
    cache("node-store-misses", [6, 1, 1], None, "Writes of other memory"),

    software("cpu-clock", None, 0, Some(Usage::ProcessorTime), "Processor time in nanoseconds, by a timer of the processor"),
    software("task-clock", None, 1, Some(Usage::ProcessorTime), "Processor time of the thread in nanoseconds"),
    software("page-faults", Some("faults"), 2, Some(Usage::Faults), "Page faults"),
    software("context-switches", Some("cs"), 3, Some(Usage::Switches), "Switches to other threads"),
    software("cpu-migrations", Some("migrations"), 4, None, "Moves of the thread to another processor"),
    software("minor-faults", None, 5, Some(Usage::MinorFaults), "Page faults that needed no input"),
    software("major-faults", None, 6, Some(Usage::MajorFaults), "Page faults that needed input"),
    software("alignment-faults", None, 7, None, "Accesses that the kernel had to align"),
    software("emulation-faults", None, 8, None, "Instructions that the kernel had to emulate"),

    exact("exact:instructions", Exact::Instructions, "Instructions"),
    exact("exact:loads", Exact::Loads, "Reads of memory, each operand once, each repetition of a string instruction"),
    exact("exact:stores", Exact::Stores, "Writes of memory, likewise"),
    exact("exact:references", Exact::References, "Reads and writes of memory"),
    exact("exact:bytes", Exact::Bytes, "Bytes read and written"),
    exact("exact:branches", Exact::Branches, "Conditional branches"),
    exact("exact:taken", Exact::Taken, "Conditional branches that are taken"),
    exact("exact:not-taken", Exact::NotTaken, "Conditional branches that are not taken"),
    exact("exact:calls", Exact::Calls, "Calls"),
    exact("exact:flops", Exact::FloatOps, "Operations on floating-point numbers, one for each number of a vector"),
    exact("exact:fp-instructions", Exact::FloatInsts, "Instructions that compute with floating-point numbers"),

    model("model:mispredictions", Model::Mispredictions, "Conditional branches that a modelled predictor gets wrong"),
    model("model:L1-misses", Model::L1Misses, "References that miss in a modelled first-level data cache"),
    model("model:L2-misses", Model::L2Misses, "References that also miss in a modelled second-level cache"),
];

/// All events: the kernel's, PAPI's, then the ones that instrumentation counts.
pub fn all() -> impl Iterator<Item = Event> {
    let (of_kernel, own) = EVENTS.split_at(
        EVENTS
            .iter()
            .position(|e| e.source == Source::Exact)
            .unwrap_or(EVENTS.len()),
    );
    of_kernel
        .iter()
        .copied()
        .chain(papi::all(plain))
        .chain(own.iter().copied())
}

/// The event with a name or alias; upper and lower case are the same.
pub fn find(name: &str) -> Option<Event> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    all().find(|e| is(e.name) || e.alias.is_some_and(is))
}

/// The event with a name, among the kernel's and the ones that instrumentation counts.
pub(crate) fn plain(name: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|e| e.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_there_once_and_offers_exist() {
        let mut names = HashSet::new();
        for event in all() {
            assert!(names.insert(event.name.to_lowercase()), "{}", event.name);
            if let Some(alias) = event.alias {
                assert!(names.insert(alias.to_lowercase()), "{alias}");
            }
            if let Some(offer) = event.offer {
                let offered = find(offer).unwrap_or_else(|| panic!("{offer}"));
                assert!(offered.source >= Source::Exact && offered.probe().is_ok());
            }
        }
        assert_eq!(find("CYCLES").unwrap().name, "cpu-cycles");
        assert_eq!(find("papi_tot_ins").unwrap().name, "PAPI_TOT_INS");
        assert!(find("no-such-event").is_none());
    }

    #[test]
    fn codes_are_those_of_the_kernel() {
        let perf = |name: &str| match find(name).unwrap().code {
            Code::Perf { kind, config, .. } => (kind, config),
            other => panic!("{other:?}"),
        };
        // include/uapi/linux/perf_event.h: dTLB is 3, a write 1, a miss 1.
        assert_eq!(perf("dTLB-store-misses"), (3, 0x1_0103));
        assert_eq!(perf("PAPI_BR_MSP"), (0, 5));
        assert_eq!(perf("context-switches"), (1, 3));
    }

    #[test]
    fn what_touches_data_can_be_restricted_to_data() {
        let loads = find("exact:loads").unwrap().restrictions();
        assert!(loads.data_ranges && loads.code_ranges && loads.opcodes && loads.data_address);
        let calls = find("exact:calls").unwrap().restrictions();
        assert!(!calls.data_ranges && calls.code_ranges && calls.code_address);
        let cycles = find("cycles").unwrap().restrictions();
        assert_eq!(cycles, crate::Restrictions::default());
    }
}
