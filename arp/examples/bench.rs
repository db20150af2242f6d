//! Measures the cost of recording: nanoseconds to enter and leave a kernel, and bytes of a record in the file.
//!
//!     CARGO_INCREMENTAL=0 cargo run --release -p arp --example bench [FILE]
//!
//! The profile is a nest of loops: 8 { 7 { 2 { 1 } } }, with ten kernels in each section 2. The kernel does nothing. The
//! callbacks read the time-stamp counter; their cost without a recorder is measured and shown, too.
use std::hint::black_box;
use std::path::PathBuf;

use arp::{Area, DataType, Format, Meter, Mode, SectionKind, Session, Sid, Tid};

const KERNELS: u64 = 10_000_000;
const INNER: u64 = 10;

/// Measures cycles.
struct Cycles;

impl Meter for Cycles {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        data.set_word(now());
    }
    fn leave(&mut self, _: Sid, data: &mut Area) {
        data.set_word(now() - data.word());
    }
}

/// Measures nothing.
struct Nothing;

impl Meter for Nothing {
    fn enter(&mut self, _: Sid, _: &mut Area) {}
    fn leave(&mut self, _: Sid, _: &mut Area) {}
}

fn now() -> u64 {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Values as on a noisy machine: between 1000 and 5095.
struct Noise(u64);

impl Meter for Noise {
    fn enter(&mut self, _: Sid, _: &mut Area) {}
    fn leave(&mut self, _: Sid, data: &mut Area) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        data.set_word(1000 + (self.0 >> 52));
    }
}

/// Processor time of this process in nanoseconds.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// Nanoseconds for each kernel of the callbacks alone.
fn callbacks(mut meter: Box<dyn Meter>) -> f64 {
    let start = processor_time();
    let mut area = Area::default();
    for i in 0..KERNELS {
        let sid = Sid(i as u32 & 1);
        black_box(&mut meter).enter(sid, &mut area);
        black_box(&mut meter).leave(sid, &mut area);
    }
    black_box(area);
    (processor_time() - start) as f64 / KERNELS as f64
}

struct Run {
    nanoseconds: f64,
    bytes: f64,
}

fn record<M: Meter + 'static>(
    mode: Mode,
    path: &PathBuf,
    make: fn() -> M,
) -> Result<Run, arp::Error> {
    let session = Session::builder(mode)
        .file(path)
        .format(Format::Binary)
        .meter(DataType::ULong, "cycles", move |_| make())
        .start()?;
    let start = processor_time();
    let mut thread = session.thread(Tid(1));
    thread.enter(SectionKind::Plain, Sid(8), 0);
    for _ in 0..1000 {
        thread.enter(SectionKind::Plain, Sid(7), 0);
        for _ in 0..KERNELS / 1000 / INNER {
            thread.enter(SectionKind::Plain, Sid(2), 0);
            for _ in 0..INNER {
                thread.enter(SectionKind::Kernel, Sid(1), 0);
                thread.leave(SectionKind::Kernel, Sid(1));
            }
            thread.leave(SectionKind::Plain, Sid(2));
        }
        thread.leave(SectionKind::Plain, Sid(7));
    }
    thread.leave(SectionKind::Plain, Sid(8));
    thread.end();
    session.finish()?;
    let nanoseconds = (processor_time() - start) as f64 / KERNELS as f64;
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    Ok(Run {
        nanoseconds,
        bytes: size as f64 / KERNELS as f64,
    })
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn main() -> Result<(), arp::Error> {
    let path = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("bench.arp"), PathBuf::from);
    let empty = median((0..5).map(|_| callbacks(Box::new(Nothing))).collect());
    let cycles = median((0..5).map(|_| callbacks(Box::new(Cycles))).collect());
    println!("callbacks alone: empty {empty:.1} ns, time-stamp counter {cycles:.1} ns a pair");
    println!(
        "{:18} {:>10} {:>10} {:>10} {:>14}",
        "", "empty", "cycles", "noise", "bytes/record"
    );
    for mode in [Mode::RecordAverage, Mode::RecordHistogram, Mode::RecordAll] {
        let time = |run: &dyn Fn() -> Result<Run, arp::Error>| -> Result<(f64, f64), arp::Error> {
            let runs: Vec<_> = (0..5).map(|_| run()).collect::<Result<_, _>>()?;
            let bytes = runs[0].bytes;
            Ok((median(runs.iter().map(|r| r.nanoseconds).collect()), bytes))
        };
        let (plain, _) = time(&|| record(mode, &path, || Nothing))?;
        let (cycles, _) = time(&|| record(mode, &path, || Cycles))?;
        let (noise, bytes) = time(&|| record(mode, &path, || Noise(88_172_645_463_325_252)))?;
        let name = mode.to_string();
        println!("{name:18} {plain:>7.1} ns {cycles:>7.1} ns {noise:>7.1} ns {bytes:>14.2}");
    }
    let _ = std::fs::remove_file(path);
    Ok(())
}
