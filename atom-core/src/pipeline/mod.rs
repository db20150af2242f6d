//! All stages in order: from a program, or from the objects of a process, and a tool to the rewritten files.
//!
//! [`instrument`] takes a list of objects through the stages; a program alone is the list of one. Each stage is one
//! function that takes the values of the stages before it:
//!
//! | stage | function | value |
//! | --- | --- | --- |
//! | image | [`Image::open`] | [`Image`] |
//! | unwind | [`Image::unwind_table`] | [`UnwindTable`] |
//! | cfg | [`layout::understand`] | [`Object`] (file, exception tables, code) and [`Sites`] |
//! | tool | [`Tool::instrument`](crate::tool::Tool::instrument) | [`Calls`](crate::tool::Calls) |
//! | analysis | [`AnalysisImage::read`](crate::analysis::AnalysisImage::read) | [`AnalysisImage`](crate::analysis::AnalysisImage) |
//! | live | [`Live::compute_new`] | [`Live`] |
//! | plan | [`Whole::build`] | [`Whole`], with a [`Plan`](plan::Plan) for each object |
//! | layout | [`Placed::new`] | [`Placed`] (the object, its plan and every new address) |
//! | rewrite | [`rewrite::code`] | [`Code`](rewrite::Code) |
//! | emit | [`emit::write`](crate::emit::write()) | [`Output`] |
//!
//! ```no_run
//! use std::path::Path;
//!
//! use atom_core::image::Image;
//! use atom_core::pipeline::{Input, Options, instrument};
//!
//! /// Writes a program that counts its instructions.
//! fn main() -> atom_core::Result<()> {
//!     let program = Image::open(Path::new("/usr/bin/bzip2"))?;
//!     let tool = Path::new("target/release/libicount.so");
//!     let options = Options::default();
//!     instrument(vec![Input::alone(program)], Some(tool), &options, &mut (), |made, ()| {
//!         println!("{} calls are made", made.placed[0].plan.calls_added);
//!         std::fs::write("bzip2.inst", made.outputs[0].to_vec()?).expect("the folder can be written");
//!         Ok(())
//!     })
//! }
//! ```

mod calls;
mod entrance;
mod loaded;
mod process;
mod progress;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::analysis::AnalysisImage;
use crate::analysis::specialise::Specialiser;
use crate::cfg::{Cfg, CodeSize, Object, Returns};
use crate::check::{self, Checked, Scope, Subject};
use crate::emit::debug::{self, DebugSection};
use crate::emit::facts::Facts;
use crate::emit::{self, Output};
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;
use crate::layout::{self, Area, Extra, Placed, Region, RequestedAddresses, Sites};
use crate::live::{Live, Settled};
use crate::plan::kept::Late;
use crate::plan::{self, Clobbers, Home, Plan, Switch, Told, Unit, Whole};
use crate::tool::borders::Windows;
use crate::tool::select::Selection;
use crate::unwind::UnwindTable;
use crate::{memory, rewrite};

use calls::{Instrumented, Objects};
use loaded::Loaded;
use process::{Begun, Parts, opaque};
use progress::run;

pub use entrance::{Entered, Entrance};
pub use process::{Process, State};
pub use progress::{Found, Progress, Stage};

const NEAR: &str = "the new text lies close to the program: the heap may meet it, and then \
                    starts elsewhere or grows less far than the original's";

/// An object that is instrumented.
pub struct Input {
    /// Path of the file, as the loader finds it.
    pub path: PathBuf,
    /// The file.
    pub image: Image,
    /// Path that the rewritten file will have in a process.
    pub output: PathBuf,
    /// True if the interpreter loads the file with the program; false if that is not known of all files.
    pub is_global: bool,
    /// Number of objects that were there when this one was instrumented, itself included.
    pub known: usize,
    /// What was found out about an object of a process to which libraries are added now.
    pub stored: Option<(Cfg, Settled)>,
    /// Addresses that its new segments may have, as in its file, if it is instrumented for a process in which it is mapped.
    pub place: Option<Range<u64>>,
}

impl Input {
    /// A program alone.
    pub fn alone(image: Image) -> Self {
        Self {
            path: image.path.clone(),
            image,
            output: PathBuf::new(),
            is_global: true,
            known: 1,
            stored: None,
            place: None,
        }
    }
}

