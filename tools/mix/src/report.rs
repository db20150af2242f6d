//! The report: sums over the shapes of all executed instructions.

use std::collections::BTreeMap;

use atom_tool::prelude::*;
use atom_tool::report::{By, Column};

use crate::loops::Trips;
use atom_tool::packed::groups;

use crate::packed;
use crate::shape::Shape;
use crate::trips::{self, CLASSES};

plain_data! {
    /// An instruction of which something is counted that its block does not tell.
    pub struct Special {
        /// Number of its shape.
        pub shape: u32,
        /// Number of its procedure's site.
        pub site: u32,
    }
}

/// What the report is made of.
pub struct Input<'a> {
    pub blocks: &'a [u8],
    pub counters: Counters,
    pub names: Strings,
    pub shapes: &'a [Shape],
    /// Procedures and headers of loops.
    pub sites: Sites,
    pub special: &'a [Special],
    /// Numbers chosen by masks, or repetitions, of the special instructions.
    pub numbers: Counters,
    /// Histograms of trip counts by number of the loop; none if they were not counted.
    pub histograms: &'a [[u64; CLASSES]],
}

/// Sums of a part of the program.
#[derive(Clone, Copy, Default)]
struct Sums {
    instructions: u64,
    operations: u64,
    loads: u64,
    stores: u64,
    loaded: u64,
    stored: u64,
}

impl Sums {
    /// Adds executions of a shape. What is repeated is added by [`Sums::special`].
    fn add(&mut self, shape: &Shape, count: u64) {
        self.instructions += count;
        self.operations += count * shape.operations();
        if !shape.is_repeated {
            self.access(shape, count);
        }
    }

    fn access(&mut self, shape: &Shape, count: u64) {
        let ([loads, load_size], [stores, store_size]) = (shape.loads, shape.stores);
        self.loads += count * u64::from(loads);
        self.stores += count * u64::from(stores);
        self.loaded += count * u64::from(loads) * u64::from(load_size);
        self.stored += count * u64::from(stores) * u64::from(store_size);
    }

    /// Adds what was counted at one instruction.
    fn special(&mut self, shape: &Shape, count: u64) {
        if shape.is_masked {
            self.operations += count * u64::from(shape.each)
        } else {
            self.access(shape, count)
        }
    }

    fn bytes(&self) -> u64 {
        self.loaded + self.stored
    }
}

/// Executions of the shapes, and sums by procedure.
struct Found {
    /// By number of the shape: executions, and what was counted at single instructions.
    shapes: Vec<[u64; 2]>,
    /// By number of the site.
    procs: BTreeMap<usize, Sums>,
    all: Sums,
}

impl Input<'_> {
    fn found(&self) -> Found {
        let mut found = Found {
            shapes: vec![[0, 0]; self.shapes.len()],
            procs: BTreeMap::new(),
            all: Sums::default(),
        };
        let rows: Vec<u64> = self.counters.rows().map(|[n]| n).collect();
        for group in groups(self.blocks) {
            let counts = rows
                .get(group.first..group.first + group.len)
                .unwrap_or_default();
            if counts.iter().all(|n| *n == 0) {
                continue;
            }
            let sums = found.procs.entry(group.head[0] as usize).or_default();
            packed::each(&group, |block, number| {
                let (Some(shape), count) = (self.shapes.get(number), counts[block]) else {
                    return;
                };
                if count != 0 {
                    sums.add(shape, count);
                    found.all.add(shape, count);
                    found.shapes[number][0] += count;
                }
            });
        }
        for (special, [count]) in self.special.iter().zip(self.numbers.rows()) {
            let number = special.shape as usize;
            let Some(shape) = self.shapes.get(number).filter(|_| count != 0) else {
                continue;
            };
            found.all.special(shape, count);
            found
                .procs
                .entry(special.site as usize)
                .or_default()
                .special(shape, count);
            found.shapes[number][1] += count;
        }
        found
    }
}

