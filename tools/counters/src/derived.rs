//! Figures that follow from others: instructions per cycle, miss rates, energy.

use atom_tool::report::{By, Column, Sum};
use atom_tool::{Cell, Report};
use events::{Exact, Model};

use crate::book::Sums;
use crate::cost::MEASURES;
use crate::found::Found;
use crate::settings::Slot;

/// The role of an event in derived figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Instructions,
    Cycles,
    References,
    Branches,
    Taken,
    Wrong,
    L1Misses,
    L2Misses,
    LastReferences,
    LastMisses,
    Flops,
}

fn role(slot: &Slot) -> Option<Role> {
    if slot.choice.opcode.is_some() {
        return None;
    }
    Some(match (slot.exact(), slot.model()) {
        (Some(Exact::Instructions), _) => Role::Instructions,
        (Some(Exact::References), _) => Role::References,
        (Some(Exact::Branches), _) => Role::Branches,
        (Some(Exact::Taken), _) => Role::Taken,
        (Some(Exact::FloatOps), _) => Role::Flops,
        (_, Some(Model::Mispredictions)) => Role::Wrong,
        (_, Some(Model::L1Misses)) => Role::L1Misses,
        (_, Some(Model::L2Misses)) => Role::L2Misses,
        _ => match slot.choice.event.name {
            "instructions" | "PAPI_TOT_INS" => Role::Instructions,
            "cpu-cycles" | "PAPI_TOT_CYC" => Role::Cycles,
            "branch-instructions" | "PAPI_BR_INS" => Role::Branches,
            "branch-misses" | "PAPI_BR_MSP" => Role::Wrong,
            "L1-dcache-loads" | "PAPI_L1_DCR" => Role::References,
            "L1-dcache-load-misses" | "PAPI_L1_DCM" | "PAPI_L1_LDM" => Role::L1Misses,
            "cache-references" | "PAPI_L3_TCA" => Role::LastReferences,
            "cache-misses" | "PAPI_L3_TCM" => Role::LastMisses,
            _ => return None,
        },
    })
}

/// Name, dividend, divisor, factor.
const RATIOS: [(&str, Role, Role, f64); 12] = [
    ("IPC", Role::Instructions, Role::Cycles, 1.0),
    ("taken %", Role::Taken, Role::Branches, 100.0),
    ("mispredicted %", Role::Wrong, Role::Branches, 100.0),
    (
        "mispredicted /1000 instr",
        Role::Wrong,
        Role::Instructions,
        1000.0,
    ),
    ("L1 miss %", Role::L1Misses, Role::References, 100.0),
    (
        "L1 misses /1000 instr",
        Role::L1Misses,
        Role::Instructions,
        1000.0,
    ),
    ("L2 miss %", Role::L2Misses, Role::L1Misses, 100.0),
    (
        "L2 misses /1000 instr",
        Role::L2Misses,
        Role::Instructions,
        1000.0,
    ),
    (
        "last level miss %",
        Role::LastMisses,
        Role::LastReferences,
        100.0,
    ),
    (
        "last level misses /1000 instr",
        Role::LastMisses,
        Role::Instructions,
        1000.0,
    ),
    (
        "references per instr",
        Role::References,
        Role::Instructions,
        1.0,
    ),
    ("flops per instr", Role::Flops, Role::Instructions, 1.0),
];

/// Figures that follow from a procedure's own values.
pub fn add(report: &mut Report, found: &Found) {
    let run = found.run;
    let slots = run.settings.slots.iter().enumerate();
    let roles: Vec<(Role, usize)> = slots
        .filter(|(i, _)| !found.is_missing(*i))
        .filter_map(|(i, slot)| Some((role(slot)?, 1 + i)))
        .collect();
    let measure = |role: Role| roles.iter().find(|(r, _)| *r == role).map(|(_, i)| *i);
    let ratios: Vec<(&'static str, usize, usize, f64)> = RATIOS
        .iter()
        .filter_map(|(name, a, b, f)| Some((*name, measure(*a)?, measure(*b)?, *f)))
        .collect();
    let energy = run.settings.energy();
    if ratios.is_empty() && energy.is_none() {
        return;
    }
    let mut columns: Vec<Column> = ratios.iter().map(|r| Column::ratio(r.0)).collect();
    if let Some(energy) = &energy {
        columns.extend(["mJ", "self mJ"].map(|n| Column::ratio(n).sum(Sum::Add)));
        columns.push(Column::ratio("uJ per call"));
        let without: Vec<&str> = energy
            .uses()
            .filter(|i| found.is_missing(*i))
            .map(|i| run.settings.slots[i].choice.name.as_str())
            .collect();
        if !without.is_empty() {
            report.fact("energy lacks", without.join(", "));
        }
    }
    columns.push(Column::text("procedure").key());
    let mut order: Vec<&Sums> = found.sums.iter().flatten().collect();
    order.sort_by_key(|s| std::cmp::Reverse(s.exclusive[0]));
    let table = report.typed_table(By::Procedure, "derived from own values", columns);
    for sums in order {
        let Some(site) = run.procs.get(sums.proc as usize) else {
            continue;
        };
        let mut cells: Vec<Cell> = ratios
            .iter()
            .map(|(_, a, b, factor)| match sums.exclusive[*b] {
                0 => Cell::Empty,
                b => Cell::Ratio(sums.exclusive[*a] as f64 * factor / b as f64),
            })
            .collect();
        if let Some(energy) = &energy {
            let joules = |values: &[u64; MEASURES], calls: u64| {
                let events = (0..run.settings.slots.len())
                    .map(|i| (!found.is_missing(i)).then_some(values[1 + i]));
                let nanos = values[0] as f64 * run.nanos_per_tick();
                energy.joules(nanos, calls, &events.collect::<Vec<_>>())
            };
            let whole = joules(&sums.inclusive, sums.calls);
            cells.push(Cell::Ratio(whole * 1e3));
            cells.push(Cell::Ratio(joules(&sums.exclusive, sums.calls) * 1e3));
            cells.push(match sums.calls {
                0 => Cell::Empty,
                n => Cell::Ratio(joules(&sums.each, sums.calls) * 1e6 / n as f64),
            });
        }
        cells.push(Cell::Text(site.proc_of_process()));
        table.row_of(cells);
    }
}