/// How objects are instrumented.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// Arguments of the instrument routine.
    pub arguments: &'a [String],
    /// Which code is instrumented.
    pub selection: Selection,
    /// Where new segments of the program should be.
    pub requested: RequestedAddresses,
    /// Procedures that move although they get no calls.
    pub extra: Extra,
    /// The return addresses that the program finds on its stack.
    pub returns: Returns,
    /// Fill unused text with traps.
    pub strict: bool,
    /// Call each routine, and put none in line.
    pub no_inline: bool,
    /// Make each call that only counts at its own point.
    pub precise_signals: bool,
    /// Keep all registers at each call.
    pub keep_registers: bool,
    /// Leave the gs segment to the program.
    pub no_gs: bool,
    /// Write a light version of each procedure beside the one with the tool's calls, and let this lead from one to the other.
    pub switch: Option<Switch>,
    /// Where the program itself goes from one version to the other.
    pub windows: Windows,
    /// Put debug information into the outputs.
    pub debug_info: bool,
    /// How much of the outputs is compared with the originals.
    pub check: Option<Scope>,
    /// What the runtime is told. The stages add `unseen`, `opaque` and `code`.
    pub told: Told<'a>,
    /// Size in bytes of code that the process has beside the objects.
    pub unseen_code: u64,
    /// The process that the objects form; `None` for a program alone.
    pub process: Option<Process<'a>>,
    /// The caller's process ends soon, and its memory as a whole: large values are not freed.
    pub ends_soon: bool,
}

/// What the stages have made. Slices have an element for each object that is rewritten, where nothing else is said.
pub struct Rewritten<'a> {
    /// All objects of the process.
    pub inputs: &'a [Input],
    /// Their code.
    pub objects: &'a [Object<'a>],
    /// What is live in them; empty if nothing needs it any more.
    pub lives: &'a [Live<'a>],
    /// The objects with their plans and new addresses.
    pub placed: &'a [Placed<'a>],
    /// The contents of the rewritten files.
    pub outputs: &'a [Output<'a>],
    /// The contents of the area's file, or of the file that is added to the area.
    pub area: Option<&'a Output<'a>>,
    /// What has to be known to add further libraries, if there may be any.
    pub state: Option<&'a State>,
    /// How the process is entered, if it runs already.
    pub entrance: Option<&'a Entrance>,
    /// Number of calls that were dropped because what they are on is not selected.
    pub unselected: usize,
}