/// Writes all files.
pub fn write(files: Files, program: &str, input: &Input<'_>, trips: Vec<Trips>) {
    let found = input.found();
    let all = &found.all;
    let mut report = Report::new("mix", program);
    report
        .typed_fact(
            Column::count("instructions", "instructions"),
            all.instructions,
        )
        .typed_fact(Column::count("loads", "accesses"), all.loads)
        .typed_fact(Column::count("stores", "accesses"), all.stores)
        .typed_fact(Column::bytes("bytes loaded"), all.loaded)
        .typed_fact(Column::bytes("bytes stored"), all.stored)
        .typed_fact(Column::bytes("bytes"), all.bytes())
        .typed_fact(Column::count("FLOP", "operations"), all.operations)
        .typed_fact(
            Column::ratio_of("FLOP per byte", "FLOP", "bytes"),
            ratio(all.operations, all.bytes()),
        );
    let name = |key: fn(&Shape) -> u32| move |shape: &Shape| input.names.get(key(shape)).to_owned();
    let width = |shape: &Shape| match shape.width {
        0 => "none".to_owned(),
        bits => bits.to_string(),
    };
    kinds(
        &mut report,
        input,
        &found,
        "classes",
        "class",
        &name(|s| s.class),
    );
    kinds(
        &mut report,
        input,
        &found,
        "instruction sets",
        "instruction set",
        &name(|s| s.isa),
    );
    kinds(&mut report, input, &found, "operand widths", "bits", &width);
    kinds(
        &mut report,
        input,
        &found,
        "mnemonics",
        "mnemonic",
        &name(|s| s.mnemonic),
    );
    accesses(&mut report, input, &found);
    operations(&mut report, input, &found);
    procedures(&mut report, input, &found);
    if !input.histograms.is_empty() {
        histograms(&mut report, input, &trips);
    }
    loops(&mut report, input, trips);
    report.write(files);
}

fn ratio(part: u64, whole: u64) -> Cell {
    match whole {
        0 => Cell::Empty,
        whole => Cell::Ratio(part as f64 / whole as f64),
    }
}

/// A table of executed instructions by a property of theirs.
fn kinds(
    report: &mut Report,
    input: &Input<'_>,
    found: &Found,
    title: &'static str,
    property: &'static str,
    of: &dyn Fn(&Shape) -> String,
) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (shape, [count, _]) in input.shapes.iter().zip(&found.shapes) {
        if *count != 0 {
            *sums.entry(of(shape)).or_default() += count;
        }
    }
    let columns = [
        Column::count("count", "instructions"),
        Column::share("%", "count"),
        Column::text(property).key(),
    ];
    let table = report.typed_table(By::Other, title, columns);
    for (name, count) in sums {
        let share = Cell::percent(count, found.all.instructions);
        table.row([count.into(), share, name.into()]);
    }
    table.sort(0);
}

/// Loads and stores by size.
fn accesses(report: &mut Report, input: &Input<'_>, found: &Found) {
    let mut sums: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for (shape, [count, repeated]) in input.shapes.iter().zip(&found.shapes) {
        let count = if shape.is_repeated { repeated } else { count };
        for (i, [accesses, size]) in [shape.loads, shape.stores].into_iter().enumerate() {
            if accesses != 0 && *count != 0 {
                sums.entry(size).or_default()[i] += count * u64::from(accesses);
            }
        }
    }
    let columns = [
        Column::count("loads", "accesses"),
        Column::count("stores", "accesses"),
        Column::text("bytes").key(),
    ];
    let table = report.typed_table(By::Other, "memory accesses by size", columns);
    for (size, [loads, stores]) in sums {
        let size = match size {
            0 => "unknown".to_owned(),
            size => size.to_string(),
        };
        table.row([loads.into(), stores.into(), size.into()]);
    }
}

