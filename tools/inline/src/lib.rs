//! Call sites that would be worth inlining, ranked by the instructions that it would save.
//!
//! `docs/tools/inline.md` describes options, output and the score.

use std::collections::HashMap;

use atom_tool::WAYS;
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Sum};

#[analysis]
fn count(counter: Counter) {
    counter.increment();
}

#[analysis]
fn indirect(targets: Targets, counts: Counter<WAYS>, target: u64, pc: RegV) {
    targets.count(counts, target, pc);
}

plain_data! {
    /// Facts about a procedure.
    #[derive(Default)]
    struct Facts {
        /// Number of its instructions.
        insts: u32,
        /// Number of its `push` instructions.
        pushes: u32,
        /// Number of its call instructions.
        calls: u32,
        /// Number of direct call sites that call it.
        sites: u32,
        /// It is a stub that leads to a library.
        is_stub: bool,
        _unused: [u8; 3],
    }
}

/// A pair of call site and callee, and the number of calls.
struct Call {
    site: Site,
    caller: usize,
    callee: usize,
    indirect: bool,
    count: u64,
}

/// `callees` has the number of the callee of each site in `sites`.
#[analysis]
fn report(
    files: Files,
    program: Str,
    max_size: u32,
    calls: Counters,
    sites: Sites,
    callees: Array<u32>,
    indirect: AllTargets,
    counts: Counters<WAYS>,
    indirect_sites: Sites,
    procs: Sites,
    facts: Array<Facts>,
) {
    let pcs = (0..procs.len()).filter_map(|i| Some((procs.pc(i)?, i)));
    let numbers: HashMap<u64, usize> = pcs.collect();
    let number = |pc: u64| numbers.get(&pc).copied();
    let mut made = Vec::new();
    let mut add = |site: Site, callee, indirect, count| {
        made.push(Call {
            site,
            caller: number(site.proc_pc).unwrap_or(usize::MAX),
            callee,
            indirect,
            count,
        });
    };
    let mut outside = 0;
    for t in indirect.transfers(counts) {
        match (indirect_sites.get(t.site), number(t.target)) {
            (Some(site), Some(callee)) => add(site, callee, true, t.count),
            _ => outside += t.count,
        }
    }
    let made_at = |i: usize| {
        let [count] = calls.at(i).get();
        (count != 0).then_some((i, count))
    };
    for (site, (i, count)) in sites.with(made_at) {
        add(site, callees[i] as usize, false, count);
    }
    made.retain(|call| call.count != 0);
    let total = made.iter().map(|call| call.count).sum::<u64>() + outside;

    let mut candidates = Vec::new();
    for call in &made {
        let callee = &facts[call.callee];
        let fits = (1..=max_size).contains(&callee.insts);
        let object = |pc: u64| Address(pc).object_number();
        let is_own = procs
            .get(call.callee)
            .is_some_and(|site| object(site.pc) == object(call.site.pc));
        if fits && is_own && !callee.is_stub && call.caller != call.callee {
            // Inlining removes `call`, `ret`, and each `push` with its `pop`.
            let removed = 2 + 2 * u64::from(callee.pushes);
            let saved = call.count * removed;
            let copied = u64::from(callee.insts).saturating_sub(removed - 1).max(1);
            candidates.push((saved as f64 / copied as f64, saved, call));
        }
    }
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (covered, saved) = (candidates.iter()).fold((0, 0), |sum, (_, saved, call)| {
        (sum.0 + call.count, sum.1 + saved)
    });

    let mut report = Report::new("inline", &program);
    report
        .typed_fact(Column::count("calls", "calls"), total)
        .typed_fact(Column::count("calls to unknown places", "calls"), outside)
        .typed_fact(
            Column::count("call sites", "sites").sum(Sum::Max),
            (calls.len() + indirect_sites.len()) as u64,
        )
        .typed_fact(
            Column::count("pairs of call site and callee", "pairs").sum(Sum::None),
            made.len() as u64,
        )
        .typed_fact(
            Column::count("candidates", "pairs").sum(Sum::None),
            candidates.len() as u64,
        )
        .typed_fact(
            Column::ratio("calls by candidates %"),
            Cell::percent(covered, total),
        )
        .typed_fact(
            Column::count("instructions saved by all", "instructions"),
            saved,
        );
    let table = report.typed_table(By::Other, "candidates", COLUMNS);
    for (score, saved, call) in candidates {
        let callee = procs.get(call.callee).map_or("", |site| site.proc);
        table.row(cells(
            call,
            &facts[call.callee],
            callee,
            (score, saved, total),
        ));
    }
    report.write(files);
}