/// Instruments objects, the program first, with the tool in a file. `deliver` gets the outputs, which are made while they
/// are written.
pub fn instrument<P: Progress, T>(
    mut inputs: Vec<Input>,
    tool: Option<&Path>,
    options: &Options<'_>,
    progress: &mut P,
    deliver: impl FnOnce(&Rewritten<'_>, &mut P) -> Result<T>,
) -> Result<T> {
    let stored: Vec<_> = inputs.iter_mut().map(|i| i.stored.take()).collect();
    let process = options.process.as_ref();
    let begun = process
        .map(|process| Begun::new(process, &inputs))
        .transpose()?;
    let first = begun.as_ref().map_or(0, Begun::first);
    // Before any work, as a wrong request is the user's mistake.
    let regions = regions(&inputs[first..], options)?;
    let tables = || inputs.iter().map(|input| input.image.unwind_table());
    let tables = run(
        progress,
        Stage::Unwind,
        || tables().collect::<Result<Vec<_>>>(),
        |tables| Found::Unwind(tables),
    )?;
    let load = |file| {
        run(
            progress,
            Stage::Load,
            || Loaded::new(file),
            |l| Found::Load(&l.tool),
        )
    };
    let loaded = tool.map(load).transpose()?;
    let Understood {
        objects,
        settled,
        sites,
    } = run(
        progress,
        Stage::Cfg,
        || understand_all(&inputs, tables, stored, first, options.returns),
        |understood| Found::Cfg(&understood.objects),
    )?;

    // The calls, and the calls as code.
    let late = match &begun {
        Some(begun) if loaded.is_some() => begun.late(!options.told.late.is_empty()),
        _ => Late::Never,
    };
    let seen = Objects {
        inputs: &inputs,
        objects: &objects,
        settled: &settled,
    };
    let mut planned = Planned {
        inputs: &inputs,
        objects: &objects,
        regions,
        begun: begun.as_ref(),
        first,
        used: Vec::new(),
        whole: Whole::without_calls(objects.len()),
        lives: Vec::new(),
    };
    let (mut tool, area) = match tool.zip(loaded) {
        Some((file, loaded)) => {
            let mut call = |loaded, late: &_| planned.call(seen, loaded, late, options, progress);
            let (tool, area) = match call(loaded, &late) {
                // Where the space for libraries that are opened later does not fit, these run as they are.
                Err(e) if e.kind == ErrorKind::TooLarge && matches!(late, Late::Possible) => {
                    call(Loaded::new(file)?, &Late::Never)?
                }
                done => done?,
            };
            (Some(tool), area)
        }
        None => (None, None),
    };
    if let Some(tool) = &mut tool {
        if options.check.is_some() || first != 0 || planned.whole.kept.is_some() {
            planned.lives = std::mem::take(&mut tool.lives);
        } else {
            tool.lives.clear();
        }
    } else if options.check.is_some() {
        let each = objects.iter().map(|o| Live::compute(o.image, &o.cfg));
        planned.lives = each.collect();
    }
    let done = planned.rewrite(tool.as_ref(), (area, sites), options, progress, deliver)?;
    if options.ends_soon {
        std::mem::forget((planned, tool));
        drop(begun);
        std::mem::forget(objects);
        std::mem::forget(inputs);
    }
    Ok(done)
}

/// The object in a file, and the places of its pads if everything moves.
pub fn understand(image: &Image) -> Result<(Object<'_>, Sites)> {
    layout::understand(image, image.unwind_table()?, Returns::New)
}

/// The contents of the output file of an object with any plan. `with_debug`: with debug information for the new text.
pub fn output(placed: &Placed<'_>, with_debug: bool) -> Result<Vec<u8>> {
    let code = rewrite::code(placed)?;
    let debug = if with_debug {
        debug::build(placed)
    } else {
        Vec::new()
    };
    emit::write(placed, code, &debug)?.to_vec()
}

/// The regions for the new segments of objects that are rewritten.
fn regions(inputs: &[Input], options: &Options<'_>) -> Result<Vec<Region>> {
    let is_alone = options.process.is_none();
    let region = |input: &Input| {
        if let Some(place) = &input.place {
            Region::placed(&input.image, place)
        } else if is_alone || input.image.kind.is_program() {
            Region::wanted(&input.image, &options.requested)
        } else {
            Ok(Region::of(&input.image))
        }
    };
    inputs.iter().map(region).collect()
}

/// The code of all objects.
struct Understood<'a> {
    objects: Vec<Object<'a>>,
    /// What is known of the objects' expectations of each other.
    settled: Vec<Option<Settled>>,
    /// Of the objects that are rewritten: the places of pads if everything moves.
    sites: Vec<Sites>,
}

/// Finds the procedures of all objects, of which those from `first` on are rewritten.
fn understand_all<'a>(
    inputs: &'a [Input],
    tables: Vec<UnwindTable<'a>>,
    stored: Vec<Option<(Cfg, Settled)>>,
    first: usize,
    returns: Returns,
) -> Result<Understood<'a>> {
    let mut all = Understood {
        objects: Vec::new(),
        settled: Vec::new(),
        sites: Vec::new(),
    };
    let each = inputs.iter().zip(tables).zip(stored).enumerate();
    for (i, ((input, unwind), stored)) in each {
        let image = &input.image;
        let (object, settled) = match stored {
            Some((cfg, settled)) if i < first => (Object { image, unwind, cfg }, Some(settled)),
            _ => {
                let (object, sites) = layout::understand(image, unwind, returns)?;
                all.sites.extend((i >= first).then_some(sites));
                (object, None)
            }
        };
        image.release_pages();
        all.objects.push(object);
        all.settled.push(settled);
    }
    memory::give_back();
    Ok(all)
}

/// The objects with their plans.
struct Planned<'a> {
    inputs: &'a [Input],
    objects: &'a [Object<'a>],
    /// The regions of the objects that are rewritten.
    regions: Vec<Region>,
    begun: Option<&'a Begun<'a>>,
    /// Number of objects that have been rewritten before.
    first: usize,
    /// The routines that are called.
    used: Vec<u64>,
    whole: Whole,
    /// What is live in all objects; empty if nothing needs it any more.
    lives: Vec<Live<'a>>,
}

impl<'a> Planned<'a> {
    /// Runs the tool's instrument routine, plans its calls, and places the area that the objects share.
    fn call(
        &mut self,
        seen: Objects<'a>,
        loaded: Loaded,
        late: &Late<'_>,
        options: &Options<'_>,
        progress: &mut impl Progress,
    ) -> Result<(Instrumented<'a>, Option<(Area, Facts)>)> {
        let mut tool = seen.instrument(loaded, late.spaces(), options, progress)?;
        progress.begin(Stage::Plan);
        self.plan(&mut tool, late, options, &mut |text| progress.note(text))?;
        progress.end(Found::Plan(&self.whole.plans));
        let lay_out = |begun: &Begun<'_>| begun.lay_out(&tool.analysis, &self.used, &self.whole);
        let area = self.begun.map(lay_out).transpose()?;
        Ok((tool, area))
    }

