//! A data file in memory, for access to records in any order.
use std::collections::HashMap;
use std::path::Path;

use crate::encoder::{Encoder, Open};
use crate::error::{Error, Result};
use crate::file::Heading;
use crate::file::order::{Order, SortKey};
use crate::file::reader::Reader;
use crate::file::record::Data;
use crate::file::writer::FileWriter;
use crate::histogram::Histogram;
use crate::longdouble::LongDouble;
use crate::stats::Stats;
use crate::tree::{NONE, ROOT, Role, Tree};
use crate::types::{DataType, Format, Mode, Section, SectionKind, Sid, Step, Tid, ValueSet};
use crate::value::{Area, Value};

/// Limit of executions, which take 24 bytes each; larger files can be streamed.
const MAX_INSTANCES: usize = 1 << 28;
/// Limit of histogram octaves, which take 1 KiB each.
const MAX_OCTAVES: usize = 1 << 22;
/// Thread number of records whose thread is not known.
const NO_THREAD: u32 = u32::MAX;

/// The records of a data file.
///
/// Single values of one thread are in the order in which their executions began.
/// A record takes 24 bytes plus 8 bytes for each set of values.
#[derive(Debug)]
pub struct Profile {
    heading: Heading,
    /// Executions: the index of the enclosing execution, and the section and counter.
    instances: Vec<(u32, Step)>,
    entries: Vec<Entry>,
    columns: Columns,
    damage: Option<Error>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    instance: u32,
    thread: u32,
    /// Index of its values, in units of the number of sets.
    data: u32,
}

#[derive(Debug)]
enum Columns {
    Samples {
        bits: Vec<u64>,
        /// Values of all sets, if one of them has the type `long double`; else empty.
        long: Vec<LongDouble>,
    },
    Stats(Vec<Stats>),
    Histograms(Vec<Histogram>),
}

impl Columns {
    /// Columns without records of a recording in this mode.
    fn new(mode: Mode) -> Self {
        match mode {
            Mode::RecordAverage => Self::Stats(Vec::new()),
            Mode::RecordHistogram => Self::Histograms(Vec::new()),
            _ => Self::Samples {
                bits: Vec::new(),
                long: Vec::new(),
            },
        }
    }

    /// Appends the data of a record; `types` has the type of each set.
    fn push(&mut self, data: Data<'_>, types: &[DataType]) {
        match (self, data) {
            (Self::Samples { bits, long }, Data::Sample(values)) => {
                let has_long = types.contains(&DataType::LongDouble);
                for (value, ty) in values.iter().zip(types) {
                    let mut area = Area::default();
                    area.set(*ty, *value);
                    bits.push(area.bits(*ty));
                    if has_long {
                        let bytes = area.0[..10].try_into().expect("ten bytes");
                        long.push(LongDouble::from_bytes(bytes));
                    }
                }
            }
            (Self::Stats(all), Data::Stats(stats)) => all.extend_from_slice(stats),
            (Self::Histograms(all), Data::Histograms(more)) => all.extend_from_slice(more),
            _ => {}
        }
    }
}

/// The executions of a file, while its records are read.
struct Instances {
    /// The enclosing execution of each, and its section and counter; as in [`Profile`].
    all: Vec<(u32, Step)>,
    /// Indices of the executions that the last record has on its stack, with the root.
    open: Vec<u32>,
}

impl Instances {
    fn new() -> Self {
        Self {
            all: vec![(NONE, Step::default())],
            open: vec![ROOT],
        }
    }

    /// Makes the next record share no executions with the last one.
    fn leave_all(&mut self) {
        self.open.truncate(1);
    }

    /// The execution with this stack, made with those around it if it is new.
    fn of(&mut self, stack: &[Step]) -> u32 {
        let known = self.open[1..].iter().zip(stack);
        let same = known
            .take_while(|(i, step)| self.all[**i as usize].1 == **step)
            .count();
        self.open.truncate(same + 1);
        for step in &stack[same..] {
            let parent = self.open[self.open.len() - 1];
            self.open.push(self.all.len() as u32);
            self.all.push((parent, *step));
        }
        self.open[self.open.len() - 1]
    }
}

