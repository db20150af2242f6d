//! `atom clocks`: granularity, cost and monotonicity of this machine's clocks.
//!
//! Measured for each clock: the smallest step between two values, the time of a reading, and whether
//! values ever decrease, in one thread and from one processor to another.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atom_core::{Error, Result};
use clap::Args;

/// Arguments of `atom clocks`.
#[derive(Args)]
pub struct Clocks {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// How long each measurement takes, in milliseconds
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub time: u64,
}

/// A clock. Readings are in nanoseconds, for the time-stamp counter in ticks.
struct Clock {
    name: &'static str,
    /// Name of the clock in options of the tool calllog; empty if that tool does not offer the clock.
    option: &'static str,
    read: fn() -> u64,
    /// Reads the clock after all earlier instructions have completed.
    ordered: fn() -> u64,
    /// True if all threads read the same clock.
    is_shared: bool,
}

/// Measured figures of a clock; times are in nanoseconds.
struct Figures {
    /// Time of a reading.
    cost: f64,
    /// Smallest difference of two successive readings that differ.
    step: f64,
    /// Median of these differences.
    median: f64,
    /// Number of decreases in one thread, and the largest one.
    back: (u64, f64),
    /// Number of decreases between processors, and the largest one; `None` if not measured.
    across: Option<(u64, f64)>,
    /// Number of readings that one processor handed to the other.
    handovers: u64,
}

/// A clock that is read by a system call, which needs no fence in front of it.
const fn system(name: &'static str, option: &'static str, read: fn() -> u64) -> Clock {
    Clock {
        name,
        option,
        read,
        ordered: read,
        is_shared: true,
    }
}

const CLOCKS: [Clock; 9] = [
    Clock {
        ordered: tsc_in_order,
        ..system("time-stamp counter", "tsc", tsc)
    },
    system("CLOCK_MONOTONIC", "monotonic", || {
        posix(libc::CLOCK_MONOTONIC)
    }),
    system("CLOCK_MONOTONIC_RAW", "", || {
        posix(libc::CLOCK_MONOTONIC_RAW)
    }),
    system("CLOCK_MONOTONIC_COARSE", "", || {
        posix(libc::CLOCK_MONOTONIC_COARSE)
    }),
    system("CLOCK_REALTIME", "", || posix(libc::CLOCK_REALTIME)),
    Clock {
        is_shared: false,
        ..system("CLOCK_THREAD_CPUTIME_ID", "cpu", || {
            posix(libc::CLOCK_THREAD_CPUTIME_ID)
        })
    },
    system("CLOCK_PROCESS_CPUTIME_ID", "", || {
        posix(libc::CLOCK_PROCESS_CPUTIME_ID)
    }),
    system("ITIMER_PROF", "prof", itimer),
    system("getrusage", "", usage),
];

/// Reads the time-stamp counter after a fence. Without one the processor may read the counter
/// before it has seen that the other processor handed over.
fn tsc_in_order() -> u64 {
    // SAFETY: as in `tsc`; `lfence` only waits until earlier instructions have completed.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
}

fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of a clock of the system.
pub fn posix(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one structure, to which the pointer leads.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time in seconds after which the timer would expire: several years.
const TIMER_SECONDS: i64 = 100_000_000;

fn start_itimer() -> bool {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let value = libc::itimerval {
        it_interval: zero,
        it_value: libc::timeval {
            tv_sec: TIMER_SECONDS,
            tv_usec: 0,
        },
    };
    // SAFETY: the call reads one structure, to which the pointer leads. The timer's signal would
    // come after years of processor time.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const value, std::ptr::null_mut()) == 0 }
}

fn itimer() -> u64 {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut value = libc::itimerval {
        it_interval: zero,
        it_value: zero,
    };
    // SAFETY: the call writes one structure, to which the pointer leads.
    unsafe { libc::getitimer(libc::ITIMER_PROF, &raw mut value) };
    let left = value.it_value.tv_sec * 1_000_000 + value.it_value.tv_usec;
    // The timer counts downwards.
    (TIMER_SECONDS * 1_000_000 - left).max(0) as u64 * 1000
}

fn usage() -> u64 {
    // SAFETY: the structure consists of integers, for which zeros are valid; the call writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    (micros(usage.ru_utime) + micros(usage.ru_stime)) * 1000
}

/// Runs the command.
pub fn run(args: &Clocks) -> Result<()> {
    if !start_itimer() {
        let error = std::io::Error::last_os_error();
        return Err(Error::new("starting ITIMER_PROF", error));
    }
    let time = Duration::from_millis(args.time.clamp(10, 60_000));
    let rate = tsc_rate(time);
    let cores = two_processors();
    let all: Vec<(&Clock, Figures)> = CLOCKS
        .iter()
        .map(|clock| {
            let unit = if clock.option == "tsc" {
                1.0 / rate
            } else {
                1.0
            };
            (clock, measure(clock, unit, time, cores))
        })
        .collect();
    let text = if args.json {
        json(&all, rate)
    } else {
        table(&all, rate, cores)
    };
    output::print(&text)
}

/// Ticks of the time-stamp counter per nanosecond, measured over `time`.
fn tsc_rate(time: Duration) -> f64 {
    let (start, ticks) = (Instant::now(), tsc());
    std::thread::sleep(time);
    let (ticks, passed) = (tsc() - ticks, start.elapsed());
    ticks as f64 / passed.as_nanos() as f64
}

/// True if the time-stamp counter has a constant rate in all power states.
fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    let highest = __cpuid(0x8000_0000).eax;
    highest >= ADVANCED_POWER_MANAGEMENT && __cpuid(ADVANCED_POWER_MANAGEMENT).edx & 1 << 8 != 0
}

fn measure(clock: &Clock, unit: f64, time: Duration, cores: Option<[usize; 2]>) -> Figures {
    let read = clock.read;
    // Time of a reading: the best of many rounds, since other processes use the processor too.
    const ROUND: u32 = 2000;
    let start = Instant::now();
    let mut cost = f64::MAX;
    while start.elapsed() < time / 4 {
        let round = Instant::now();
        for _ in 0..ROUND {
            std::hint::black_box(read());
        }
        cost = cost.min(round.elapsed().as_nanos() as f64 / f64::from(ROUND));
    }
    let start = Instant::now();
    let (mut steps, mut back) = (Vec::new(), (0, 0.0f64));
    let mut last = read();
    while start.elapsed() < time {
        for _ in 0..100 {
            let now = read();
            if now < last {
                back = (back.0 + 1, back.1.max((last - now) as f64 * unit));
            } else if now > last && steps.len() < 1_000_000 {
                steps.push(now - last);
            }
            last = now;
        }
    }
    steps.sort_unstable();
    let nth = |n: usize| steps.get(n).map_or(f64::NAN, |s| *s as f64 * unit);
    let cores = cores.filter(|_| clock.is_shared);
    let across = cores.and_then(|cores| across(clock.ordered, cores, time));
    Figures {
        cost,
        step: nth(0),
        median: nth(steps.len() / 2),
        back,
        across: across.map(|(n, ticks, _)| (n, ticks as f64 * unit)),
        handovers: across.map_or(0, |(_, _, handovers)| handovers),
    }
}

/// Numbers of two processors on which this process may run.
fn two_processors() -> Option<[usize; 2]> {
    // SAFETY: zeros are a valid set of processors; the call writes it, and the macro reads within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return None;
        }
        let mut all = (0..libc::CPU_SETSIZE as usize).filter(|n| libc::CPU_ISSET(*n, &set));
        Some([all.next()?, all.next()?])
    }
}

/// Binds the calling thread to a processor; false if that fails.
fn stay_on(core: usize) -> bool {
    // SAFETY: as above; the bit was set in the set that the system returned.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
    }
}