    /// Plans the calls, and forgets them.
    fn plan(
        &mut self,
        tool: &mut Instrumented<'_>,
        late: &Late<'_>,
        options: &Options<'_>,
        note: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let calls = std::mem::take(&mut tool.calls);
        let (objects, analysis, summaries) = (self.objects, &tool.analysis, &tool.summaries);
        self.used = calls.routines();
        summaries.refuse_wide_registers(analysis, &self.used)?;
        let bodies = Specialiser::new(analysis);
        let (home, low_space, count, starter) = match self.begun {
            Some(begun) => (Home::Area, 0, begun.begun(), begun.starter),
            None => (Home::Own, self.regions[0].low_space(objects[0].image), 1, 0),
        };
        let choices = plan::Options {
            bodies: (!options.no_inline).then_some(&bodies),
            follows: !options.told.follow.is_empty(),
            every_point: options.precise_signals,
            no_gs: options.no_gs,
            switch: options.switch,
            borders: &tool.borders,
            home,
            low_space,
            ..plan::Options::default()
        };
        let choices = choices.complete(objects, count, &calls, analysis, note)?;
        let units: Vec<Unit<'_>> = (objects.iter().zip(&tool.lives))
            .map(|(object, live)| Unit {
                image: object.image,
                cfg: &object.cfg,
                live,
            })
            .collect();
        let clobbers = |routine| summaries.of(routine).into();
        let mut whole = Whole::build(&units, starter, calls, &clobbers, &choices, late)?;
        memory::give_back();
        let unseen = match self.begun {
            Some(_) => String::new(),
            None => objects[0].image.needed().join(", "),
        };
        let code: CodeSize = objects.iter().map(|o| CodeSize::of(&o.cfg)).sum();
        let code = code.and(options.unseen_code);
        let each = objects.iter().map(|o| &o.cfg).zip(&whole.plans);
        let replaced = replaced(each);
        let told = Told {
            replaced: &replaced,
            unseen: &unseen,
            opaque: opaque(objects),
            code: [code.all, code.understood],
            late: match late {
                Late::Never => &[],
                _ => options.told.late,
            },
            ..options.told
        };
        match home {
            Home::Area => whole.shared.tell(&told),
            Home::Own => {
                whole.own_data();
                whole.plans[0].tell(&told);
            }
        }
        self.whole = whole;
        Ok(())
    }