impl Profile {
    /// Reads a file. If it is damaged but its heading is valid, the profile has all records before
    /// the damage, and [`damage`](Self::damage) returns the error.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(Reader::open(path)?)
    }

    /// Reads the remaining records of a file.
    pub fn read(mut reader: Reader) -> Result<Self> {
        let mode = reader.mode();
        let types: Vec<_> = reader.sets().iter().map(|s| s.data_type).collect();
        let mut instances = Instances::new();
        let mut entries = Vec::new();
        let mut columns = Columns::new(mode);
        let mut last_thread = None;
        let mut orders: HashMap<u32, Order> = HashMap::new();
        let mut keys: Vec<SortKey> = Vec::new();
        let mut moved = false;
        let mut octaves = 0;
        let damage = loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let thread = record.thread.map_or(NO_THREAD, |t| t.0);
            if last_thread != Some(thread) {
                instances.leave_all();
                moved |= last_thread.is_some();
                last_thread = Some(thread);
            }
            let instance = instances.of(record.stack);
            let index = entries.len() as u32;
            if let Data::Histograms(all) = record.data {
                octaves += all.iter().map(Histogram::octaves).sum::<usize>();
            }
            if instances.all.len() > MAX_INSTANCES || index == NONE || octaves > MAX_OCTAVES {
                break Some(Error::usage(
                    "load",
                    "there is more in it than fits into memory",
                ));
            }
            entries.push(Entry {
                instance,
                thread,
                data: index,
            });
            if mode == Mode::RecordAll && thread != NO_THREAD {
                let key = orders.entry(thread).or_default().key(record.stack);
                moved |= !key.own;
                keys.push(key);
            }
            columns.push(record.data, &types);
        };
        if moved && !keys.is_empty() {
            entries.sort_by_key(|e| (e.thread, keys[e.data as usize]));
        }
        let heading = reader.into_heading();
        Ok(Self {
            heading,
            instances: instances.all,
            entries,
            columns,
            damage,
        })
    }

    /// The error that ended reading, if the file was damaged.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Takes the error that ended reading.
    pub fn take_damage(&mut self) -> Option<Error> {
        self.damage.take()
    }

    /// Mode of the recording: what a record holds.
    pub fn mode(&self) -> Mode {
        self.heading.mode
    }

    /// The sets of values.
    pub fn sets(&self) -> &[ValueSet] {
        &self.heading.sets
    }

    /// The sections that are described, by number.
    pub fn sections(&self) -> &[Section] {
        &self.heading.sections
    }

    /// The description of a section.
    pub fn section(&self, sid: Sid) -> Option<&Section> {
        let sections = &self.heading.sections;
        sections
            .binary_search_by_key(&sid, |s| s.sid)
            .ok()
            .map(|at| &sections[at])
    }

    /// Notes about the recording.
    pub fn info(&self) -> &[(String, String)] {
        &self.heading.info
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The stack of record `index`, outermost section first. Empty if there is no such record.
    pub fn stack(&self, index: usize) -> Vec<Step> {
        let mut stack = Vec::new();
        let mut at = self.entries.get(index).map_or(ROOT, |e| e.instance);
        while at != ROOT {
            let (parent, step) = self.instances[at as usize];
            stack.push(step);
            at = parent;
        }
        stack.reverse();
        stack
    }

    /// The thread of record `index`, if the file knows it.
    pub fn thread(&self, index: usize) -> Option<Tid> {
        let thread = self.entries.get(index)?.thread;
        (thread != NO_THREAD).then_some(Tid(thread))
    }

    /// Number of executions that record `index` stands for.
    pub fn count(&self, index: usize) -> u64 {
        self.stats(index, 0).map_or(0, |s| s.count())
    }

    fn at(&self, index: usize, set: usize) -> Option<usize> {
        let sets = self.heading.sets.len();
        let entry = self.entries.get(index).filter(|_| set < sets)?;
        Some(entry.data as usize * sets + set)
    }

    /// The value of set `set` in record `index`: the single value, or the mean in other modes.
    pub fn value(&self, index: usize, set: usize) -> Option<Value> {
        let at = self.at(index, set)?;
        let ty = self.heading.sets[set].data_type;
        Some(match &self.columns {
            Columns::Samples { long, .. } if ty == DataType::LongDouble => {
                Value::LongDouble(long[at])
            }
            Columns::Samples { bits, .. } => Value::from_bits(ty, bits[at]),
            Columns::Stats(stats) => stats[at].mean_value(ty),
            Columns::Histograms(all) => all[at].stats.mean_value(ty),
        })
    }

    /// Count, sum, minimum and maximum of set `set` in record `index`.
    pub fn stats(&self, index: usize, set: usize) -> Option<Stats> {
        let at = self.at(index, set)?;
        Some(match &self.columns {
            Columns::Stats(stats) => stats[at],
            Columns::Histograms(all) => all[at].stats,
            Columns::Samples { .. } => {
                let mut stats = Stats::new(self.heading.sets[set].data_type);
                stats.add(self.value(index, set)?);
                stats
            }
        })
    }

    /// The histogram of set `set` in record `index`; `None` in other modes.
    pub fn histogram(&self, index: usize, set: usize) -> Option<&Histogram> {
        let at = self.at(index, set)?;
        match &self.columns {
            Columns::Histograms(all) => Some(&all[at]),
            _ => None,
        }
    }

    /// Converts single values to averages or histograms, or histograms to averages. The result has
    /// one record for each call path, with all threads together.
    pub fn switch_mode(&mut self, mode: Mode) -> Result<()> {
        let old = self.heading.mode;
        let possible = match mode {
            Mode::RecordAverage => true,
            Mode::RecordHistogram => old != Mode::RecordAverage,
            Mode::RecordAll => old == mode,
            Mode::Playback => false,
        };
        if !possible {
            let reason = format!("records of mode {old} do not have what {mode} needs");
            return Err(Error::usage("switch the mode", reason));
        }
        if mode == Mode::RecordAll {
            return Ok(());
        }
        let (path_of, instances) = self.paths();
        let sets = self.heading.sets.len();
        let mut entry_of = vec![NONE; instances.len()];
        let mut entries: Vec<Entry> = Vec::new();
        let (mut stats, mut histograms) = (Vec::new(), Vec::new());
        for (index, entry) in self.entries.iter().enumerate() {
            let path = path_of[entry.instance as usize];
            if entry_of[path as usize] == NONE {
                entry_of[path as usize] = entries.len() as u32;
                let data = entries.len() as u32;
                entries.push(Entry {
                    instance: path,
                    thread: NO_THREAD,
                    data,
                });
                for set in &self.heading.sets {
                    match mode {
                        Mode::RecordAverage => stats.push(Stats::new(set.data_type)),
                        _ => histograms.push(Histogram::new(set.data_type)),
                    }
                }
            }
            let at = entry_of[path as usize] as usize * sets;
            for set in 0..sets {
                match mode {
                    Mode::RecordAverage => {
                        if let Some(more) = self.stats(index, set) {
                            stats[at + set].merge(&more);
                        }
                    }
                    _ => match (self.histogram(index, set), self.value(index, set)) {
                        (Some(more), _) => histograms[at + set].merge(more),
                        (None, Some(value)) => histograms[at + set].add(value),
                        _ => {}
                    },
                }
            }
        }
        self.columns = match mode {
            Mode::RecordAverage => Columns::Stats(stats),
            _ => Columns::Histograms(histograms),
        };
        self.instances = instances;
        self.entries = entries;
        self.heading.mode = mode;
        Ok(())
    }

    /// The call paths of all executions: for each instance the index of its path, and the
    /// paths as instances without counters.
    fn paths(&self) -> (Vec<u32>, Vec<(u32, Step)>) {
        let mut paths: HashMap<(u32, Sid), u32> = HashMap::new();
        let mut path_of = vec![ROOT];
        let mut instances = vec![(NONE, Step::default())];
        // An execution comes after the enclosing one, so paths can be numbered in one pass.
        for (parent, step) in &self.instances[1..] {
            let parent = path_of[*parent as usize];
            let sid = step.sid;
            let path = *paths.entry((parent, sid)).or_insert_with(|| {
                instances.push((parent, Step { sid, counter: 0 }));
                instances.len() as u32 - 1
            });
            path_of.push(path);
        }
        (path_of, instances)
    }

    /// Writes a data file.
    pub fn save(&self, path: impl AsRef<Path>, format: Format, gzip: bool) -> Result<()> {
        let sets = self.heading.sets.len();
        let records = self.entries.len() as u64;
        let mut writer = FileWriter::create(path.as_ref(), format, gzip, &self.heading, records)?;
        if format == Format::Binary && matches!(self.columns, Columns::Samples { .. }) {
            self.save_samples(&mut writer)?;
            return writer.finish();
        }
        let mut values = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let stack = self.stack(index);
            let data = entry.data as usize * sets..(entry.data as usize + 1) * sets;
            let data = match &self.columns {
                Columns::Stats(stats) => Data::Stats(&stats[data]),
                Columns::Histograms(all) => Data::Histograms(&all[data]),
                Columns::Samples { .. } => {
                    values.clear();
                    values.extend((0..sets).filter_map(|set| self.value(index, set)));
                    Data::Sample(&values)
                }
            };
            match format {
                Format::Ascii => writer.text(&stack, data)?,
                Format::Binary => {
                    let path: Vec<_> = stack.iter().map(|s| s.sid).collect();
                    let thread = if entry.thread == NO_THREAD {
                        0
                    } else {
                        entry.thread
                    };
                    writer.sums(Tid(thread), &path, data)?;
                }
            }
        }
        writer.finish()
    }

    fn save_samples(&self, writer: &mut FileWriter<'_>) -> Result<()> {
        let sets = self.heading.sets.len();
        let mut first = 0;
        while first < self.entries.len() {
            let thread = self.entries[first].thread;
            let same = self.entries[first..]
                .iter()
                .take_while(|e| e.thread == thread)
                .count();
            let tid = Tid(if thread == NO_THREAD { 0 } else { thread });
            let mut recorder = Rerecorder::new(&self.heading.sets);
            let mut areas = vec![Area::default(); sets];
            for index in first..first + same {
                for (set, area) in areas.iter_mut().enumerate() {
                    if let Some(value) = self.value(index, set) {
                        area.set(self.heading.sets[set].data_type, value);
                    }
                }
                recorder.add(&self.stack(index), &areas);
                if recorder.encoder.is_full() || index + 1 == first + same {
                    let mut payload = Vec::new();
                    let records = recorder.encoder.take(&mut payload);
                    let frame = crate::file::blocks::samples(tid, records, &payload);
                    writer.samples(&frame, records)?;
                }
            }
            first += same;
        }
        Ok(())
    }
}

