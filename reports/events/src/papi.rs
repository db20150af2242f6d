//! PAPI's preset names, and for each the kernel's event that counts nearly the same.
//!
//! PAPI composes some presets of several native events of one processor model. Here a preset is
//! one generic event, which the kernel knows how to program, or none. Without one, users count an exact or
//! modelled event, or a raw code (`rNNN`) from the processor's manual.

use crate::{Code, Event, Source};

/// Preset, name of the kernel's event (empty: none), name of the substitute (empty: none), description.
type Row = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const PRESETS: &[Row] = &[
    ("PAPI_TOT_CYC", "cpu-cycles", "", "Total cycles"),
    ("PAPI_REF_CYC", "ref-cycles", "", "Reference clock cycles"),
    ("PAPI_TOT_INS", "instructions", "exact:instructions", "Instructions completed"),
    ("PAPI_L1_DCM", "L1-dcache-load-misses", "model:L1-misses", "Level 1 data cache misses (of reads)"),
    ("PAPI_L1_ICM", "L1-icache-load-misses", "", "Level 1 instruction cache misses"),
    ("PAPI_L1_LDM", "L1-dcache-load-misses", "model:L1-misses", "Level 1 load misses"),
    ("PAPI_L1_STM", "L1-dcache-store-misses", "model:L1-misses", "Level 1 store misses"),
    ("PAPI_L1_DCR", "L1-dcache-loads", "exact:loads", "Level 1 data cache reads"),
    ("PAPI_L1_DCW", "L1-dcache-stores", "exact:stores", "Level 1 data cache writes"),
    ("PAPI_L1_ICR", "L1-icache-loads", "", "Level 1 instruction cache reads"),
    ("PAPI_L1_DCA", "", "exact:references", "Level 1 data cache accesses"),
    ("PAPI_L2_DCM", "", "model:L2-misses", "Level 2 data cache misses"),
    ("PAPI_L2_TCM", "", "model:L2-misses", "Level 2 cache misses"),
    ("PAPI_L2_DCA", "", "model:L1-misses", "Level 2 data cache accesses"),
    ("PAPI_L3_TCM", "cache-misses", "model:L2-misses", "Level 3 cache misses"),
    ("PAPI_L3_TCA", "cache-references", "model:L1-misses", "Level 3 cache accesses"),
    ("PAPI_L3_LDM", "LLC-load-misses", "model:L2-misses", "Level 3 load misses"),
    ("PAPI_L3_DCR", "LLC-loads", "model:L1-misses", "Level 3 data cache reads"),
    ("PAPI_L3_DCW", "LLC-stores", "model:L1-misses", "Level 3 data cache writes"),
    ("PAPI_TLB_DM", "dTLB-load-misses", "", "Data translation buffer misses (of reads)"),
    ("PAPI_TLB_IM", "iTLB-load-misses", "", "Instruction translation buffer misses"),
    ("PAPI_BR_INS", "branch-instructions", "exact:branches", "Branch instructions"),
    ("PAPI_BR_MSP", "branch-misses", "model:mispredictions", "Conditional branches mispredicted"),
    ("PAPI_BR_CN", "", "exact:branches", "Conditional branch instructions"),
    ("PAPI_BR_TKN", "", "exact:taken", "Conditional branches taken"),
    ("PAPI_BR_NTK", "", "exact:not-taken", "Conditional branches not taken"),
    ("PAPI_STL_ICY", "stalled-cycles-frontend", "", "Cycles with no instruction issue"),
    ("PAPI_RES_STL", "stalled-cycles-backend", "", "Cycles stalled on any resource"),
    ("PAPI_LD_INS", "", "exact:loads", "Load instructions"),
    ("PAPI_SR_INS", "", "exact:stores", "Store instructions"),
    ("PAPI_LST_INS", "", "exact:references", "Load and store instructions"),
    ("PAPI_FP_OPS", "", "exact:flops", "Floating point operations"),
    ("PAPI_FP_INS", "", "exact:fp-instructions", "Floating point instructions"),
];

/// The presets as events. `plain` finds an event of the kernel by its name.
pub fn all(plain: impl Fn(&str) -> Option<&'static Event>) -> impl Iterator<Item = Event> {
    PRESETS
        .iter()
        .map(move |&(name, kernel, offer, what)| Event {
            name,
            alias: None,
            what,
            source: Source::Hardware,
            code: plain(kernel).map_or(Code::Nameless, |event| event.code),
            offer: (!offer.is_empty()).then_some(offer),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::plain;

    #[test]
    fn what_is_meant_exists() {
        for (name, kernel, offer, _) in PRESETS {
            assert!(kernel.is_empty() || plain(kernel).is_some(), "{name}");
            assert!(offer.is_empty() || plain(offer).is_some(), "{name}");
        }
    }
}