    /// Chooses all addresses, makes the code at these addresses and the outputs, and delivers these.
    fn rewrite<P: Progress, T>(
        &self,
        tool: Option<&Instrumented<'_>>,
        (area, sites): (Option<(Area, Facts)>, Vec<Sites>),
        options: &Options<'_>,
        progress: &mut P,
        deliver: impl FnOnce(&Rewritten<'_>, &mut P) -> Result<T>,
    ) -> Result<T> {
        let analysis = tool.map(|tool| &tool.analysis);
        let in_area = self.begun.zip(analysis);
        let (area, mut facts) = area.unzip();
        let placed = run(
            progress,
            Stage::Layout,
            || self.place(analysis, area.as_ref(), sites, options),
            |placed: &Vec<Placed<'_>>| Found::Layout(placed),
        )?;
        if placed
            .iter()
            .any(|p| p.layout.region.is_near(p.object.image))
        {
            progress.note(NEAR);
        }
        let codes = run(
            progress,
            Stage::Rewrite,
            || placed.iter().map(rewrite::code).collect::<Result<Vec<_>>>(),
            |codes| Found::Rewrite(codes),
        )?;
        let with_debug = options.debug_info && self.first == 0;
        let mut debug: Vec<Vec<DebugSection>> = Vec::new();
        if with_debug {
            progress.begin(Stage::Debug);
            debug.extend(placed.iter().map(debug::build));
            let of_area = in_area.zip(area.as_ref());
            debug.extend(of_area.map(|((_, tool), area)| debug::build_analysis(tool, area.start)));
            progress.end(Found::Debug(&debug));
        }
        let sections = |i: usize| debug.get(i).map_or(&[][..], |sections| sections);
        progress.begin(Stage::Emit);
        let each = placed.iter().zip(codes).enumerate();
        let outputs = each.map(|(i, (placed, code))| emit::write(placed, code, sections(i)));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let places = self
            .begun
            .map_or_else(Vec::new, |begun| begun.places(&placed));
        if let Some(facts) = &mut facts {
            facts.put_places(&places);
        }
        let (shared, state) = match (in_area, &area, &facts) {
            (Some((begun, analysis)), Some(area), Some(facts)) => {
                let parts = Parts {
                    begun,
                    area,
                    facts,
                    places,
                    analysis,
                    whole: &self.whole,
                    objects: self.objects,
                    placed: &placed,
                    debug: sections(placed.len()),
                };
                let (shared, state) = parts.write()?;
                (Some(shared), state)
            }
            _ => (None, None),
        };
        let entered =
            in_area.filter(|_| (options.process.as_ref()).is_some_and(|p| p.attached.is_some()));
        let entrance = entered.zip(area.as_ref()).map(|((begun, analysis), area)| {
            Entrance::new(
                (area, analysis),
                &self.whole,
                (self.inputs, &placed),
                begun.starter,
            )
        });
        progress.end(Found::Emit(&outputs));
        if let Some(scope) = options.check {
            let check = || self.check(&placed, &outputs, tool, scope);
            run(progress, Stage::Check, check, |done| Found::Check(*done))?;
        }
        let rewritten = Rewritten {
            inputs: self.inputs,
            objects: self.objects,
            lives: &self.lives,
            placed: &placed,
            outputs: &outputs,
            area: shared.as_ref(),
            state: state.as_ref(),
            entrance: entrance.as_ref(),
            unselected: tool.map_or(0, |tool| tool.unselected),
        };
        let done = deliver(&rewritten, progress)?;
        if options.ends_soon {
            std::mem::forget((outputs, shared));
            std::mem::forget(placed);
        }
        Ok(done)
    }

    /// Places the objects that are rewritten.
    fn place<'p>(
        &'p self,
        analysis: Option<&'p AnalysisImage>,
        area: Option<&'p Area>,
        sites: Vec<Sites>,
        options: &Options<'_>,
    ) -> Result<Vec<Placed<'p>>> {
        let objects = self.objects[self.first..].iter().zip(&self.regions);
        let each = objects.zip(&self.whole.plans[self.first..]).zip(sites);
        each.map(|(((object, region), plan), sites)| {
            let options = layout::Options {
                strict: options.strict,
                extra: options.extra,
                region: Some(*region),
                area,
            };
            let own = analysis.filter(|_| area.is_none());
            let placed = Placed::new(object, plan, own, sites, &options)?;
            if placed.layout.region.start != region.start && self.inputs[0].place.is_some() {
                let doing = "placing the new text in the running process";
                return Err(Error::too_large(doing, "it does"));
            }
            Ok(placed)
        })
        .collect()
    }

    /// Compares the outputs with the originals.
    fn check(
        &self,
        placed: &[Placed<'_>],
        outputs: &[Output<'_>],
        tool: Option<&Instrumented<'_>>,
        scope: Scope,
    ) -> Result<Checked> {
        let clobbers = |routine| {
            tool.map_or(Clobbers::EVERYTHING, |tool| {
                tool.summaries.of(routine).into()
            })
        };
        let each = placed.iter().zip(outputs).zip(&self.lives[self.first..]);
        each.map(|((placed, output), live)| {
            check::check(&Subject {
                placed,
                live,
                clobbers: &clobbers,
                output: &output.to_vec()?,
                scope,
            })
        })
        .sum()
    }
}

/// What the tool replaces, with `, ` between: the names of procedures, each once, and the values of registers.
fn replaced<'a>(plans: impl Iterator<Item = (&'a Cfg, &'a Plan)> + Clone) -> String {
    let each = plans.clone();
    let procs = each.flat_map(|(cfg, plan)| plan.changes.procs.iter().map(|id| cfg.proc(*id)));
    let mut names: Vec<String> = procs.map(|proc| proc.display_name()).collect();
    names.sort_unstable();
    names.dedup();
    let set: usize = plans.map(|(_, plan)| plan.changes.registers.len()).sum();
    if set != 0 {
        let places = if set == 1 { "place" } else { "places" };
        names.push(format!("values of registers at {set} {places}"));
    }
    names.join(", ")
}

impl Rewritten<'_> {
    /// What the tool replaces, with `, ` between; empty if it changes nothing.
    pub fn replaced(&self) -> String {
        replaced(self.placed.iter().map(|p| (&p.object.cfg, p.plan)))
    }
}