/// Hands readings to and fro between two processors and compares each with the one before.
/// Returns the number of readings that were less, the largest such difference in units of `read`,
/// and the number of readings handed over.
fn across(read: fn() -> u64, cores: [usize; 2], time: Duration) -> Option<(u64, u64, u64)> {
    /// The last reading.
    static VALUE: AtomicU64 = AtomicU64::new(0);
    /// Number of the side that reads next, 0 or 1.
    static TURN: AtomicU64 = AtomicU64::new(0);
    /// True when the time is over.
    static OVER: AtomicBool = AtomicBool::new(false);
    VALUE.store(0, Ordering::Relaxed);
    TURN.store(0, Ordering::Relaxed);
    OVER.store(false, Ordering::Relaxed);
    let side = |me: u64| {
        let pinned = stay_on(cores[me as usize]);
        let (mut back, mut most, mut count) = (0, 0, 0);
        while !OVER.load(Ordering::Relaxed) {
            if TURN.load(Ordering::Acquire) != me {
                spin_loop();
                continue;
            }
            let now = read();
            let other = VALUE.load(Ordering::Relaxed);
            if now < other {
                back += 1;
                most = most.max(other - now);
            }
            count += 1;
            VALUE.store(now, Ordering::Relaxed);
            TURN.store(1 - me, Ordering::Release);
        }
        (pinned, back, most, count)
    };
    std::thread::scope(|scope| {
        let sides = [scope.spawn(move || side(0)), scope.spawn(move || side(1))];
        std::thread::sleep(time);
        OVER.store(true, Ordering::Relaxed);
        let [a, b] = sides.map(|side| side.join().ok());
        let (a, b) = (a?, b?);
        let pinned = a.0 && b.0 && a.3 != 0 && b.3 != 0;
        pinned.then(|| (a.1 + b.1, a.2.max(b.2), a.3 + b.3))
    })
}

fn nanos(value: f64) -> String {
    match value {
        v if v.is_nan() => "-".into(),
        v if v >= 1e6 => format!("{:.3} ms", v / 1e6),
        v if v >= 1e4 => format!("{:.1} us", v / 1e3),
        v => format!("{v:.1} ns"),
    }
}

fn table(all: &[(&Clock, Figures)], rate: f64, cores: Option<[usize; 2]>) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "{:26} {:>10} {:>12} {:>12} {:>10} {:>16} {:>11}\n",
        "clock",
        "a reading",
        "least step",
        "median step",
        "goes back",
        "across processors",
        "--clock"
    );
    for (clock, f) in all {
        let times = |(n, most): (u64, f64)| match n {
            0 => "never".to_owned(),
            n => format!("{n}x, {}", nanos(most)),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:26} {:>10} {:>12} {:>12} {:>10} {:>17} {:>11}",
            clock.name,
            nanos(f.cost),
            nanos(f.step),
            nanos(f.median),
            times(f.back),
            f.across.map_or("-".into(), times),
            clock.option,
        );
    }
    let invariant = if tsc_is_invariant() {
        "at one rate always"
    } else {
        "at a rate that may change"
    };
    let _ = writeln!(
        text,
        "\nThe time-stamp counter makes {rate:.4} ticks a nanosecond, {invariant}."
    );
    let _ = writeln!(
        text,
        "A step is the difference of two readings that follow each other and differ: the clock's \
         granularity,\nor the cost of a reading if that is more."
    );
    match cores {
        Some([a, b]) => {
            let most = all.iter().map(|(_, f)| f.handovers).max().unwrap_or(0);
            let _ = writeln!(
                text,
                "Across processors: readings handed to and fro between processors {a} and {b}, up to {most} for a clock."
            );
        }
        None => text.push_str("Across processors: not measured, there is one processor.\n"),
    }
    text
}

fn json(all: &[(&Clock, Figures)], rate: f64) -> String {
    let number = |v: f64| (!v.is_nan()).then_some(v);
    let clocks: Vec<_> = all
        .iter()
        .map(|(clock, f)| {
            serde_json::json!({
                "clock": clock.name, "option": clock.option,
                "cost_ns": f.cost,
                "least_step_ns": number(f.step), "median_step_ns": number(f.median),
                "backwards": f.back.0, "backwards_ns": f.back.1,
                "across_backwards": f.across.map(|a| a.0), "across_backwards_ns": f.across.map(|a| a.1),
                "handovers": f.handovers,
            })
        })
        .collect();
    let value = serde_json::json!({
        "tsc_ticks_per_ns": rate, "tsc_invariant": tsc_is_invariant(), "clocks": clocks,
    });
    format!("{value:#}\n")
}
