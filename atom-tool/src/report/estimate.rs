//! Runs that are sampled (`--sample`): what was measured of a run, and what follows for all of it.
//!
//! The program makes the tool's calls in bursts that begin at random places, so each piece of the run is as likely as any
//! other to be in one. A report of such a run shows estimates for all of the run: columns and facts of counts that are
//! added up ([`Column::count`]) are what the bursts have counted, divided by the share of the run that they are.
//!
//! How far an estimate may be off follows from how the bursts differ. The half width of the interval that contains the
//! exact value with a probability of 95 % is Student's quantile times the standard error.
//!
//! [`Column::count`]: super::Column::count

use std::sync::atomic::{AtomicU64, Ordering};

use analysis_rt::Statistics;

pub use analysis_rt::{Sampled, sampled};

/// The smallest number of bursts from which an interval follows.
const FEWEST: u64 = 5;

/// Analysis side, at ProgramBefore: lets the calls be made before each burst, too, for as long as `bursts` bursts take. The
/// tool simulates something whose contents depend on the references before the burst, such as a cache. What these calls count
/// is not in the results. The option `--warm-up` of the user prevails.
pub fn warm_up(bursts: u32) {
    analysis_rt::warm_up(bursts);
}

/// Analysis side, at ProgramAfter: what is estimated of a run that was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// What was measured.
    pub sampled: Sampled,
    statistics: Statistics,
}

impl Estimate {
    /// What the process has measured; `None` if the run is not sampled, or if it ended before its first burst.
    pub fn of_process() -> Option<Self> {
        let sampled = sampled().filter(|sampled| sampled.measured != 0)?;
        Some(Self {
            sampled,
            statistics: analysis_rt::statistics(),
        })
    }

    /// Number by which counts of the bursts are multiplied.
    pub fn factor(&self) -> f64 {
        self.sampled.tests as f64 / self.sampled.measured as f64
    }

    /// A count of the whole run, by what the bursts have counted.
    pub fn count(&self, counted: u64) -> u64 {
        (counted as f64 * self.factor()).round() as u64
    }

    /// Half the width of the interval of a count: of the cells at `cells` together, whatever they have to do with each
    /// other. `None` if there are too few bursts.
    pub fn spread<'a>(&self, cells: impl IntoIterator<Item = &'a AtomicU64>) -> Option<f64> {
        let bursts = self.sampled.bursts;
        let quantile = quantile(bursts)?;
        let n = bursts as f64;
        let errors = cells.into_iter().map(|cell| {
            let sum = cell.load(Ordering::Relaxed) as f64;
            let squares = analysis_rt::squares(cell.as_ptr());
            (squares - sum * sum / n).max(0.0).sqrt()
        });
        // Errors of cells that grow together add up; no others are larger.
        let error: f64 = errors.sum();
        Some(quantile * self.factor() * (n / (n - 1.0)).sqrt() * error * self.left())
    }

    /// Half the width of the interval of a [`Figure`].
    pub fn of_figure(&self, figure: usize) -> Option<f64> {
        let all = &self.statistics;
        let (n, sum) = (all.bursts as f64, all.sums[figure]);
        let variance = (all.products[figure][figure] - sum * sum / n).max(0.0) / (n - 1.0);
        Some(quantile(all.bursts)? * self.factor() * (n * variance).sqrt() * self.left())
    }

    /// Half the width of the interval of one figure divided by another, in per cent.
    pub fn of_percent(&self, part: usize, whole: usize) -> Option<f64> {
        let all = &self.statistics;
        let (n, sum) = (all.bursts as f64, all.sums[whole]);
        let quantile = quantile(all.bursts).filter(|_| sum > 0.0)?;
        let ratio = all.sums[part] / sum;
        let products = &all.products;
        let rest = products[part][part] - 2.0 * ratio * products[part][whole]
            + ratio * ratio * products[whole][whole];
        let variance = rest.max(0.0) * n / (n - 1.0) / (sum * sum);
        Some(100.0 * quantile * variance.sqrt() * self.left())
    }

    /// The part of the error that is left, as what was measured is known exactly.
    fn left(&self) -> f64 {
        (1.0 - 1.0 / self.factor()).max(0.0).sqrt()
    }

    /// What was measured, in words.
    pub(crate) fn line(&self) -> String {
        let Sampled { bursts, .. } = self.sampled;
        let share = 100.0 / self.factor();
        let plural = if bursts == 1 { "" } else { "s" };
        let few = match quantile(bursts) {
            Some(_) => "",
            None => ", which are too few to say how far they may be off",
        };
        format!("counts are estimates from {bursts} burst{plural}, {share:.2} % of the run{few}")
    }
}

/// The quantile of Student's distribution for an interval of 95 %, to 1 %; `None` for too few bursts.
fn quantile(bursts: u64) -> Option<f64> {
    let freedom = (bursts >= FEWEST).then(|| (bursts - 1) as f64)?;
    Some(1.96 + 2.37 / freedom + 2.8 / (freedom * freedom))
}

/// The figures of a simulation, in the order in which [`Estimate::of_figure`] numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Figure {
    /// References to data.
    References = 0,
    /// Misses of data.
    Misses = 1,
    /// The third cell of the counters, or misses of code.
    More = 2,
    /// References to code.
    Fetches = 3,
}
