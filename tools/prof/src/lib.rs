//! The number of entries of each procedure, and the call graph.
//!
//! `docs/tools/prof.md` describes options and output.

use std::collections::{BTreeMap, HashMap};

use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers, Sum};
use atom_tool::{Transfer, WAYS};

#[analysis]
fn count(counter: Counter) {
    counter.increment();
}

/// A conditional jump to another procedure.
#[analysis]
fn count_if(counter: Counter, taken: Value) {
    counter.add(u64::from(taken.is_true()));
}

#[analysis]
fn indirect(targets: Targets, counts: Counter<WAYS>, target: u64, pc: RegV) {
    targets.count(counts, target, pc);
}

plain_data! {
    /// How a call is made.
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
    enum Kind {
        Call,
        Jump,
        Indirect,
    }

    /// An edge of the call graph.
    #[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Arc {
        /// Number of the calling procedure, or [`UNKNOWN`].
        caller: u32,
        /// Number of the called procedure.
        callee: u32,
        kind: Kind,
    }
}

plain_data! {
    /// A stub of the procedure linkage table and the procedure to which it certainly leads.
    struct Stub {
        stub: u32,
        callee: u32,
    }
}

/// Stands for a caller that is not known, such as a library or the system.
const UNKNOWN: u32 = u32::MAX;

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Jump => "jump",
            Self::Indirect => "indirect",
        }
    }
}