/// Floating-point operations by precision and size of vectors.
fn operations(report: &mut Report, input: &Input<'_>, found: &Found) {
    let mut sums: BTreeMap<(u32, u32, bool), [u64; 2]> = BTreeMap::new();
    for (shape, [count, chosen]) in input.shapes.iter().zip(&found.shapes) {
        if shape.precision != 0 && *count != 0 {
            let sums = sums
                .entry((shape.precision, shape.vector, shape.is_masked))
                .or_default();
            sums[0] += count * shape.operations();
            if shape.is_masked {
                sums[0] += chosen * u64::from(shape.each);
            }
            sums[1] += count;
        }
    }
    if sums.is_empty() {
        return;
    }
    let columns = [
        Column::count("FLOP", "operations"),
        Column::share("%", "FLOP"),
        Column::count("instructions", "instructions"),
        Column::text("precision").key(),
        Column::text("vector").key(),
    ];
    let table = report.typed_table(By::Other, "floating-point operations", columns);
    for ((precision, vector, is_masked), [operations, count]) in sums {
        let precision = match precision {
            16 => "half",
            32 => "single",
            64 => "double",
            _ => "extended (x87)",
        };
        let vector = match (vector, is_masked) {
            (0, false) => "scalar".to_owned(),
            (0, true) => "scalar, masked".to_owned(),
            (bits, false) => format!("{bits} bits"),
            (bits, true) => format!("{bits} bits, masked"),
        };
        table.row([
            operations.into(),
            Cell::percent(operations, found.all.operations),
            count.into(),
            precision.into(),
            vector.into(),
        ]);
    }
    table.sort(0);
}

/// Instructions, operations and bytes by procedure: the points of a roofline picture.
fn procedures(report: &mut Report, input: &Input<'_>, found: &Found) {
    let columns = [
        Column::count("instructions", "instructions"),
        Column::share("%", "instructions"),
        Column::count("FLOP", "operations"),
        Column::bytes("bytes loaded"),
        Column::bytes("bytes stored"),
        Column::bytes("bytes"),
        Column::ratio_of("FLOP per byte", "FLOP", "bytes"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Procedure, "procedures", columns);
    for (site, sums) in &found.procs {
        let Some(site) = input.sites.get(*site) else {
            continue;
        };
        table.row([
            sums.instructions.into(),
            Cell::percent(sums.instructions, found.all.instructions),
            sums.operations.into(),
            sums.loaded.into(),
            sums.stored.into(),
            sums.bytes().into(),
            ratio(sums.operations, sums.bytes()),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
}

/// Trip counts.
fn loops(report: &mut Report, input: &Input<'_>, trips: Vec<Trips>) {
    let columns = [
        Column::count("iterations", "iterations"),
        Column::count("entries", "entries"),
        Column::ratio_of("mean", "iterations", "entries"),
        Column::text("depth"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Other, "loops", columns);
    for one in trips {
        let Some(site) = input.sites.get(one.site) else {
            continue;
        };
        let mean = one
            .entries
            .map_or(Cell::Empty, |entries| ratio(one.iterations, entries));
        table.row([
            one.iterations.into(),
            one.entries.map_or(Cell::Empty, Cell::Number),
            mean,
            one.depth.to_string().into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
}

/// The histogram of each loop's trip counts, the loop with the most iterations first.
fn histograms(report: &mut Report, input: &Input<'_>, trips: &[Trips]) {
    let columns = [
        Column::count("entries", "entries"),
        Column::percent_of("%", "entries", "of the loop"),
        Column::count("of the loop", "entries"),
        Column::text("from").key(),
        Column::text("to"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Other, "trip counts", columns);
    let mut trips: Vec<&Trips> = trips.iter().collect();
    trips.sort_by_key(|one| std::cmp::Reverse(one.iterations));
    for one in trips {
        let histogram = input.histograms.get(one.number);
        let (Some(histogram), Some(site)) = (histogram, input.sites.get(one.site)) else {
            continue;
        };
        let all: u64 = histogram.iter().sum();
        for (class, entries) in histogram.iter().enumerate().filter(|(_, n)| **n != 0) {
            let (first, last) = trips::bounds(class);
            table.row([
                (*entries).into(),
                Cell::percent(*entries, all),
                all.into(),
                first.to_string().into(),
                last.map_or("".into(), |last| last.to_string().into()),
                Cell::Address(site.pc),
                site.place(),
                site.proc.into(),
            ]);
        }
    }
}
