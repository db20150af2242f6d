//! Where the processes of a run spend their time: in instrumented files, in other files, or in code that has no file.
//!
//! Code that a process makes while it runs (a just-in-time compiler's) is not instrumented, and no count shows how much
//! of the work it does. So the kernel notes the program counter of each thread every few milliseconds of processor time,
//! and the files that are mapped (`perf_event_open`). The processes get no signal and see nothing of that. Where the kernel
//! does not permit it, nothing is told.
//!
//! The events are opened on this thread, which they do not count, and pass to the processes that it starts.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use super::generated::Names;

/// Processor time between two samples of a thread, in nanoseconds.
const PERIOD: u64 = 4_000_000;
/// Bytes of the memory of one processor in which the kernel leaves records. Unprivileged users may have 512 KB.
const ROOM: usize = 1 << 18;
/// Time between two looks at these.
const PAUSE: Duration = Duration::from_millis(200);
/// `PERF_RECORD_MISC_COMM_EXEC`: a process has a new name because it executes a program.
const BY_EXEC: u16 = 1 << 13;
/// Number of samples below which shares are chance.
const FEWEST: u64 = 10;
/// Number of functions without a file that are named.
const NAMED: usize = 3;

/// A program in a process: the process number, and how many programs it has executed before.
type Stage = (u32, u32);

/// What is at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Code {
    File(PathBuf),
    /// Memory without a file.
    Generated,
    /// The kernel's page of system calls.
    System,
}

/// What the kernel has noted so far.
#[derive(Default)]
struct Notes {
    programs: HashMap<u32, u32>,
    /// Executable memory by its start: its end, and what it is.
    maps: HashMap<Stage, BTreeMap<u64, (u64, Code)>>,
    samples: HashMap<(Stage, u64), u64>,
}

/// Samples that are being taken.
pub struct Watching {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Notes>,
}

/// Numbers of samples by what they were in.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Shares {
    all: u64,
    generated: u64,
    /// Samples in files that are not instrumented.
    others: HashMap<PathBuf, u64>,
    /// Samples in functions without a file.
    names: HashMap<String, u64>,
}

/// What is wanted of a processor.
fn samples_of(processor: usize) -> Builder<'static> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .one_cpu(processor)
        .inherit(true)
        .enable_on_exec(true)
        .sample_period(PERIOD)
        .sample(SampleFlag::IP | SampleFlag::TID)
        .mmap(true)
        .comm(true)
        .comm_exec(true)
        .task(true);
    builder
}

/// True if the kernel permits samples.
pub fn are_permitted() -> bool {
    samples_of(0).build().is_ok()
}

