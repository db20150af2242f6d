//! How the figures of a simulation differ from burst to burst, in runs that are sampled.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use analysis_rt::FIGURES;
use atom_abi::ThreadBlock;

use super::{Referred, SiteReferences};
use crate::calls::params::Array;
use crate::data::counters::AnyCounters;
use crate::report::estimate::{Figure, sampled, warm_up};

/// The parts of the simulation whose bursts are compared.
struct Compared {
    counts: AnyCounters,
    executed: AnyCounters,
    references: Array<SiteReferences>,
}

static COMPARED: AtomicPtr<Compared> = AtomicPtr::new(null_mut());

/// Has the figures of a simulation compared from burst to burst.
#[crate::analysis]
pub(super) fn simulated_bursts(
    counts: AnyCounters,
    executed: AnyCounters,
    references: Array<SiteReferences>,
    bursts: u64,
) {
    if sampled().is_none() {
        return;
    }
    warm_up(bursts as u32);
    let parts = Compared {
        counts,
        executed,
        references,
    };
    COMPARED.store(Box::into_raw(Box::new(parts)), Ordering::Release);
    analysis_rt::compare_bursts(figures);
}

/// Sums over all sites of what a thread has counted.
fn figures(block: *mut ThreadBlock) -> [u64; FIGURES] {
    let mut all = [0; FIGURES];
    // SAFETY: only `simulated_bursts` writes it, a value that is never freed.
    let Some(parts) = (unsafe { COMPARED.load(Ordering::Acquire).as_ref() }) else {
        return all;
    };
    let (counts, executed) = (parts.counts.of(block), parts.executed.of(block));
    for (i, site) in parts.references.iter().enumerate() {
        let times = executed.row(site.block as usize).first();
        let known = times.map_or(0, |n| n.load(Ordering::Relaxed)) * u64::from(site.each);
        let row = counts.row(i);
        let cell = |i: usize| row.get(i).map_or(0, |n| n.load(Ordering::Relaxed));
        let (of, misses) = match site.referred {
            Referred::Data => (Figure::References, Figure::Misses),
            Referred::Code => (Figure::Fetches, Figure::More),
        };
        let references = known.wrapping_add(cell(1));
        for (figure, n) in [(of, references), (misses, cell(0)), (Figure::More, cell(2))] {
            let sum = &mut all[figure as usize];
            *sum = sum.wrapping_add(n);
        }
    }
    all
}