/// Encodes records from their stacks and values, without a recorder.
pub(crate) struct Rerecorder {
    tree: Tree,
    open: Vec<Reopened>,
    stack: Vec<Step>,
    serial: u64,
    pub encoder: Encoder,
}

struct Reopened {
    serial: u64,
    node: u32,
}

impl Open for Reopened {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn node(&self) -> u32 {
        self.node
    }
}

impl Rerecorder {
    pub fn new(sets: &[ValueSet]) -> Self {
        Self {
            tree: Tree::new(),
            open: vec![Reopened {
                serial: 0,
                node: ROOT,
            }],
            stack: Vec::new(),
            serial: 0,
            encoder: Encoder::new(sets),
        }
    }

    pub fn add(&mut self, stack: &[Step], areas: &[Area]) {
        let mut same = stack
            .iter()
            .zip(&self.stack)
            .take_while(|(a, b)| a == b)
            .count();
        // The innermost execution counts as new even if the previous record was within it.
        same = same.min(stack.len().saturating_sub(1));
        self.stack.truncate(same);
        self.open.truncate(same + 1);
        for step in &stack[same..] {
            let parent = self.open[self.open.len() - 1].node;
            let mut node = self.tree.child(parent, step.sid);
            if node == NONE {
                node = self
                    .tree
                    .add(parent, step.sid, SectionKind::Plain, Role::Real);
            }
            self.tree.nodes[node as usize].counter = step.counter;
            self.serial += 1;
            self.open.push(Reopened {
                serial: self.serial,
                node,
            });
            self.stack.push(*step);
        }
        if let Some(top) = self.open.last().filter(|top| top.node != ROOT) {
            let node = top.node;
            self.encoder
                .add(&mut self.tree, &self.open, node, self.serial, areas);
        }
    }
}