/// The row of a candidate, given its score, the instructions that inlining saves, and the number of all calls.
fn cells(
    call: &Call,
    facts: &Facts,
    callee: &'static str,
    (score, saved, total): (f64, u64, u64),
) -> [Cell; 12] {
    let yes_no = |yes| if yes { "yes" } else { "no" };
    [
        Cell::Ratio(score),
        call.count.into(),
        Cell::percent(call.count, total),
        saved.into(),
        u64::from(facts.insts).into(),
        yes_no(facts.calls == 0).into(),
        u64::from(facts.sites).into(),
        if call.indirect { "indirect" } else { "direct" }.into(),
        Cell::Address(call.site.pc),
        call.site.place(),
        call.site.proc.into(),
        callee.into(),
    ]
}

/// The columns of the table of candidates.
const COLUMNS: [Column; 12] = [
    // It grows with the number of calls.
    Column::ratio("score").sum(Sum::Add),
    Column::count("calls", "calls"),
    Column::percent_of_fact("%", "calls", "calls"),
    Column::count("saved", "instructions"),
    Column::count("size", "instructions").label(),
    Column::text("leaf"),
    Column::count("sites", "sites").label(),
    Column::text("kind").key(),
    Column::address("pc"),
    Column::place("line"),
    Column::text("caller"),
    Column::text("callee").key(),
];

/// The facts of a procedure, apart from its call sites.
fn facts(proc: Proc<'_>) -> Facts {
    let mut facts = Facts::default();
    for inst in proc.blocks().flat_map(|block| block.insts()) {
        facts.insts += 1;
        facts.calls += u32::from(inst.is_type(InstType::Call));
        let is_push = matches!(inst.bytes(), [0x50..=0x57] | [0x41, 0x50..=0x57]);
        facts.pushes += u32::from(is_push);
    }
    // A stub only jumps through a pointer.
    let jumps = |inst: Inst<'_>| inst.is_type(InstType::Jump) && !inst.is_type(InstType::Ret);
    let last = proc.blocks().next().map(|block| block.last_inst());
    facts.is_stub = facts.insts <= 3 && last.is_some_and(jumps);
    facts
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let max_size = options.value("--max-size")?.unwrap_or_default();
    options.finish()?;
    let fail = |_| format!("--max-size takes a number of instructions, not `{max_size}`");
    let max_size: u32 = max_size.parse().map_err(fail)?;

    let mut procs = SiteList::new();
    let mut all_facts: Vec<Facts> = Vec::new();
    let mut places: Vec<(Inst, Proc)> = Vec::new();
    let mut pointers: Vec<Inst> = Vec::new();
    for proc in program.procs() {
        procs.push_proc(proc);
        all_facts.push(facts(proc));
        let ends = proc.blocks().map(|block| block.last_inst());
        for inst in ends.filter(|inst| inst.is_type(InstType::Call)) {
            match inst.called_proc() {
                Some(callee) => places.push((inst, callee)),
                None if inst.offers(Before, BranchTarget) => pointers.push(inst),
                None => {}
            }
        }
    }
    let calls = program.counters(places.len());
    let mut sites = SiteList::new();
    let mut callees: Vec<u32> = Vec::new();
    for ((inst, callee), counter) in places.iter().zip(calls.rows()) {
        inst.add_call(Before, count, (counter,));
        sites.push(*inst);
        callees.push(callee.index() as u32);
        all_facts[callee.index()].sites += 1;
    }
    let targets = program.targets(&pointers);
    let mut pointer_sites = SiteList::new();
    for (inst, (row, counts)) in pointers.iter().zip(targets.rows()) {
        inst.add_call(Before, indirect, (row, counts, BranchTarget, Reg::Pc));
        pointer_sites.push(*inst);
    }
    let (name, counts) = (program.name(), targets.counts);
    #[rustfmt::skip]
    let args = (
        &files, name, max_size, calls, &sites, &callees, targets, counts, &pointer_sites, &procs, &all_facts,
    );
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "inline.out" }
