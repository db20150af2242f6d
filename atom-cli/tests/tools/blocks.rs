//! What each place of a program allocates by `malloc`: blocks and bytes.
use atom_tool::prelude::*;
use atom_tool::report::{By, Column};

thread_state! {
    /// The call of `malloc` that a thread is in.
    struct Waiting {
        /// rsp after the call that leads to it; 0 if there is none.
        sp: ThreadCell<u64>,
        size: ThreadCell<u64>,
        /// Number of the place.
        place: ThreadCell<u32>,
    }
}

/// Before a call of `malloc`, or before a jump to it: `above` is the size of the return address that is then on the stack.
#[analysis]
fn before(waiting: PerThread<Waiting>, place: u32, above: u64, sp: RegV, size: RegV) {
    waiting.size.set(size.0);
    waiting.place.set(place);
    waiting.sp.set(sp.0 + above);
}

/// Behind any call: it may have led to a procedure that ended in a jump to `malloc`.
#[analysis]
fn behind(waiting: PerThread<Waiting>, places: Counters<2>, sp: RegV, result: RegV) {
    if waiting.sp.get() == sp.0 {
        waiting.sp.set(0);
        if result.0 != 0 {
            let place = places.at(waiting.place.get() as usize);
            place.add_to(0, 1);
            place.add_to(1, waiting.size.get());
        }
    }
}

#[analysis]
fn report(files: Files, program: Str, sites: Sites, places: Counters<2>) {
    let mut report = Report::new("blocks", &program);
    let bytes = places.rows().map(|[_, bytes]| bytes).sum::<u64>();
    report.typed_fact(Column::count("all bytes", "bytes"), bytes);
    let columns = [
        Column::count("bytes", "bytes"),
        Column::share("%", "bytes"),
        Column::count("blocks", "blocks"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Instruction, "places", columns);
    let reached = |i| Some(places.at(i).get()).filter(|[blocks, _]| *blocks != 0);
    for (site, [blocks, own]) in sites.with(reached) {
        table.row([
            own.into(),
            Cell::percent(own, bytes),
            blocks.into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    const RETURN_ADDRESS: u64 = 8;
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    options.finish()?;

    let waiting = program.thread_data(Waiting::zero());
    // Stubs of the procedure linkage table jump to the import, too.
    let procs = || program.procs().filter(|proc| !proc.is_stub());
    let insts = || {
        procs()
            .flat_map(|proc| proc.blocks())
            .map(|block| block.last_inst())
    };
    let mut sites = SiteList::new();
    for inst in insts().filter(|inst| inst.entered_import() == Some("malloc")) {
        let is_call = inst.is_type(InstType::Call);
        let above = if is_call { 0 } else { RETURN_ADDRESS };
        let place = sites.push(inst) as u32;
        inst.add_call(Before, before, (waiting, place, above, Reg::Rsp, Reg::Rdi));
    }
    let places = program.counters::<2>(sites.len());
    for call in insts().filter(|inst| inst.is_type(InstType::Call)) {
        call.add_call(After, behind, (waiting, places, Reg::Rsp, Reg::Rax));
    }
    program.add_call(After, report, (&files, program.name(), &sites, places));
    Ok(())
}

atom_tool::tool!(instrument);