/// Begins with the next process that this thread starts; `None` if the kernel does not permit it.
pub fn start() -> Option<Watching> {
    // SAFETY: a plain question.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let open = |processor: usize| samples_of(processor).build()?.sampled(ROOM);
    let opened = (0..processors.max(0) as usize).map(open);
    // A processor that is switched off has no events.
    let mut samplers: Vec<Sampler> = opened.filter_map(Result::ok).collect();
    if samplers.is_empty() {
        return None;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = is_over.clone();
    let watch = move || {
        let mut notes = Notes::default();
        loop {
            let is_last = asked.load(Ordering::Relaxed);
            for sampler in &mut samplers {
                notes.drain(sampler);
            }
            if is_last {
                return notes;
            }
            std::thread::park_timeout(PAUSE);
        }
    };
    let thread = std::thread::Builder::new().name("samples".into());
    let thread = thread.spawn(watch).ok()?;
    Some(Watching { is_over, thread })
}

impl Watching {
    /// Ends, and adds up. Files below `instrumented` are instrumented; `command` is what instruments executed programs, and
    /// does not count.
    pub fn finish(self, instrumented: &Path, command: &Path) -> Shares {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        match self.thread.join() {
            Ok(notes) => notes.shares(instrumented, command),
            Err(_) => Shares::default(),
        }
    }
}

impl Notes {
    fn drain(&mut self, sampler: &mut Sampler) {
        while let Some(record) = sampler.next_record() {
            let is_exec = record.misc() & BY_EXEC != 0;
            // A record that is not understood tells nothing.
            if let Ok(record) = record.parse_record() {
                self.add(&record, is_exec);
            }
        }
    }

    fn stage(&self, process: u32) -> Stage {
        (process, self.programs.get(&process).copied().unwrap_or(0))
    }

    fn add(&mut self, record: &Record<'_>, is_exec: bool) {
        match record {
            Record::Fork(fork) if fork.pid != fork.ppid => {
                let maps = self.maps.get(&self.stage(fork.ppid)).cloned();
                let child = self.stage(fork.pid);
                self.maps.entry(child).or_insert(maps.unwrap_or_default());
            }
            Record::Comm(comm) if is_exec => *self.programs.entry(comm.pid).or_default() += 1,
            Record::Mmap(map) => {
                let stage = self.stage(map.pid);
                let code = Code::of(&map.filename);
                let maps = self.maps.entry(stage).or_default();
                put(maps, map.addr, map.addr.saturating_add(map.len), code);
            }
            Record::Sample(sample) => {
                if let (Some(process), Some(address)) = (sample.pid(), sample.ip()) {
                    let stage = self.stage(process);
                    *self.samples.entry((stage, address)).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn shares(&self, instrumented: &Path, command: &Path) -> Shares {
        let mut shares = Shares::default();
        let is_command = |stage: &Stage| {
            let maps = self.maps.get(stage).into_iter().flatten();
            let mut code = maps.map(|(_, (_, code))| code);
            code.any(|code| matches!(code, Code::File(file) if file == command))
        };
        let mut names = Names::default();
        for ((stage, address), count) in &self.samples {
            let Some(maps) = self.maps.get(stage).filter(|_| !is_command(stage)) else {
                continue;
            };
            let below = maps.range(..=*address).next_back();
            let code = below
                .filter(|(_, (end, _))| address < end)
                .map(|(_, (_, code))| code);
            shares.all += count;
            match code {
                Some(Code::File(file)) if !file.starts_with(instrumented) => {
                    *shares.others.entry(file.clone()).or_default() += count;
                }
                Some(Code::Generated) => {
                    shares.generated += count;
                    let files = maps.values().filter_map(|(_, code)| match code {
                        Code::File(file) => Some(file.as_path()),
                        _ => None,
                    });
                    if let Some(name) = names.of(stage.0, files, *address) {
                        *shares.names.entry(name).or_default() += count;
                    }
                }
                _ => {}
            }
        }
        shares
    }
}

impl Code {
    /// By the kernel's name for what is mapped.
    fn of(name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let name = name.trim_end_matches('\0');
        // Memory of these kinds has a name and no contents but what the process writes.
        const WITHOUT_FILE: [&str; 5] = ["//anon", "/memfd:", "/dev/zero", "/SYSV", "/dev/shm/"];
        match name {
            _ if WITHOUT_FILE.iter().any(|start| name.starts_with(start)) => Self::Generated,
            _ if name.starts_with('/') => Self::File(name.into()),
            "[vdso]" | "[vsyscall]" => Self::System,
            _ => Self::Generated,
        }
    }
}

/// Puts a mapping over those that were there.
fn put(maps: &mut BTreeMap<u64, (u64, Code)>, start: u64, end: u64, code: Code) {
    let overlapped = maps
        .range(..end)
        .rev()
        .take_while(|(_, (other, _))| *other > start);
    let overlapped: Vec<u64> = overlapped.map(|(at, _)| *at).collect();
    for at in overlapped {
        if let Some((other, old)) = maps.remove(&at) {
            if at < start {
                maps.insert(at, (start, old.clone()));
            }
            if end < other {
                maps.insert(end, (other, old));
            }
        }
    }
    maps.insert(start, (end, code));
}

impl Shares {
    /// What ran outside of instrumented code, in words for a line of a report; `None` if there is less than one sample in two
    /// hundred. `is_whole`: all files should be instrumented, so it is told if some are not.
    pub fn line(&self, is_whole: bool) -> Option<String> {
        let percent = |count: u64| 100.0 * count as f64 / self.all.max(1) as f64;
        let is_some = |count: u64| self.all >= FEWEST && percent(count) >= 0.5;
        let mut parts = Vec::new();
        if is_some(self.generated) {
            let names = most(&self.names, |name| name.clone());
            let names = if names.is_empty() {
                String::new()
            } else {
                format!(" ({})", names.join(", "))
            };
            let share = percent(self.generated);
            parts.push(format!("{share:.1} % in code made at run time{names}"));
        }
        let others = self.others.values().sum();
        if is_whole && is_some(others) {
            let file = |path: &PathBuf| {
                let name = path.file_name().unwrap_or(path.as_os_str());
                name.to_string_lossy().into_owned()
            };
            let files = most(&self.others, file).join(", ");
            let share = percent(others);
            parts.push(format!("{share:.1} % in files as they are ({files})"));
        }
        if parts.is_empty() {
            return None;
        }
        let seconds = self.all as f64 * PERIOD as f64 / 1e9;
        let parts = parts.join(", ");
        Some(format!(
            "not counted: of {seconds:.1} s of user time {parts}"
        ))
    }
}

/// The first few by their counts, with what names them.
fn most<K: Ord>(counts: &HashMap<K, u64>, name: impl Fn(&K) -> String) -> Vec<String> {
    let mut all: Vec<(&K, u64)> = counts.iter().map(|(key, count)| (key, *count)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let shown = all.iter().take(NAMED).map(|(key, _)| name(key));
    let more = (all.len() > NAMED).then(|| "…".to_owned());
    shown.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes() -> Notes {
        let mut notes = Notes::default();
        let mut maps = BTreeMap::new();
        put(&mut maps, 0x1000, 0x9000, Code::of(b"/cache/app\0\0"));
        put(&mut maps, 0x3000, 0x4000, Code::of(b"//anon"));
        put(&mut maps, 0x5000, 0x6000, Code::of(b"/usr/lib/libx.so.1"));
        put(&mut maps, 0x8000, 0xa000, Code::of(b"[vdso]"));
        notes.maps.insert((7, 1), maps);
        for (address, count) in [
            (0x1000, 5),
            (0x3fff, 2),
            (0x4000, 1),
            (0x5800, 1),
            (0x9fff, 1),
        ] {
            notes.samples.insert(((7, 1), address), count);
        }
        notes
    }

    #[test]
    fn samples_are_divided_by_what_is_mapped() {
        let shares = notes().shares(Path::new("/cache"), Path::new("/usr/bin/atom"));
        assert_eq!((shares.all, shares.generated), (10, 2));
        assert_eq!(
            shares.others,
            HashMap::from([("/usr/lib/libx.so.1".into(), 1)])
        );
        assert_eq!(
            shares.line(true).as_deref(),
            Some(
                "not counted: of 0.0 s of user time 20.0 % in code made at run time, 10.0 % in files as they are (libx.so.1)"
            )
        );
        let shares = notes().shares(Path::new("/"), Path::new("/cache/app"));
        assert_eq!(shares, Shares::default());
    }
}