#[analysis]
fn report(
    files: Files,
    program: Str,
    entries: Counters,
    procs: Sites,
    arcs: Array<Arc>,
    calls: Counters,
    targets: AllTargets,
    counts: Counters<WAYS>,
    callers_by_pointer: Array<u32>,
    stubs: Array<Stub>,
) {
    let entries: Vec<u64> = entries.rows().map(|[n]| n).collect();
    let total: u64 = entries.iter().sum();
    let direct = arcs.iter().copied().zip(calls.rows().map(|[n]| n));
    let numbers = Numbers::new(procs, &stubs);
    let indirect = by_pointer(&targets.transfers(counts), &numbers, &callers_by_pointer);
    let (graph, explained) = call_graph(&entries, direct.chain(indirect));
    let mut callers: Vec<Vec<(Arc, u64)>> = vec![Vec::new(); entries.len()];
    let mut callees = callers.clone();
    let mut sorted: Vec<(Arc, u64)> = graph.iter().map(|(&arc, &n)| (arc, n)).collect();
    sorted.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    for (arc, n) in sorted {
        callers[arc.callee as usize].push((arc, n));
        if arc.caller != UNKNOWN {
            callees[arc.caller as usize].push((arc, n));
        }
    }

    let site = |proc: u32| procs.get(proc as usize);
    let name = |proc: u32| site(proc).map_or("(outside)", |site| site.proc);
    // In the call graph no column has the address, which would tell the object.
    let shown = |proc: u32| site(proc).map_or("(outside)".into(), |site| site.proc_of_process());
    let pc = |proc: u32| site(proc).map_or(Cell::Empty, |site| Cell::Address(site.pc));
    let mut report = Report::new("prof", &program);
    let entered = entries.iter().filter(|n| **n != 0).count();
    report
        .typed_fact(Column::count("entries", "entries"), total)
        .typed_fact(
            Column::count("procedures entered", "procedures").rows_of("procedures", "entries"),
            entered as u64,
        )
        .typed_fact(
            Column::count("procedures", "procedures").sum(Sum::Max),
            entries.len() as u64,
        );
    let table = report.typed_table(By::Procedure, "procedures", PROCEDURES);
    let reached = |i: usize| (entries[i] + explained[i] != 0).then_some(i);
    for (site, i) in procs.with(reached) {
        table.row([
            entries[i].into(),
            Cell::percent(entries[i], total),
            (callers[i].len() as u64).into(),
            (callees[i].len() as u64).into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);

    // One group for each procedure: its callers, itself, its callees.
    let mut order: Vec<usize> = (0..entries.len())
        .filter(|i| !callers[*i].is_empty() || !callees[*i].is_empty())
        .collect();
    order.sort_by_key(|i| std::cmp::Reverse(entries[*i]));
    let table = report.table("call graph", ["calls", "kind", "procedure"]);
    table.readers(Readers::People);
    for i in order {
        for (arc, n) in &callers[i] {
            let text = format!("    from {}", shown(arc.caller));
            table.row([(*n).into(), arc.kind.name().into(), text.into()]);
        }
        table.row([
            entries[i].into(),
            "entries".into(),
            Cell::Text(shown(i as u32)),
        ]);
        for (arc, n) in &callees[i] {
            let text = format!("    to {}", shown(arc.callee));
            table.row([(*n).into(), arc.kind.name().into(), text.into()]);
        }
    }

    let table = report
        .typed_table(By::Arc, "arcs", ARCS)
        .readers(Readers::Programs);
    for (arc, n) in &graph {
        let (from, to) = (name(arc.caller).into(), name(arc.callee).into());
        let kind = arc.kind.name().into();
        table.row([(*n).into(), kind, from, pc(arc.caller), to, pc(arc.callee)]);
    }
    report.write(files);
}

/// The columns of the table of procedures.
const PROCEDURES: [Column; 7] = [
    Column::count("entries", "entries"),
    Column::share("%", "entries"),
    Column::count("callers", "procedures").sum(Sum::None),
    Column::count("callees", "procedures").sum(Sum::None),
    Column::address("pc"),
    Column::place("line"),
    Column::text("procedure"),
];

/// The columns of the table of arcs.
const ARCS: [Column; 6] = [
    Column::count("calls", "calls"),
    Column::text("kind").key(),
    Column::text("caller"),
    Column::address("caller pc"),
    Column::text("callee"),
    Column::address("callee pc"),
];

/// Bit in the number of a caller by pointer: the site is the jump of a stub.
const IS_STUB: u32 = 1 << 31;

/// The numbers of procedures by their addresses. The address of a stub has the number of the procedure to which the
/// stub leads.
struct Numbers {
    /// Address and number, in the order of addresses.
    procs: Vec<(u64, u32)>,
    stubs: HashMap<u32, u32>,
}

impl Numbers {
    fn new(procs: Sites, stubs: &[Stub]) -> Self {
        let pcs = (0..procs.len()).filter_map(|i| Some((procs.pc(i)?, i as u32)));
        let mut procs: Vec<(u64, u32)> = pcs.collect();
        procs.sort_unstable();
        Self {
            procs,
            stubs: stubs.iter().map(|s| (s.stub, s.callee)).collect(),
        }
    }

    fn get(&self, pc: u64) -> Option<u32> {
        // Several procedures with one address: the last one counts.
        let behind = self.procs.partition_point(|(address, _)| *address <= pc);
        let (address, number) = *self.procs.get(behind.checked_sub(1)?)?;
        let number = (address == pc).then_some(number)?;
        Some(self.stubs.get(&number).copied().unwrap_or(number))
    }
}

/// The arcs of calls through pointers, and of the jumps of stubs. `numbers` has the numbers of the
/// procedures by their addresses.
fn by_pointer(transfers: &[Transfer], numbers: &Numbers, callers: &[u32]) -> Vec<(Arc, u64)> {
    let mut arcs = Vec::new();
    // For each stub its transfers, and the procedures that it led to.
    let mut stubs: HashMap<u32, (u64, Vec<u32>)> = HashMap::new();
    for t in transfers {
        // Other transfers lead to code that is not instrumented.
        let callee = numbers.get(t.target);
        let caller = callers[t.site] & !IS_STUB;
        let mut kind = Kind::Indirect;
        if callers[t.site] & IS_STUB != 0 {
            kind = Kind::Jump;
            let stub = stubs.entry(caller).or_default();
            stub.0 += t.count;
            stub.1.extend(callee);
        }
        arcs.extend(callee.map(|callee| {
            (
                Arc {
                    caller,
                    callee,
                    kind,
                },
                t.count,
            )
        }));
    }
    // Until a stub is bound it jumps to the dynamic loader, which jumps to the procedure.
    for (arc, count) in arcs.iter_mut().filter(|(arc, _)| arc.kind == Kind::Jump) {
        if let Some((all, callees)) = stubs.get(&arc.caller)
            && let [_] = callees.as_slice()
        {
            *count = *all;
        }
    }
    arcs
}

/// The number of calls of each arc, given the entries of each procedure and the known calls. Arcs from
/// [`UNKNOWN`] have the other entries. Returns also the number of known calls of each procedure.
fn call_graph(
    entries: &[u64],
    known: impl Iterator<Item = (Arc, u64)>,
) -> (BTreeMap<Arc, u64>, Vec<u64>) {
    let mut graph: BTreeMap<Arc, u64> = BTreeMap::new();
    let mut explained = vec![0; entries.len()];
    for (arc, n) in known.filter(|(_, n)| *n != 0) {
        *graph.entry(arc).or_default() += n;
        explained[arc.callee as usize] += n;
    }
    for (callee, (n, explained)) in entries.iter().zip(&explained).enumerate() {
        if n > explained {
            let arc = Arc {
                caller: UNKNOWN,
                callee: callee as u32,
                kind: Kind::Call,
            };
            graph.insert(arc, n - explained);
        }
    }
    (graph, explained)
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let with_arcs = !options.flag("--entries");
    options.finish()?;

    let mut procs = SiteList::new();
    let entries = program.counters(program.procs().len());
    // Calls of one procedure by another share a counter.
    let mut arcs: Vec<Arc> = Vec::new();
    let mut numbers: HashMap<Arc, usize> = HashMap::new();
    let mut places: Vec<(Inst, usize)> = Vec::new();
    let mut pointers: Vec<Inst> = Vec::new();
    let mut stubs: Vec<Stub> = Vec::new();
    let is_whole = program.objects().len() > 1;
    for proc in program.procs() {
        procs.push_proc(proc);
        let stub = proc.index() as u32;
        if is_whole && proc.is_stub() {
            // Calls of a stub that certainly leads to a procedure count as calls of that procedure.
            if let Some(callee) = proc.stub_target() {
                let callee = callee.index() as u32;
                stubs.push(Stub { stub, callee });
                continue;
            }
            let jumps = |i: &Inst| i.is_type(InstType::Jump) && i.offers(Before, BranchTarget);
            let ends = proc.blocks().map(|block| block.last_inst());
            pointers.extend(ends.filter(|_| with_arcs).find(jumps));
        }
        if proc.first_block().is_some() {
            proc.add_call(Before, count, (entries.at(proc.index()),));
        }
        let ends = proc.blocks().map(|block| block.last_inst());
        for inst in ends.filter(|_| with_arcs) {
            let Some(callee) = inst.entered_proc() else {
                if inst.is_type(InstType::Call) && inst.offers(Before, BranchTarget) {
                    pointers.push(inst);
                }
                continue;
            };
            let arc = Arc {
                caller: proc.index() as u32,
                callee: callee.index() as u32,
                kind: if inst.is_type(InstType::Call) {
                    Kind::Call
                } else {
                    Kind::Jump
                },
            };
            let number = *numbers.entry(arc).or_insert_with(|| {
                arcs.push(arc);
                arcs.len() - 1
            });
            places.push((inst, number));
        }
    }
    let calls = program.counters(arcs.len());
    for (inst, number) in places {
        if inst.is_type(InstType::CondBr) {
            inst.add_call(Before, count_if, (calls.at(number), BrCondValue));
        } else {
            inst.add_call(Before, count, (calls.at(number),));
        }
    }
    let caller = |inst: &Inst| match (inst.proc().index() as u32, inst.is_type(InstType::Call)) {
        (caller, true) => caller,
        (stub, false) => stub | IS_STUB,
    };
    let callers: Vec<u32> = pointers.iter().map(caller).collect();
    let targets = program.targets(&pointers);
    for (inst, (row, counts)) in pointers.iter().zip(targets.rows()) {
        inst.add_call(Before, indirect, (row, counts, BranchTarget, Reg::Pc));
    }
    let name = program.name();
    let counts = targets.counts;
    #[rustfmt::skip]
    let args = (&files, name, entries, &procs, &arcs, calls, targets, counts, &callers, &stubs);
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "prof.out" }
